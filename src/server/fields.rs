//! The fields of a request's body, each read with its type and its bounds, so that a wrong one is named.

use super::fault::Fault;
use serde_json::{Map, Value};

/// A JSON object as it came. What is `null` is not there; what nobody asks for is passed over, since clients send more
/// than servers know.
pub struct Fields(Map<String, Value>);

/// Values of a body, at most: in memory each takes many times what it takes as text.
const PARTS: usize = 300_000;

/// About how many values JSON has: what separates and begins them, outside of strings.
fn parts(body: &[u8]) -> usize {
    let (mut n, mut inside, mut escaped) = (0, false, false);
    for &byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b',' | b'[' | b'{' if !inside => n += 1,
            _ => {}
        }
    }
    n
}

/// What a value is, for whoever wrote another.
fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl Fields {
    /// Errors: no JSON, or no object.
    pub fn parse(body: &[u8]) -> Result<Fields, Fault> {
        if parts(body) > PARTS {
            return Err(Fault::bad("", format!("the body has more than {PARTS} values: send fewer at once")));
        }
        let value: Value =
            serde_json::from_slice(body).map_err(|e| Fault::bad("", format!("the body is no JSON: {e}")))?;
        match value {
            Value::Object(map) => Ok(Fields(map)),
            other => Err(Fault::bad("", format!("the body is {}: an object expected", kind(&other)))),
        }
    }

    /// An object within a body.
    pub fn of(map: Map<String, Value>) -> Fields {
        Fields(map)
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|v| !v.is_null())
    }

    /// Takes a field out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|v| !v.is_null())
    }

    /// The value of the first of several names that is there, and that name.
    fn first<'a>(&self, names: &[&'a str]) -> Option<(&'a str, &Value)> {
        names.iter().find_map(|n| Some((*n, self.get(n)?)))
    }

    /// A number within bounds.
    pub fn float(&self, name: &str, from: f64, to: f64) -> Result<Option<f32>, Fault> {
        let Some(v) = self.get(name) else { return Ok(None) };
        match v.as_f64().filter(|v| (from..=to).contains(v)) {
            Some(v) => Ok(Some(v as f32)),
            None => Err(self.wrong(name, &format!("a number from {from} to {to}"))),
        }
    }

    /// A whole number within bounds, under the first of several names.
    pub fn whole(&self, names: &[&str], from: i64, to: i64) -> Result<Option<i64>, Fault> {
        let Some((name, v)) = self.first(names) else { return Ok(None) };
        let whole = v.as_i64().or_else(|| v.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64));
        match whole.filter(|v| (from..=to).contains(v)) {
            Some(v) => Ok(Some(v)),
            None => Err(self.wrong(name, &format!("a whole number from {from} to {to}"))),
        }
    }

    /// A seed: any whole number of 64 bits; -1 asks for one that nobody knows.
    pub fn seed(&self) -> Result<Option<u64>, Fault> {
        let Some(v) = self.get("seed") else { return Ok(None) };
        match (v.as_u64(), v.as_i64()) {
            (Some(seed), _) => Ok(Some(seed)),
            (None, Some(-1)) => Ok(Some(random_seed())),
            (None, Some(seed)) => Ok(Some(seed as u64)),
            _ => Err(self.wrong("seed", "a whole number of 64 bits")),
        }
    }

    /// A truth value; `false` where it is not there.
    pub fn flag(&self, name: &str) -> Result<bool, Fault> {
        Ok(self.maybe_flag(name)?.unwrap_or(false))
    }

    /// A truth value, where it is there.
    pub fn maybe_flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        let Some(v) = self.get(name) else { return Ok(None) };
        v.as_bool().map(Some).ok_or_else(|| self.wrong(name, "true or false"))
    }

    /// A string.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        let Some(v) = self.get(name) else { return Ok(None) };
        v.as_str().map(Some).ok_or_else(|| self.wrong(name, "a string"))
    }

    /// An object.
    pub fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, Fault> {
        let Some(v) = self.get(name) else { return Ok(None) };
        v.as_object().map(Some).ok_or_else(|| self.wrong(name, "an object"))
    }

    /// A list.
    pub fn list(&self, name: &str) -> Result<Option<&Vec<Value>>, Fault> {
        let Some(v) = self.get(name) else { return Ok(None) };
        v.as_array().map(Some).ok_or_else(|| self.wrong(name, "a list"))
    }

    /// One string or a list of them, `most` at most.
    pub fn texts(&self, name: &str, most: usize) -> Result<Vec<String>, Fault> {
        let wrong = || self.wrong(name, &format!("a string, or a list of {most} strings at most"));
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::String(s)) => Ok(vec![s.clone()]),
            Some(Value::Array(list)) if list.len() <= most => {
                list.iter().map(|s| s.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// That a field is not what it should be.
    pub fn wrong(&self, name: &str, expected: &str) -> Fault {
        let found = self.get(name).map_or_else(
            || "nothing".into(),
            |v| match v {
                Value::Number(n) => n.to_string(),
                Value::String(s) => format!("{:?}", s.chars().take(60).collect::<String>()),
                v => kind(v).to_owned(),
            },
        );
        Fault::bad(name, format!("{name} is {found}: {expected} expected"))
    }
}

/// A seed that nobody could have known, of so few bits that every reader of JSON keeps it.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // its keys are random
    RandomState::new().hash_one(std::time::SystemTime::now()) >> 11
}

/// A token id of the vocabulary.
pub fn id(v: &Value, vocabulary: usize) -> Option<u32> {
    v.as_u64().filter(|id| *id < vocabulary as u64).map(|id| id as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_another_type_or_out_of_bounds_is_named() {
        let f = Fields::parse(br#"{"a": 1.5, "b": "x", "c": null, "d": [1], "e": -3, "f": 4.0}"#).unwrap();
        assert_eq!(f.float("a", 0.0, 2.0).unwrap(), Some(1.5));
        let error = |r: Result<(), Fault>| r.unwrap_err().message().to_owned();
        assert_eq!(error(f.float("a", 0.0, 1.0).map(drop)), "a is 1.5: a number from 0 to 1 expected");
        assert_eq!(error(f.whole(&["b"], 0, 9).map(drop)), "b is \"x\": a whole number from 0 to 9 expected");
        assert_eq!(f.whole(&["z", "f"], 0, 9).unwrap(), Some(4));
        assert_eq!(f.whole(&["c", "e"], -5, 9).unwrap(), Some(-3));
        assert!(f.text("c").unwrap().is_none() && !f.flag("c").unwrap());
        assert_eq!(error(f.flag("d").map(drop)), "d is a list: true or false expected");
        assert_eq!(error(f.texts("d", 4).map(drop)), "d is a list: a string, or a list of 4 strings at most expected");
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for bad in [&b"[]"[..], b"", b"{", b"3", b"{\"a\":1}x", b"\xff"] {
            assert!(Fields::parse(bad).is_err());
        }
        let deep = "[".repeat(5000);
        assert!(Fields::parse(deep.as_bytes()).is_err());
        let many = format!("{{\"a\": [{}0]}}", "0,".repeat(PARTS));
        assert!(Fields::parse(many.as_bytes()).is_err_and(|e| e.message().contains("values")));
        let text = format!("{{\"a\": \"{}\"}}", ",[{\\\"".repeat(PARTS / 2));
        assert!(Fields::parse(text.as_bytes()).is_ok(), "in a text they are nothing");
    }
}

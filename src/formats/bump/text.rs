//! JSON as Python's `json` module writes it: what a BUMP file's hashes are taken over, and how its sidecars look.
//!
//! Numbers are shortest decimals with Python's choice of exponents, and everything outside ASCII is escaped.

use serde_json::Value;

/// A value whose keys keep their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Bool(bool),
    Int(u64),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl From<u64> for Json {
    fn from(v: u64) -> Json {
        Json::Int(v)
    }
}

impl From<&str> for Json {
    fn from(v: &str) -> Json {
        Json::Text(v.into())
    }
}

impl From<bool> for Json {
    fn from(v: bool) -> Json {
        Json::Bool(v)
    }
}

/// A map of these pairs.
pub(super) fn map<const N: usize>(pairs: [(&str, Json); N]) -> Vec<(String, Json)> {
    pairs.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

/// A float as Python's `repr` writes it. JSON has no others than finite ones.
pub(super) fn float(v: f64) -> String {
    let text = format!("{v:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{v}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

impl Json {
    /// With an indent of `step` spaces a level, and a newline at the end.
    pub(super) fn pretty(&self, step: usize) -> String {
        let mut out = String::new();
        self.indented(step, 0, &mut out);
        out.push('\n');
        out
    }

    fn indented(&self, step: usize, level: usize, out: &mut String) {
        let line = |out: &mut String, level: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', step * level));
        };
        match self {
            Json::Bool(v) => out.push_str(if *v { "true" } else { "false" }),
            Json::Int(v) => out.push_str(&v.to_string()),
            Json::Float(v) => out.push_str(&float(*v)),
            Json::Text(v) => quote(v, out),
            Json::List(list) if list.is_empty() => out.push_str("[]"),
            Json::Map(list) if list.is_empty() => out.push_str("{}"),
            Json::List(list) => {
                out.push('[');
                for (i, v) in list.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    line(out, level + 1);
                    v.indented(step, level + 1, out);
                }
                line(out, level);
                out.push(']');
            }
            Json::Map(list) => {
                out.push('{');
                for (i, (key, v)) in list.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    line(out, level + 1);
                    quote(key, out);
                    out.push_str(": ");
                    v.indented(step, level + 1, out);
                }
                line(out, level);
                out.push('}');
            }
        }
    }

    /// The same as a parsed value.
    pub(super) fn value(&self) -> Value {
        match self {
            Json::Bool(v) => Value::Bool(*v),
            Json::Int(v) => Value::from(*v),
            Json::Float(v) => Value::from(*v),
            Json::Text(v) => Value::from(v.as_str()),
            Json::List(list) => Value::Array(list.iter().map(Json::value).collect()),
            Json::Map(list) => Value::Object(list.iter().map(|(k, v)| (k.clone(), v.value())).collect()),
        }
    }
}

/// Keys in order, no spaces, ASCII: the form that is hashed.
pub(super) fn canonical(v: &Value) -> String {
    let mut out = String::new();
    push(v, &mut out);
    out
}

fn push(v: &Value, out: &mut String) {
    match v {
        Value::Null => out.push_str("null"),
        Value::Bool(v) => out.push_str(if *v { "true" } else { "false" }),
        Value::Number(n) => match n.as_f64().filter(|_| n.is_f64()) {
            Some(v) => out.push_str(&float(v)),
            None => out.push_str(&n.to_string()),
        },
        Value::String(s) => quote(s, out),
        Value::Array(list) => {
            out.push('[');
            for (i, v) in list.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                push(v, out);
            }
            out.push(']');
        }
        Value::Object(list) => {
            let mut keys: Vec<&String> = list.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                quote(key, out);
                out.push(':');
                push(&list[key], out);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (v, text) in [
            (1e-5, "1e-05"),
            (9.999999747378752e-6, "9.999999747378752e-06"),
            (10000.0, "10000.0"),
            (0.0001, "0.0001"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-2.5e-10, "-2.5e-10"),
            (0.0, "0.0"),
        ] {
            assert_eq!(float(v), text);
        }
    }

    #[test]
    fn the_canonical_form_has_sorted_keys_no_spaces_and_ascii() {
        let v = serde_json::json!({"b": [1, 2.0, null, true], "a": {"\u{e9}\u{1f600}": "x\n\""}});
        assert_eq!(canonical(&v), r#"{"a":{"\u00e9\ud83d\ude00":"x\n\""},"b":[1,2.0,null,true]}"#);
        let j = Json::Map(map([("k", Json::List(vec![1.into(), "x".into()])), ("e", Json::List(vec![]))]));
        assert_eq!(j.pretty(1), "{\n \"k\": [\n  1,\n  \"x\"\n ],\n \"e\": []\n}\n");
        assert_eq!(canonical(&j.value()), r#"{"e":[],"k":[1,"x"]}"#);
    }
}

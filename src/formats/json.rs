//! Typed fields of a JSON file's objects. Absent and `null` are the same; a value of another type is an error that names
//! file and key, because a number written as text must not pass for one that is not there.
//!
//! What the fields mean is not known here, but for two shapes that all the files of a Hugging Face directory share: a
//! token, which is a text or an object with `content`, and ids, which are one number or a list of them.

use super::error::{FormatError, plain, show_path};
use serde_json::Value;
use std::fmt::Display;
use std::path::Path;

/// The error of a file that is no JSON, or not of the shape it should have.
pub(super) fn not_json(path: &Path, e: serde_json::Error) -> FormatError {
    FormatError::invalid(
        &show_path(path),
        format!("line {} column {}", e.line(), e.column()),
        "not valid",
        "JSON",
        plain(&e.to_string(), 240),
    )
}

/// An object of a JSON file.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    file: String,
    /// keys that lead to it, each followed by a dot
    path: String,
    object: Option<&'a serde_json::Map<String, Value>>,
}

/// A value for a message: what it is, and its beginning.
fn shown(value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".into(),
        Value::Bool(_) | Value::Number(_) => "",
        Value::String(_) => "the text ",
        Value::Array(_) => "the list ",
        Value::Object(_) => "the object ",
    };
    let text = value.to_string();
    let more = if text.chars().nth(60).is_some() { "..." } else { "" };
    format!("{kind}{}{more}", plain(&text, 60))
}

impl<'a> Fields<'a> {
    /// The fields of a whole file. Errors: it is no object.
    pub fn of(file: impl Display, value: &'a Value) -> Result<Fields<'a>, FormatError> {
        let file = plain(&file.to_string(), usize::MAX);
        match value {
            Value::Object(object) => Ok(Fields { file, path: String::new(), object: Some(object) }),
            other => Err(FormatError::invalid(&file, "whole file", "wrong type", "an object", shown(other))),
        }
    }

    /// An object without fields, in place of one that is absent.
    pub fn none(file: impl Display) -> Fields<'a> {
        Fields { file: plain(&file.to_string(), usize::MAX), path: String::new(), object: None }
    }

    /// The file's name, for messages about what its fields mean.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The value under `key`, unless it is absent or `null`.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.object?.get(key).filter(|v| !v.is_null())
    }

    /// Whether `key` is there and `null`.
    pub fn is_null(&self, key: &str) -> bool {
        self.object.and_then(|o| o.get(key)).is_some_and(Value::is_null)
    }

    /// The error of a value that is of no use under `key`.
    pub fn wrong(&self, key: &str, expected: &str, found: &Value) -> FormatError {
        FormatError::invalid(&self.file, format!("{}{key}", self.path), "wrong type", expected, shown(found))
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, FormatError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(key, expected, value))
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, FormatError> {
        self.typed(key, "a text", Value::as_str)
    }

    /// A number, whole or not.
    pub fn number(&self, key: &str) -> Result<Option<f64>, FormatError> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A whole number that is not negative.
    pub fn whole(&self, key: &str) -> Result<Option<u64>, FormatError> {
        self.typed(key, "a whole number", Value::as_u64)
    }

    /// A whole number that counts something: one that this machine counts to.
    pub fn size(&self, key: &str) -> Result<Option<usize>, FormatError> {
        let expected = "a number that this machine counts to";
        let counted = |n: u64| usize::try_from(n).map_err(|_| self.wrong(key, expected, &n.into()));
        self.whole(key)?.map(counted).transpose()
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, FormatError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A list.
    pub fn list(&self, key: &str) -> Result<Option<&'a [Value]>, FormatError> {
        self.typed(key, "a list", |v| v.as_array().map(Vec::as_slice))
    }

    /// A list of numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, FormatError> {
        self.typed(key, "a list of numbers", |v| v.as_array()?.iter().map(Value::as_f64).collect())
    }

    /// An object.
    pub fn object(&self, key: &str) -> Result<Option<Fields<'a>>, FormatError> {
        let object = self.typed(key, "an object", Value::as_object)?;
        let fields = |o| Fields { file: self.file.clone(), path: format!("{}{key}.", self.path), object: Some(o) };
        Ok(object.map(fields))
    }

    /// A token's text: itself, or `content` of an object.
    pub fn token(&self, key: &str) -> Result<Option<&'a str>, FormatError> {
        self.typed(key, "a text, or an object with content", |v| v.as_str().or_else(|| v.get("content")?.as_str()))
    }

    /// Ids: one number or a list of them. A negative one stands for none.
    pub fn ids(&self, key: &str) -> Result<Vec<u64>, FormatError> {
        let id = |v: &Value| v.as_u64().map(Some).or_else(|| v.as_i64().map(|_| None));
        let ids = self.typed(key, "an id or a list of ids", |v| match v {
            Value::Array(list) => list.iter().map(id).collect::<Option<Vec<_>>>(),
            one => id(one).map(|id| vec![id]),
        })?;
        Ok(ids.unwrap_or_default().into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wrong_type_is_named_with_file_key_and_value_and_null_is_absent() {
        let v = json!({"a": "5", "b": null, "c": {"d": [1, "x"]}, "e": 5, "f": 0.5, "t": {"content": "</s>"}});
        let f = Fields::of("DIR/config.json", &v).unwrap();
        assert_eq!(
            (f.number("e").unwrap(), f.number("f").unwrap(), f.number("b").unwrap()),
            (Some(5.0), Some(0.5), None)
        );
        assert_eq!((f.whole("z").unwrap(), f.token("t").unwrap(), f.is_null("b")), (None, Some("</s>"), true));
        let inner = f.object("c").unwrap().unwrap();
        for (error, words) in [
            (f.number("a").unwrap_err(), "DIR/config.json: a: wrong type: expected a number, found the text \"5\""),
            (f.whole("f").unwrap_err(), "f: wrong type: expected a whole number, found 0.5"),
            (inner.numbers("d").unwrap_err(), "c.d: wrong type: expected a list of numbers, found the list [1,\"x\"]"),
            (f.object("e").unwrap_err(), "e: wrong type: expected an object, found 5"),
            (f.token("c").unwrap_err(), "expected a text, or an object with content"),
            (f.ids("a").unwrap_err(), "a: wrong type: expected an id or a list of ids"),
            (inner.ids("d").unwrap_err(), "c.d: wrong type"),
            (Fields::of("x.json", &json!([])).unwrap_err(), "x.json: whole file: wrong type: expected an object"),
        ] {
            assert!(error.to_string().ends_with(words) || error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn ids_are_one_or_several_and_negative_ones_are_none() {
        let v = json!({"one": 3, "two": [3, -1, 4], "no": -1});
        let f = Fields::of("x", &v).unwrap();
        let ids = ["one", "two", "no", "absent"].map(|key| f.ids(key).unwrap());
        assert_eq!(ids, [vec![3], vec![3, 4], vec![], vec![]]);
    }
}

//! Filters and tests that Jinja2 has and `minijinja` lacks, or has otherwise.

use super::json::{as_float, float, tojson};
use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

/// A value as Python's `str` gives it.
fn text(v: &Value) -> String {
    as_float(v).map_or_else(|| v.to_string(), float)
}

pub(super) fn add(env: &mut Environment) {
    env.add_filter("tojson", tojson);
    env.add_filter("string", |v: &Value| if v.as_str().is_some() { v.clone() } else { Value::from(text(v)) });
    env.add_filter("trim", trim);
    env.add_filter("wordcount", |v: &Value| v.to_string().split_whitespace().count());
    env.add_filter("center", |v: &Value, width: Option<usize>| {
        let (s, width) = (v.to_string(), width.unwrap_or(80).min(1 << 16));
        let have = s.chars().count();
        let more = width.saturating_sub(have);
        let left = more / 2 + (more & width & 1);
        format!("{}{s}{}", " ".repeat(left), " ".repeat(more - left))
    });
    // keys of a map are no attributes of it
    env.add_filter("attr", |v: &Value, name: &str| match v.kind() {
        ValueKind::Map => Ok(Value::UNDEFINED),
        _ => v.get_attr(name),
    });
    // in Python these are questions about methods, which strings and maps have too
    env.add_test("sequence", |v: &Value| {
        v.is_undefined() || matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    env.add_test("iterable", |v: &Value| {
        v.is_undefined() || v.as_str().is_some() || v.try_iter().is_ok() && !v.is_none()
    });
    env.add_test("callable", |v: &Value| {
        v.is_undefined() || v.as_object().is_some_and(|_| v.kind() == ValueKind::Plain)
    });
    env.add_function("raise_exception", raise);
    env.set_formatter(print);
}

fn trim(v: &Value, chars: Option<&str>) -> String {
    let s = text(v);
    match chars {
        Some(set) => s.trim_matches(|c| set.contains(c)).into(),
        None => s.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)).into(),
    }
}

/// What `{{ }}` writes.
fn print(out: &mut Output, state: &mut State, v: &Value) -> Result<(), Error> {
    match as_float(v) {
        Some(f) => out.write_str(&float(f)).map_err(|_| Error::from(ErrorKind::WriteFailure)),
        None => minijinja::escape_formatter(out, state, v),
    }
}

/// What a template says when it does not take a conversation.
#[derive(Debug)]
pub(super) struct Raised(pub String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise(args: Rest<Value>) -> Result<Value, Error> {
    let what = args.first().map_or_else(String::new, text);
    Err(Error::new(ErrorKind::InvalidOperation, what.clone()).with_source(Raised(what)))
}

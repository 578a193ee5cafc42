//! JSON as Python's `json.dumps` writes it, and floats as Python prints them.

use minijinja::value::{Kwargs, ObjectRepr, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// A float as Python's `repr` writes it: the fewest digits that read back as the same, with an exponent from 1e16 on and
/// below 1e-4.
pub(super) fn float(v: f64) -> String {
    if v.is_nan() {
        return "nan".into();
    }
    if v.is_infinite() {
        return if v > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if v == 0.0 || (1e-4..1e16).contains(&v.abs()) {
        return format!("{v:?}");
    }
    let scientific = format!("{v:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let (sign, power) = match exponent.strip_prefix('-') {
        Some(power) => ('-', power),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{power:0>2}")
}

/// The float that a value is, if it is one and no integer.
pub(super) fn as_float(v: &Value) -> Option<f64> {
    let is_float = v.kind() == ValueKind::Number && !v.is_integer();
    if is_float { f64::try_from(v.clone()).ok() } else { None }
}

/// How the text is laid out: the arguments of `json.dumps`.
struct Dump<'a, 's, 'e> {
    state: &'a State<'s, 'e>,
    out: String,
    ascii: bool,
    /// what a level is indented by; `None`: one line
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// Levels of lists and objects within each other; Python stops at about a thousand.
const DEPTH: usize = 200;

/// The filter `tojson` as transformers defines it:
/// `json.dumps(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    type Args = (Option<bool>, Option<Value>, Option<Value>, Option<bool>, Kwargs);
    let args = args.into_values();
    let (ascii, indent, separators, sort, kwargs): Args = from_args(&args)?;
    let ascii = ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false);
    let indent = indent.or(kwargs.get("indent")?).filter(|v| !v.is_none());
    let separators = separators.or(kwargs.get("separators")?).filter(|v| !v.is_none());
    let sort = sort.or(kwargs.get("sort_keys")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let indent = match indent {
        Some(v) if v.as_str().is_some() => v.as_str().map(String::from),
        Some(v) => Some(" ".repeat(usize::try_from(i64::try_from(v)?.clamp(0, 64)).unwrap_or(0))),
        None => None,
    };
    let (item, key) = match separators {
        Some(pair) => {
            let pair: Vec<Value> = pair.try_iter()?.collect();
            match &pair[..] {
                [item, key] => (item.to_string(), key.to_string()),
                _ => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators are two strings")),
            }
        }
        None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
    };
    let mut dump = Dump { state, out: String::new(), ascii, indent, item, key, sort };
    dump.value(value, 0)?;
    Ok(Value::from(dump.out))
}

impl Dump<'_, '_, '_> {
    fn value(&mut self, v: &Value, depth: usize) -> Result<(), Error> {
        // so that work and memory are bounded as those of every other operation
        self.state.consume_fuel(1)?;
        if depth > DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: more than 200 levels of lists and objects"));
        }
        match v.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if v.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(v),
            ValueKind::String => self.string(v.as_str().unwrap_or_default())?,
            ValueKind::Seq => self.list(v, depth)?,
            ValueKind::Map if is_dict(v) => self.map(v, depth)?,
            other => {
                let what = format!("tojson: a value of type {other} cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, what));
            }
        }
        Ok(())
    }

    fn number(&mut self, v: &Value) {
        match as_float(v) {
            Some(f) if f.is_nan() => self.out.push_str("NaN"),
            Some(f) if f.is_infinite() => self.out.push_str(if f > 0.0 { "Infinity" } else { "-Infinity" }),
            Some(f) => self.out.push_str(&float(f)),
            None => self.out.push_str(&v.to_string()),
        }
    }

    fn string(&mut self, s: &str) -> Result<(), Error> {
        self.state.consume_fuel(s.len() as u64 / 64)?;
        self.out.push('"');
        for c in s.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !(' '..='~').contains(&c)) => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn list(&mut self, v: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in v.try_iter()? {
            if !std::mem::take(&mut empty) {
                self.out.push_str(&self.item);
            }
            self.line(depth + 1);
            self.value(&item, depth + 1)?;
        }
        if !empty {
            self.line(depth);
        }
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, v: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = v.try_iter()?.collect();
        if self.sort {
            keys.sort();
        }
        self.out.push('{');
        let empty = keys.is_empty();
        for (i, key) in keys.into_iter().enumerate() {
            if i > 0 {
                self.out.push_str(&self.item);
            }
            self.line(depth + 1);
            let name = match key.kind() {
                ValueKind::String => key.as_str().unwrap_or_default().to_string(),
                ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
                ValueKind::None => "null".into(),
                ValueKind::Number => as_float(&key).map_or_else(|| key.to_string(), float),
                _ => return Err(Error::new(ErrorKind::BadSerialization, "tojson: a key is neither text nor number")),
            };
            self.string(&name)?;
            self.out.push_str(&self.key);
            self.value(&v.get_item(&key)?, depth + 1)?;
        }
        if !empty {
            self.line(depth);
        }
        self.out.push('}');
        Ok(())
    }
}

/// Whether a map is one in Python too: a namespace, a loop or a module is not.
fn is_dict(v: &Value) -> bool {
    v.as_object().is_some_and(|o| o.repr() == ObjectRepr::Map) && !format!("{v:?}").starts_with("<")
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (123456789.123, "123456789.123"),
            (5e-324, "5e-324"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (v, text) in cases {
            assert_eq!(float(v), text);
        }
    }
}

//! Methods of Python's strings and lists that `minijinja-contrib` lacks, or has with other borders of lines.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// What a value does when its method is called: ours, else those of `pycompat`.
pub(super) fn unknown(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let ours = match (value.as_str(), value.kind()) {
        (Some(s), _) => string(state, s, method, args)?,
        (None, ValueKind::Seq) => list(value, method, args)?,
        (None, ValueKind::Map) if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match ours {
        Some(v) => Ok(v),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn tuple<const N: usize>(parts: [&str; N]) -> Value {
    Value::from(Tuple::new(parts.iter().map(|p| Value::from(*p)).collect()))
}

/// White space as `str.isspace` has it: Unicode's, and the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn string(state: &State, s: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let gone = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
            Value::from(match method {
                "strip" => s.trim_matches(gone),
                "lstrip" => s.trim_start_matches(gone),
                _ => s.trim_end_matches(gone),
            })
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(s.strip_prefix(prefix).unwrap_or(s))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(s.strip_suffix(suffix).unwrap_or(s))
        }
        "partition" => {
            let (by,): (&str,) = from_args(args)?;
            check(!by.is_empty(), "empty separator")?;
            s.split_once(by).map_or_else(|| tuple([s, "", ""]), |(a, b)| tuple([a, by, b]))
        }
        "rpartition" => {
            let (by,): (&str,) = from_args(args)?;
            check(!by.is_empty(), "empty separator")?;
            s.rsplit_once(by).map_or_else(|| tuple(["", "", s]), |(a, b)| tuple([a, by, b]))
        }
        "split" | "rsplit" => split(s, method == "rsplit", args)?,
        "splitlines" => {
            let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(kwargs.get("keepends")?).unwrap_or(false);
            kwargs.assert_all_used()?;
            lines(s, keep)
        }
        "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if method == "index" { s.find(what) } else { s.rfind(what) };
            let at = at.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            Value::from(s[..at].chars().count())
        }
        "casefold" => Value::from(s.to_lowercase()),
        "swapcase" => Value::from(s.chars().map(swapped).collect::<String>()),
        "zfill" | "ljust" | "rjust" | "center" => pad(state, s, method, args)?,
        "isspace" => Value::from(!s.is_empty() && s.chars().all(is_space)),
        _ => return Ok(None),
    }))
}

fn check(holds: bool, what: &'static str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::new(ErrorKind::InvalidOperation, what)) }
}

fn swapped(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

fn split(s: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (by, most, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let by = by.or(kwargs.get("sep")?).filter(|v| !v.is_none());
    let most = most.or(kwargs.get("maxsplit")?).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    kwargs.assert_all_used()?;
    let parts: Vec<&str> = match by {
        Some(by) => {
            let by = by.as_str().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "split: text expected"))?;
            check(!by.is_empty(), "empty separator")?;
            let pieces = most.saturating_add(1);
            match from_right {
                false => s.splitn(pieces, by).collect(),
                true => {
                    let mut parts: Vec<&str> = s.rsplitn(pieces, by).collect();
                    parts.reverse();
                    parts
                }
            }
        }
        None if from_right => {
            let (mut parts, mut rest) = (vec![], s.trim_end_matches(is_space));
            while !rest.is_empty() && parts.len() < most {
                let Some((at, c)) = rest.char_indices().rfind(|(_, c)| is_space(*c)) else { break };
                parts.push(&rest[at + c.len_utf8()..]);
                rest = rest[..at].trim_end_matches(is_space);
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
            parts.reverse();
            parts
        }
        None => {
            let (mut parts, mut rest) = (vec![], s.trim_start_matches(is_space));
            while !rest.is_empty() && parts.len() < most {
                let Some(at) = rest.find(is_space) else { break };
                parts.push(&rest[..at]);
                rest = rest[at..].trim_start_matches(is_space);
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
            parts
        }
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

/// The lines of a text by every border that Python knows, `\r\n` as one.
fn lines(s: &str, keep: bool) -> Value {
    let is_border = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let (mut out, mut rest) = (Vec::new(), s);
    while let Some(at) = rest.find(is_border) {
        let border = match rest[at..].starts_with("\r\n") {
            true => 2,
            false => rest[at..].chars().next().map_or(1, char::len_utf8),
        };
        out.push(Value::from(&rest[..at + if keep { border } else { 0 }]));
        rest = &rest[at + border..];
    }
    if !rest.is_empty() {
        out.push(Value::from(rest));
    }
    Value::from(out)
}

fn pad(state: &State, s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let have = s.chars().count();
    let more = usize::try_from(width).unwrap_or(0).saturating_sub(have);
    state.consume_fuel(more as u64 / 16)?;
    let fill = fill.unwrap_or(if method == "zfill" { "0" } else { " " });
    Ok(Value::from(match method {
        "ljust" => format!("{s}{}", fill.repeat(more)),
        "rjust" => format!("{}{s}", fill.repeat(more)),
        "center" => {
            let left = more / 2 + (more & have.wrapping_add(more) & 1);
            format!("{}{s}{}", fill.repeat(left), fill.repeat(more - left))
        }
        _ => {
            let (sign, digits) = match s.strip_prefix(['+', '-']) {
                Some(digits) => s.split_at(s.len() - digits.len()),
                None => ("", s),
            };
            format!("{sign}{}{digits}", fill.repeat(more))
        }
    }))
}

fn list(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|v| v == *what);
            Value::from(at.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "the list has no such item"))?)
        }
        "copy" => value.clone(),
        _ => return Ok(None),
    }))
}

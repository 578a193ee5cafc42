//! `--override-kv KEY=TYPE:VALUE`: metadata of one's own, spelt as llama.cpp spells them.

use crate::formats::gguf;
use crate::formats::meta::{Meta, Value};
use anyhow::{Context, bail, ensure};

/// A key and what it is to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    key: String,
    value: Given,
}

#[derive(Clone, Debug, PartialEq)]
enum Given {
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
}

impl Override {
    /// `KEY=TYPE:VALUE`; TYPE is int, float, bool or str.
    pub fn parse(text: &str) -> anyhow::Result<Override> {
        let split = text.split_once('=').and_then(|(key, rest)| Some((key, rest.split_once(':')?)));
        let (key, (kind, value)) = split.with_context(|| format!("{text:?}: expected KEY=TYPE:VALUE"))?;
        ensure!(
            !key.is_empty() && key.len() as u64 <= gguf::MAX_KEY_BYTES && !key.contains('\0'),
            "{text:?}: expected a key of 1 to {} bytes",
            gguf::MAX_KEY_BYTES
        );
        // where tensors lie, and in which file, follows from the layout
        ensure!(key != "general.alignment" && !key.starts_with("split."), "{key} follows from the layout");
        let bad = || format!("{text:?}: {value:?} is not of type {kind}");
        let value = match kind {
            "int" => Given::Int(value.parse().ok().with_context(bad)?),
            "float" => Given::Float(value.parse().ok().filter(|v: &f64| (*v as f32).is_finite()).with_context(bad)?),
            "bool" => Given::Bool(value.parse().ok().with_context(bad)?),
            "str" => {
                ensure!(value.len() as u64 <= gguf::MAX_STRING_BYTES, "{key}: a value of {} bytes", value.len());
                Given::Str(value.into())
            }
            _ => bail!("{text:?}: type {kind:?}: expected int, float, bool or str"),
        };
        Ok(Override { key: key.into(), value })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Sets the key. One that is there keeps its width; a new whole number is a u32, or an i32 where it is negative.
    ///
    /// Errors: a key that is there has another type, or no room for the number.
    pub fn apply(&self, meta: &mut Meta) -> anyhow::Result<()> {
        let found = meta.entries.iter_mut().find(|(k, _)| *k == self.key);
        let fits = |ok: Option<Value>, held: &str| {
            ok.with_context(|| format!("{}: the file has {held} there, which cannot be {:?}", self.key, self.value))
        };
        match found {
            Some((_, value)) => *value = fits(self.as_type_of(value), value.type_name())?,
            None => {
                let like = if matches!(self.value, Given::Int(i64::MIN..=-1)) { Value::I32(0) } else { Value::U32(0) };
                let like = match self.value {
                    Given::Int(_) => like,
                    Given::Float(_) => Value::F32(0.0),
                    Given::Bool(_) => Value::Bool(false),
                    Given::Str(_) => Value::Str(String::new()),
                };
                let value = fits(self.as_type_of(&like), like.type_name())?;
                meta.entries.push((self.key.clone(), value));
            }
        }
        Ok(())
    }

    fn as_type_of(&self, like: &Value) -> Option<Value> {
        Some(match (&self.value, like) {
            (Given::Int(v), Value::U8(_)) => Value::U8((*v).try_into().ok()?),
            (Given::Int(v), Value::I8(_)) => Value::I8((*v).try_into().ok()?),
            (Given::Int(v), Value::U16(_)) => Value::U16((*v).try_into().ok()?),
            (Given::Int(v), Value::I16(_)) => Value::I16((*v).try_into().ok()?),
            (Given::Int(v), Value::U32(_)) => Value::U32((*v).try_into().ok()?),
            (Given::Int(v), Value::I32(_)) => Value::I32((*v).try_into().ok()?),
            (Given::Int(v), Value::U64(_)) => Value::U64((*v).try_into().ok()?),
            (Given::Int(v), Value::I64(_)) => Value::I64(*v),
            (Given::Float(v), Value::F32(_)) => Value::F32(*v as f32),
            (Given::Float(v), Value::F64(_)) => Value::F64(*v),
            (Given::Bool(v), Value::Bool(_)) => Value::Bool(*v),
            (Given::Str(v), Value::Str(_)) => Value::Str(v.clone()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_keeps_its_type_and_a_new_one_gets_the_usual() {
        let mut meta = Meta { entries: vec![("a".into(), Value::U16(1)), ("b".into(), Value::F64(0.0))] };
        for text in ["a=int:7", "b=float:0.1", "c=int:5", "d=int:-5", "e=bool:true", "f=str:x=y:z", "g=float:1e-5"] {
            Override::parse(text).unwrap().apply(&mut meta).unwrap();
        }
        let expected = [
            ("a", Value::U16(7)),
            ("b", Value::F64(0.1)),
            ("c", Value::U32(5)),
            ("d", Value::I32(-5)),
            ("e", Value::Bool(true)),
            ("f", Value::Str("x=y:z".into())),
            ("g", Value::F32(1e-5)),
        ];
        assert_eq!(meta.entries, expected.map(|(k, v)| (k.to_string(), v)));
    }

    #[test]
    fn what_is_no_override_and_what_does_not_fit_is_refused() {
        for bad in ["", "a", "a=1", "=int:1", "a=int:x", "a=int:1.5", "a=float:inf", "a=bool:1", "a=u32:1"] {
            assert!(Override::parse(bad).is_err(), "{bad}");
        }
        for key in ["general.alignment", "split.count"] {
            assert!(Override::parse(&format!("{key}=int:64")).unwrap_err().to_string().contains("layout"));
        }
        let mut meta = Meta { entries: vec![("a".into(), Value::U8(1)), ("l".into(), Value::F32Array(vec![]))] };
        for bad in ["a=int:256", "a=int:-1", "a=str:x", "a=float:1", "l=float:1", "n=int:4294967296"] {
            let error = Override::parse(bad).unwrap().apply(&mut meta).unwrap_err().to_string();
            assert!(error.contains("cannot be"), "{bad}: {error}");
        }
        assert_eq!(meta.entries.len(), 2);
    }
}

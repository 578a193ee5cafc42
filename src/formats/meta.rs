//! Typed metadata: the key-value pairs of a GGUF file, in file order.

/// One metadata value. Arrays are homogeneous; arrays of arrays are refused by the reader.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// unsigned 8 bits
    U8(u8),
    /// signed 8 bits
    I8(i8),
    /// unsigned 16 bits
    U16(u16),
    /// signed 16 bits
    I16(i16),
    /// unsigned 32 bits
    U32(u32),
    /// signed 32 bits
    I32(i32),
    /// binary32
    F32(f32),
    /// one byte, zero or not
    Bool(bool),
    /// UTF-8
    Str(String),
    /// unsigned 64 bits
    U64(u64),
    /// signed 64 bits
    I64(i64),
    /// binary64
    F64(f64),
    /// array of strings
    StrArray(Vec<String>),
    /// array of f32
    F32Array(Vec<f32>),
    /// array of i32
    I32Array(Vec<i32>),
    /// array of u32
    U32Array(Vec<u32>),
    /// array of any other scalar type, element by element
    Array(Vec<Value>),
}

impl Value {
    /// The type as text, for tables and messages: `u32`, `string`, `array of f32`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "bool",
            Value::Str(_) => "string",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
            Value::StrArray(_) => "array of string",
            Value::F32Array(_) => "array of f32",
            Value::I32Array(_) => "array of i32",
            Value::U32Array(_) => "array of u32",
            Value::Array(v) => match v.first() {
                Some(Value::U8(_)) => "array of u8",
                Some(Value::I8(_)) => "array of i8",
                Some(Value::U16(_)) => "array of u16",
                Some(Value::I16(_)) => "array of i16",
                Some(Value::Bool(_)) => "array of bool",
                Some(Value::U64(_)) => "array of u64",
                Some(Value::I64(_)) => "array of i64",
                Some(Value::F64(_)) => "array of f64",
                _ => "array",
            },
        }
    }

    /// An unsigned integer of any width (a non-negative signed one too); `None` for another type.
    pub fn as_uint(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => u64::try_from(v).ok(),
            Value::I16(v) => u64::try_from(v).ok(),
            Value::I32(v) => u64::try_from(v).ok(),
            Value::I64(v) => u64::try_from(v).ok(),
            _ => None,
        }
    }
}

/// A key whose value has another type than its readers know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongType {
    /// the key
    pub key: String,
    /// what the readers know
    pub expected: &'static str,
    /// what is there
    pub found: &'static str,
}

impl std::fmt::Display for WrongType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = super::error::plain(&self.key, 200);
        write!(f, "{key}: wrong type: expected {}, found {}", self.expected, self.found)
    }
}

impl std::error::Error for WrongType {}

/// What [`Meta::typed`] reads a value as.
pub trait Typed<'a>: Sized {
    /// the types that are taken, for messages
    const EXPECTED: &'static str;
    /// `None`: a value of another type
    fn of(value: &'a Value) -> Option<Self>;
}

impl<'a> Typed<'a> for &'a str {
    const EXPECTED: &'static str = "string";
    fn of(value: &'a Value) -> Option<&'a str> {
        if let Value::Str(s) = value { Some(s) } else { None }
    }
}

impl Typed<'_> for f64 {
    const EXPECTED: &'static str = "f32 or f64";
    fn of(value: &Value) -> Option<f64> {
        match *value {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }
}

impl Typed<'_> for bool {
    const EXPECTED: &'static str = "bool";
    fn of(value: &Value) -> Option<bool> {
        if let Value::Bool(v) = value { Some(*v) } else { None }
    }
}

impl Typed<'_> for u64 {
    const EXPECTED: &'static str = "an integer that is not negative";
    fn of(value: &Value) -> Option<u64> {
        value.as_uint()
    }
}

impl Typed<'_> for i128 {
    const EXPECTED: &'static str = "an integer";
    fn of(value: &Value) -> Option<i128> {
        match *value {
            Value::I8(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::I64(v) => Some(v.into()),
            _ => value.as_uint().map(i128::from),
        }
    }
}

impl<'a> Typed<'a> for &'a [String] {
    const EXPECTED: &'static str = "array of string";
    fn of(value: &'a Value) -> Option<&'a [String]> {
        if let Value::StrArray(v) = value { Some(v) } else { None }
    }
}

/// Metadata in file order, with unique keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// (key, value), in file order
    pub entries: Vec<(String, Value)>,
}

impl Meta {
    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The value under `key`, `None` when absent. Whatever decides how a model runs is read by this: a key of a wrong
    /// type must not pass for one that is absent. The readers below it, for which both are the same, are for tables.
    ///
    /// Errors: a value of another type.
    pub fn typed<'a, T: Typed<'a>>(&'a self, key: &str) -> Result<Option<T>, WrongType> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = || WrongType { key: key.into(), expected: T::EXPECTED, found: value.type_name() };
        T::of(value).map(Some).ok_or_else(wrong)
    }

    /// A string value; `None` when absent or of another type.
    pub fn str(&self, key: &str) -> Option<&str> {
        self.typed(key).ok().flatten()
    }

    /// An unsigned integer of any width (a non-negative signed one too); `None` when absent or of another type.
    pub fn uint(&self, key: &str) -> Option<u64> {
        self.typed(key).ok().flatten()
    }

    /// A float of either width; `None` when absent or of another type.
    pub fn float(&self, key: &str) -> Option<f64> {
        self.typed(key).ok().flatten()
    }

    /// A bool; `None` when absent or of another type.
    pub fn bool(&self, key: &str) -> Option<bool> {
        self.typed(key).ok().flatten()
    }

    /// An array of f32; `None` when absent or of another type.
    pub fn f32s(&self, key: &str) -> Option<&[f32]> {
        match self.get(key)? {
            Value::F32Array(v) => Some(v),
            _ => None,
        }
    }

    /// An array of i32; `None` when absent or of another type.
    pub fn i32s(&self, key: &str) -> Option<&[i32]> {
        match self.get(key)? {
            Value::I32Array(v) => Some(v),
            _ => None,
        }
    }

    /// An array of unsigned integers of any width (non-negative signed ones too), as some models give per layer;
    /// `None` when absent, of another type, or with a negative element.
    pub fn uints(&self, key: &str) -> Option<Vec<u64>> {
        match self.get(key)? {
            Value::U32Array(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Value::I32Array(v) => v.iter().map(|&x| u64::try_from(x).ok()).collect(),
            Value::Array(v) => v.iter().map(Value::as_uint).collect(),
            _ => None,
        }
    }

    /// An array of strings; `None` when absent or of another type.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        self.typed(key).ok().flatten()
    }
}

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

    /// A string value; `None` when absent or of another type.
    pub fn str(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// An unsigned integer of any width (a non-negative signed one too); `None` when absent or of another type.
    pub fn uint(&self, key: &str) -> Option<u64> {
        match *self.get(key)? {
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

    /// A float of either width; `None` when absent or of another type.
    pub fn float(&self, key: &str) -> Option<f64> {
        match *self.get(key)? {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }

    /// A bool; `None` when absent or of another type.
    pub fn bool(&self, key: &str) -> Option<bool> {
        match *self.get(key)? {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// An array of strings; `None` when absent or of another type.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        match self.get(key)? {
            Value::StrArray(v) => Some(v),
            _ => None,
        }
    }
}

//! The description of msModelSlim's weights: one JSON object, tensor names with the scheme each belongs to.

use super::super::error::{FormatError, plain, quote, show_path};
use super::super::index::NameIndex;
use super::super::json::not_json;
use super::super::safetensors::MAX_TENSORS;
use super::super::source::read_whole;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::path::Path;

/// Longest description, in bytes.
const MAX_DESCRIPTION: u64 = 32 << 20;

/// What a tensor belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// as the model had it
    Float,
    /// codes of 8 bits with scales and offsets
    W8A16,
    /// codes of 4 bits with scales and offsets
    W4A16,
    /// codes of 8 bits, activations with a scale fixed beforehand
    W8A8,
    /// codes of 8 bits, activations with a scale for each token
    W8A8Dynamic,
    /// both of these; read as the second
    W8A8Mix,
    /// codes of 4 bits, activations of 8 bits with a scale for each token
    W4A8Dynamic,
    /// codes of 4 bits, activations of 4 bits with a scale for each token
    W4A4Dynamic,
    /// scales and offsets of the cache
    C8,
    /// one that is not read
    Other(&'static str),
}

/// Schemes as descriptions write them. W8A8S is W8A8 of a matrix with many zeros, stored in the same way.
const SCHEMES: [(&str, Scheme); 10] = [
    ("FLOAT", Scheme::Float),
    ("W8A16", Scheme::W8A16),
    ("W4A16", Scheme::W4A16),
    ("W8A8", Scheme::W8A8),
    ("W8A8S", Scheme::W8A8),
    ("W8A8_DYNAMIC", Scheme::W8A8Dynamic),
    ("W8A8_MIX", Scheme::W8A8Mix),
    ("W4A8_DYNAMIC", Scheme::W4A8Dynamic),
    ("W4A4_DYNAMIC", Scheme::W4A4Dynamic),
    ("C8", Scheme::C8),
];

/// Schemes of the same tool that are not read.
const OTHERS: [&str; 12] = [
    "W8A8SC",
    "W8A8_TIMESTEP",
    "W4A4_FLATQUANT_DYNAMIC",
    "WFP8AFP8_DYNAMIC",
    "W8A8_MXFP8",
    "W4A8_MXFP",
    "W4A4_MXFP4",
    "W4A4_MXFP4_DUALSCALE",
    "NF4",
    "W16A16S",
    "W16A16SC",
    "FAQuant",
];

/// Keys of a description that name no tensor.
const KEYS: [&str; 8] = [
    "model_quant_type",
    "kv_cache_type",
    "kv_quant_type",
    "fa_quant_type",
    "reduce_quant_type",
    "version",
    "metadata",
    "optional",
];

/// The key of the length of a group, which names no tensor either.
const GROUP_SIZE: &str = "group_size";

/// What a key that names no tensor ends in, where it says how a layer's attention was quantised.
const OF_ATTENTION: &str = ".quant_type";

impl Scheme {
    /// As descriptions write it.
    pub fn word(self) -> &'static str {
        match self {
            Scheme::Other(word) => word,
            known => SCHEMES.iter().find(|(_, s)| *s == known).map_or("?", |(word, _)| word),
        }
    }

    fn of(word: &str) -> Option<Scheme> {
        let other = || OTHERS.iter().find(|w| **w == word).map(|w| Scheme::Other(w));
        SCHEMES.iter().find(|(w, _)| *w == word).map(|(_, s)| *s).or_else(other)
    }
}

/// What stands under a name.
#[derive(Debug)]
enum Entry {
    Scheme(Scheme),
    /// a text that is no scheme, shortened
    Unknown(Box<str>),
    Whole(u64),
    /// neither
    Other(&'static str),
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entry, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Entry;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantisation type")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Entry, E> {
                Ok(Scheme::of(text).map_or_else(|| Entry::Unknown(quote(&plain(text, 40)).into()), Entry::Scheme))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Entry, E> {
                Ok(Entry::Whole(v))
            }
            fn visit_i64<E: Error>(self, _: i64) -> Result<Entry, E> {
                Ok(Entry::Other("a number"))
            }
            fn visit_f64<E: Error>(self, _: f64) -> Result<Entry, E> {
                Ok(Entry::Other("a number"))
            }
            fn visit_bool<E: Error>(self, _: bool) -> Result<Entry, E> {
                Ok(Entry::Other("true or false"))
            }
            fn visit_unit<E: Error>(self) -> Result<Entry, E> {
                Ok(Entry::Other("null"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entry, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Entry::Other("a list"))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Entry::Other("an object"))
            }
        }
        deserializer.deserialize_any(V)
    }
}

/// The description's object.
struct Entries {
    of_tensors: Vec<(String, Entry)>,
    index: NameIndex,
    group_size: Option<u64>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensor names and quantisation types")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut of_tensors: Vec<(String, Entry)> = Vec::new();
                let mut index = NameIndex::with_capacity(MAX_TENSORS);
                let mut group_size = None;
                while let Some(name) = map.next_key::<String>()? {
                    if KEYS.contains(&name.as_str()) {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let entry = map.next_value::<Entry>()?;
                    if name == GROUP_SIZE {
                        group_size = if let Entry::Whole(n) = entry { Some(n).filter(|n| *n > 0) } else { None };
                        continue;
                    }
                    if of_tensors.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    }
                    if index.insert(&name, of_tensors.len(), |i| &of_tensors[i].0).is_some() {
                        return Err(A::Error::custom(format!("{} occurs twice", quote(&name))));
                    }
                    of_tensors.push((name, entry));
                }
                Ok(Entries { of_tensors, index, group_size })
            }
        }
        deserializer.deserialize_map(V)
    }
}

/// A description that was read.
pub struct Description {
    /// its name, for messages
    pub file: String,
    entries: Entries,
}

impl Description {
    /// Reads a description. Errors: it is longer than 32 MiB or no JSON object, or a name occurs twice.
    pub fn read(path: &Path) -> Result<Description, FormatError> {
        let bytes = read_whole(path, MAX_DESCRIPTION)?;
        let entries = serde_json::from_slice(&bytes).map_err(|e| not_json(path, e))?;
        Ok(Description { file: show_path(path), entries })
    }

    /// Elements of a group, where it says so.
    pub fn group_size(&self) -> Option<u64> {
        self.entries.group_size
    }

    /// The scheme of a tensor; `None` where it has no entry. Errors: what stands there is no scheme.
    pub fn scheme(&self, name: &str) -> Result<Option<Scheme>, FormatError> {
        let list = &self.entries.of_tensors;
        self.entries.index.get(name, |i| &list[i].0).map(|i| self.judged(i)).transpose()
    }

    fn judged(&self, i: usize) -> Result<Scheme, FormatError> {
        let (name, entry) = &self.entries.of_tensors[i];
        let wrong = |what: &str, expected: &str, found: &dyn fmt::Display| {
            Err(FormatError::invalid(&self.file, format!("entry {}", quote(name)), what, expected, found))
        };
        match entry {
            Entry::Scheme(scheme) => Ok(*scheme),
            Entry::Unknown(word) => wrong("an unknown quantisation type", "FLOAT, W8A8 or another of the tool's", word),
            Entry::Whole(n) => wrong("wrong type", "the text of a quantisation type", n),
            Entry::Other(what) => wrong("wrong type", "the text of a quantisation type", what),
        }
    }

    /// Refuses entries of tensors that are not there, and attention in another scheme.
    pub fn check(&self, is_there: impl Fn(&str) -> bool) -> Result<(), FormatError> {
        for (i, (name, _)) in self.entries.of_tensors.iter().enumerate() {
            if is_there(name) {
                continue;
            }
            let scheme = self.judged(i)?;
            if !name.ends_with(OF_ATTENTION) {
                return Err(FormatError::invalid(
                    &self.file,
                    format!("entry {}", quote(name)),
                    "an entry without its tensor",
                    "a tensor of this name in the weight files",
                    "none",
                ));
            }
            if scheme != Scheme::Float {
                return Err(super::not_read(&self.file, scheme, name));
            }
        }
        Ok(())
    }
}

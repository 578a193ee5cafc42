//! What a model file holds, as one number: a digest over metadata and tensors, not over how a file lays them out.

use super::error::FormatError;
use super::meta::Meta;
use super::{Activations, Container, Tensor, gguf_write};
use rayon::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Bytes that are hashed apart, so that several threads take part. Part of the digest's definition.
const CHUNK: u64 = 4 << 20;

/// Chunks between two calls of `progress`.
const AT_ONCE: usize = 64;

impl Container {
    /// SHA-256, in 64 hexadecimal digits, over the metadata (or the directory's four JSON files) and, in the order of
    /// their names, every tensor's name, type, shape and bytes. Reads every tensor once, on the threads of the current
    /// rayon pool; `progress` hears how many bytes were read.
    ///
    /// One file, shards with the same metadata, and another alignment of the data have one digest. It is
    ///
    /// `sha256("isobit model 1" meta tensor*)`, where a tensor is its name, type, shape and the SHA-256 of each 4 MiB of its
    /// bytes, and everything of variable length has its length in front as a little-endian u64. A matrix of W8A8 has behind
    /// its shape how its activations become codes: two tensors with the same bytes give other results where that differs.
    ///
    /// Errors: those of reading.
    pub fn digest(&self, mut progress: impl FnMut(u64)) -> Result<String, FormatError> {
        let mut hash = Sha256::new();
        hash.update(b"isobit model 1");
        let mut put = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        // where data begin in a file is nothing of the model's
        let entries = self.meta.entries.iter().filter(|(key, _)| key != "general.alignment").cloned().collect();
        put(&gguf_write::head("metadata", &Meta { entries }, &[])?.bytes);
        let mut text = Vec::new();
        for json in [&self.config, &self.tokenizer_config, &self.generation_config] {
            text.clear();
            json.iter().for_each(|v| canonical(v, &mut text));
            put(&text);
        }
        put(self.tokenizer_json.as_deref().unwrap_or_default());
        let mut tensors: Vec<&Tensor> = self.tensors.iter().collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let mut chunks: Vec<(&Tensor, u64, u64)> = Vec::new();
        for &t in &tensors {
            chunks.extend((0..t.bytes).step_by(CHUNK as usize).map(|at| (t, at, CHUNK.min(t.bytes - at))));
        }
        let mut digests = Vec::with_capacity(chunks.len());
        for some in chunks.chunks(AT_ONCE) {
            let read = some.par_iter().map_init(Vec::new, |bytes, &(t, at, len)| {
                bytes.resize(len as usize, 0u8);
                self.read(t, at, bytes)?;
                Ok(Sha256::digest(&*bytes))
            });
            digests.extend(read.collect::<Result<Vec<_>, FormatError>>()?);
            progress(some.iter().map(|(_, _, len)| len).sum());
        }
        let mut digests = digests.into_iter();
        for t in tensors {
            put(t.name.as_bytes());
            put(t.dtype.name().as_bytes());
            let shape: Vec<u8> = t.shape.iter().flat_map(|d| d.to_le_bytes()).collect();
            put(&shape);
            match self.activations(&t.name) {
                None => {}
                Some(Activations::Dynamic { limit }) => put(&limit.to_le_bytes()),
                Some(Activations::Static { scale, offset }) => put(&[scale, offset].map(f32::to_le_bytes).concat()),
            }
            let chunks: Vec<u8> = digests.by_ref().take(t.bytes.div_ceil(CHUNK) as usize).flatten().collect();
            put(&chunks);
        }
        Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }
}

/// JSON in one way of writing it: no white space, keys in order.
fn canonical(v: &Value, out: &mut Vec<u8>) {
    match v {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push(b'{');
            for key in keys {
                out.extend(Value::from(key.as_str()).to_string().bytes());
                out.push(b':');
                canonical(&map[key], out);
                out.push(b',');
            }
            out.push(b'}');
        }
        Value::Array(list) => {
            out.push(b'[');
            for item in list {
                canonical(item, out);
                out.push(b',');
            }
            out.push(b']');
        }
        scalar => out.extend(scalar.to_string().bytes()),
    }
}

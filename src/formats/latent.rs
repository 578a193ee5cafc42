//! Keys and values of latent attention (DeepSeek V2 and V3) that lie in one matrix, a head's rows of keys and of values behind
//! each other: in directories, and in GGUF files from before April 2025 (`attn_kv_b`). They become the two tensors that
//! llama.cpp's converter has made since, and a file's metadata those of such a file.
//!
//! Values are rows that stay as they are. Keys are transposed; where they consist of blocks of several elements, whose rows
//! a column crosses, they are decoded to F32, so that no code is rounded a second time.

use super::Tensor;
use super::dtype::Dtype;
use super::lengthened::Making;
use super::meta::{Meta, Value};
use super::order::{Anew, Columns, Order};
use super::source::Source;
use crate::blocks::BlockType;

/// The architecture, by its name in GGUF files.
const ARCH: &str = "deepseek2";

/// The key by which a file of a new conversion is known: elements of a head's query.
const QUERY: &str = "attention.key_length_mla";

/// The most elements of one head's matrix of keys, which is decoded and turned in memory; those of released models have
/// 128 · 512.
const MOST: u64 = 1 << 20;

/// The most heads, each of which is a piece of a file; released models have 128.
const MOST_HEADS: u64 = 1 << 10;

/// The sizes of heads of latent attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Heads {
    n: u64,
    /// rows of keys of a head
    keys: u64,
    /// rows of values of a head
    values: u64,
}

impl Heads {
    fn new(n: u64, keys: u64, values: u64) -> Option<Heads> {
        let fit = (1..=MOST_HEADS).contains(&n) && [keys, values].iter().all(|n| (1..=1 << 20).contains(n));
        fit.then_some(Heads { n, keys, values })
    }

    /// Of a directory's config.
    pub fn of(config: &serde_json::Value) -> Option<Heads> {
        let size = |key: &str| config[key].as_u64();
        Heads::new(size("num_attention_heads")?, size("qk_nope_head_dim")?, size("v_head_dim")?)
    }

    /// The matrices of keys, whose columns become rows, and those of values, head by head, under the tensor's name without
    /// `both` and with the two names; `None`: it is another tensor, or not of these sizes, which whoever asks for the two will
    /// tell.
    pub fn apart(self, t: &Tensor, both: &str, names: [&str; 2]) -> Option<Vec<Anew>> {
        let stem = t.name.strip_suffix(both)?;
        let &[rank, rows] = &t.shape[..] else { return None };
        let head = self.keys + self.values;
        if rank == 0 || rows != head * self.n || rank.checked_mul(self.keys)? > MOST {
            return None;
        }
        // whole rows of a tensor that is there
        let row = t.dtype.bytes_for(rank).filter(|row| row.checked_mul(rows) == Some(t.bytes))?;
        let block = t.dtype.block()?;
        let (coded, dtype) =
            if block.is_float() { (None, t.dtype) } else { (Some(block), Dtype::from_block(BlockType::F32)?) };
        let size = dtype.block_bytes();
        let columns = Columns {
            at: t.offset,
            rows: self.keys as usize,
            cols: rank as usize,
            row: row as usize,
            coded,
            size: size as usize,
            first: 0,
            step: 1,
            apart: (head * row) as usize,
        };
        let of_values = (0..self.n).map(|h| {
            let at = t.offset + (h * head + self.keys) * row;
            (t.file, at..at + self.values * row)
        });
        let keys = Anew {
            like: Tensor { dtype, ..t.clone() },
            name: format!("{stem}{}", names[0]),
            shape: vec![self.keys, rank, self.n],
            bytes: size * self.keys * rank * self.n,
            order: Order::Transposed(columns),
        };
        let values = Anew {
            like: t.clone(),
            name: format!("{stem}{}", names[1]),
            shape: vec![rank, self.values, self.n],
            bytes: row * self.values * self.n,
            order: Order::Pieces(of_values.collect()),
        };
        Some(vec![keys, values])
    }
}

/// What a file of an old conversion of `deepseek2` says of its heads, with the keys that a new one has in their place; `None`:
/// it is another file.
fn of_old(meta: &Meta) -> Option<(Heads, [(&'static str, u64); 5])> {
    let uint = |key: &str| meta.uint(&format!("{ARCH}.{key}"));
    if meta.str("general.architecture") != Some(ARCH) || meta.get(&format!("{ARCH}.{QUERY}")).is_some() {
        return None;
    }
    let (rank, rope, n) =
        (uint("attention.kv_lora_rank")?, uint("rope.dimension_count")?, uint("attention.head_count")?);
    let (query, value) = (uint("attention.key_length")?, uint("attention.value_length")?);
    let heads = Heads::new(n, query.checked_sub(rope)?, value)?;
    let width = rank.checked_add(rope)?;
    // every head has keys of its own
    let kv_heads = uint("attention.head_count_kv").unwrap_or(n);
    let new = [
        ("attention.key_length", width),
        ("attention.value_length", rank),
        (QUERY, query),
        ("attention.value_length_mla", value),
        ("attention.head_count_kv", 1),
    ];
    (kv_heads == n && new.iter().all(|(_, n)| u32::try_from(*n).is_ok())).then_some((heads, new))
}

/// Makes of a GGUF file of an old conversion what a new one has: tensors and metadata. Any other file stays as it is, and so does
/// one of which a matrix has other sizes than the metadata say, which `models` refuses.
pub(super) fn renew(meta: &mut Meta, tensors: Vec<Tensor>, sources: Vec<Source>) -> (Vec<Tensor>, Vec<Source>) {
    let Some((heads, keys)) = of_old(meta) else { return (tensors, sources) };
    let apart = |t: &Tensor| heads.apart(t, ".attn_kv_b.weight", [".attn_k_b.weight", ".attn_v_b.weight"]);
    let made: Vec<Option<Vec<Anew>>> = tensors.iter().map(apart).collect();
    if made.iter().all(Option::is_none) {
        return (tensors, sources);
    }
    let mut making = Making::behind(&sources);
    let mut out = Vec::with_capacity(tensors.len() + made.len());
    for (t, made) in tensors.into_iter().zip(made) {
        match made {
            Some(two) => out.extend(two.into_iter().map(|e| making.anew(e))),
            None => out.push(t),
        }
    }
    for (key, n) in keys {
        let key = format!("{ARCH}.{key}");
        // none is above 2^32
        let value = Value::U32(n as u32);
        match meta.entries.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value,
            None => meta.entries.push((key, value)),
        }
    }
    (out, making.files(sources))
}

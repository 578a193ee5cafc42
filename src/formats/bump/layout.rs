//! What a BUMP file holds, in its order: one list for readers and writers.

use super::header::{Dims, Version};

/// One tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slot {
    /// as manifests name it
    pub name: String,
    pub holds: Holds,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Holds {
    /// a matrix of the type that the table says; rows of heads are padded from `head.0` to `head.1`
    Matrix { cols: u64, rows: u64, head: Option<(u64, u64)> },
    /// f32, read as a weight
    Vector { len: u64 },
    /// f32 for each head, padded as the rows of its matrix; a weight where the model has biases
    Bias { len: u64, head: Option<(u64, u64)> },
    /// f32 that are zero in every model: a bias nobody has, or positions that are rotated instead
    Zeros { len: u64 },
    /// a part of the vocabulary: its type in manifests, and its bytes. Not in the dtype table
    Vocab { dtype: &'static str, bytes: u64 },
    /// f32 of one head, of which `plain` count; not in the dtype table
    HeadNorm { len: u64, plain: u64 },
}

/// Parts that not every file has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// a matrix of its own for the output
    pub output: bool,
    /// positions, all zero; version 5 keeps their entry of the dtype table all the same
    pub positions: bool,
    /// a norm over each head of queries and keys
    pub head_norms: bool,
    /// bytes of the vocabulary's strings and number of merges
    pub vocab: Option<(u64, u64)>,
    pub scores: bool,
    pub types: bool,
}

/// Every tensor in the order of the file. Sizes are numbers of elements, and may be too large for any file.
pub(super) fn slots(d: &Dims, parts: &Parts) -> Vec<Slot> {
    let mut out = Vec::new();
    let mut put = |name: String, holds: Holds| out.push(Slot { name, holds });
    let matrix = |cols: u64, rows: u64| Holds::Matrix { cols, rows, head: None };
    let head = Some((d.head_dim, d.aligned_head)).filter(|(plain, aligned)| plain < aligned);
    let headed = |heads: u64| Holds::Matrix { cols: d.embed, rows: heads * d.aligned_head, head };
    let bias = |heads: u64| Holds::Bias { len: heads * d.aligned_head, head };
    let norm = Holds::HeadNorm { len: d.aligned_head, plain: d.head_dim };
    put("token_emb".into(), matrix(d.embed, d.vocab));
    if parts.output {
        put("output.weight".into(), matrix(d.embed, d.vocab));
    }
    if let Some((bytes, merges)) = parts.vocab {
        put("vocab_offsets".into(), Holds::Vocab { dtype: "i32", bytes: 4 * d.vocab });
        put("vocab_strings".into(), Holds::Vocab { dtype: "u8", bytes });
        if parts.scores {
            put("vocab_scores".into(), Holds::Vocab { dtype: "f32", bytes: 4 * d.vocab });
        }
        if parts.types {
            put("vocab_types".into(), Holds::Vocab { dtype: "u8", bytes: d.vocab });
        }
        put("vocab_merges".into(), Holds::Vocab { dtype: "i32", bytes: 12 * merges });
    }
    if parts.positions {
        put("pos_emb".into(), Holds::Zeros { len: d.context * d.embed });
    }
    for l in 0..d.layers {
        let mut put = |name: &str, holds: Holds| put(format!("layer.{l}.{name}"), holds);
        put("ln1_gamma", Holds::Vector { len: d.embed });
        put("ln2_gamma", Holds::Vector { len: d.embed });
        put("wq", headed(d.heads));
        put("bq", bias(d.heads));
        if parts.head_norms {
            put("q_norm", norm);
        }
        put("wk", headed(d.kv_heads));
        put("bk", bias(d.kv_heads));
        if parts.head_norms {
            put("k_norm", norm);
        }
        put("wv", headed(d.kv_heads));
        put("bv", bias(d.kv_heads));
        put("wo", matrix(d.heads * d.head_dim, d.embed));
        put("bo", Holds::Zeros { len: d.embed });
        // gate, then up
        put("w1", matrix(d.embed, 2 * d.ffn));
        put("b1", Holds::Zeros { len: 2 * d.ffn });
        put("w2", matrix(d.ffn, d.embed));
        put("b2", Holds::Zeros { len: d.embed });
    }
    put("final_ln_weight".into(), Holds::Vector { len: d.embed });
    put("final_ln_bias".into(), Holds::Zeros { len: d.embed });
    out
}

/// Entries of the dtype table.
pub(super) fn table_len(d: &Dims, output: bool) -> u64 {
    14 * d.layers + 4 + u64::from(output)
}

/// Which entry of the dtype table says the type of each slot; `None` for those that have none.
pub(super) fn table_places(slots: &[Slot], version: Version) -> Vec<Option<usize>> {
    let mut next = 0;
    let positions = slots.iter().any(|s| s.name == "pos_emb");
    slots
        .iter()
        .map(|s| {
            if matches!(s.holds, Holds::Vocab { .. } | Holds::HeadNorm { .. }) {
                return None;
            }
            // version 5 has an entry for positions that are not there, ahead of the layers
            if version == Version::V5 && !positions && s.name == "layer.0.ln1_gamma" {
                next += 1;
            }
            next += 1;
            Some(next - 1)
        })
        .collect()
}

/// The name in a GGUF file, where it is one tensor there.
pub(super) fn gguf_name(slot: &str) -> Option<String> {
    let global = match slot {
        "token_emb" => Some("token_embd.weight"),
        "output.weight" => Some("output.weight"),
        "final_ln_weight" => Some("output_norm.weight"),
        _ => None,
    };
    if let Some(name) = global {
        return Some(name.into());
    }
    let (l, rest) = slot.strip_prefix("layer.")?.split_once('.')?;
    let what = match rest {
        "ln1_gamma" => "attn_norm.weight",
        "ln2_gamma" => "ffn_norm.weight",
        "wq" => "attn_q.weight",
        "wk" => "attn_k.weight",
        "wv" => "attn_v.weight",
        "bq" => "attn_q.bias",
        "bk" => "attn_k.bias",
        "bv" => "attn_v.bias",
        "q_norm" => "attn_q_norm.weight",
        "k_norm" => "attn_k_norm.weight",
        "wo" => "attn_output.weight",
        "w2" => "ffn_down.weight",
        _ => return None,
    };
    Some(format!("blk.{l}.{what}"))
}

/// Gate and up of a layer's `w1`, under their names in a GGUF file.
pub(super) fn gate_up(slot: &str) -> Option<[String; 2]> {
    let l = slot.strip_prefix("layer.")?.strip_suffix(".w1")?;
    Some(["gate", "up"].map(|what| format!("blk.{l}.ffn_{what}.weight")))
}

//! Which type each tensor gets: llama.cpp's mixes for GGUF, nibble's policies for packed files, and patterns of one's own.
//!
//! A tensor is known by both its names, GGUF's and Hugging Face's; a pattern may match either.

use crate::blocks::BlockType;
use crate::formats::meta::Meta;
pub use crate::formats::mix::{Mix, that_fits};
use crate::formats::names;
use crate::formats::policy::{Group, Policy, place};
use anyhow::{Context, bail, ensure};
use fancy_regex::{Regex, RegexBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The names `Mix::parse` takes, for help and messages.
pub const MIXES: &str = "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k, q4_k_m, q5_k_m, copy; packed: q8k128, q8k, q6k, q4k";

/// The packed type of a matrix by nibble's routing: Q8K128 where the policy says so, else Q4_K for mlp.down_proj and Q8_K.
/// A matrix whose name is none of those of [`place`] is among all that are not down projections.
pub fn by_policy(policy: Policy, hf_name: &str) -> BlockType {
    let place = place(hf_name);
    let chosen = place.map_or(matches!(policy, Policy::Q8k | Policy::All), |p| policy.selects(p));
    match (chosen, place.map(|p| p.group)) {
        (true, _) => BlockType::Q8K128,
        (false, Some(Group::Down)) => BlockType::Q4_K,
        (false, _) => BlockType::Q8_K,
    }
}

/// A pattern over names and the type of what it matches; `None` keeps the tensor as it is.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    ty: Option<BlockType>,
    said: String,
    /// shared by clones: it matched a tensor that was asked about
    met: Arc<AtomicBool>,
}

impl Pattern {
    /// `RE=TYPE`, as `--tensor-type` takes it.
    pub fn flag(text: &str) -> anyhow::Result<Pattern> {
        let (re, ty) = text.rsplit_once('=').with_context(|| format!("{text:?}: expected RE=TYPE"))?;
        Pattern::new(re, ty, text)
    }

    /// As it was given: `RE=TYPE`, or the line of a file.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Whether it has matched a tensor so far, even if one before it went first.
    pub fn met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }

    fn new(re: &str, ty: &str, said: &str) -> anyhow::Result<Pattern> {
        let regex = RegexBuilder::new(re).case_insensitive(true).build();
        let regex = regex.map_err(|e| anyhow::anyhow!("pattern {re:?}: {e}"))?;
        let ty = match ty.to_lowercase().as_str() {
            "keep" => None,
            _ => Some(BlockType::parse(ty).with_context(|| format!("type {ty:?}: expected keep or one of {MIXES}"))?),
        };
        Ok(Pattern { regex, ty, said: said.into(), met: Arc::default() })
    }

    /// The lines `PATTERN TYPE` of a policy file; `#` begins a comment.
    pub fn file(text: &str) -> anyhow::Result<Vec<Pattern>> {
        let mut out = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            match words[..] {
                [] => {}
                [re, ty] => {
                    let said = format!("line {}: {re} {ty}", i + 1);
                    out.push(Pattern::new(re, ty, &said).with_context(|| format!("line {}", i + 1))?);
                }
                _ => bail!("line {}: expected PATTERN TYPE, found {} words", i + 1, words.len()),
            }
        }
        ensure!(!out.is_empty(), "no line with PATTERN TYPE in it");
        Ok(out)
    }

    fn matches(&self, names: [&str; 2]) -> anyhow::Result<bool> {
        for name in names {
            if self.matches_one(name)? {
                self.met.store(true, Ordering::Relaxed);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn matches_one(&self, name: &str) -> anyhow::Result<bool> {
        self.regex.is_match(name).map_err(|e| anyhow::anyhow!("pattern {}: {e}", self.regex.as_str()))
    }
}

/// The first pattern that matches either name: its type, or `Some(None)` for `keep`. All of them are asked, so that each
/// knows whether it matches anything at all ([`Pattern::met`]).
pub fn by_pattern(patterns: &[Pattern], a: &str, b: &str) -> anyhow::Result<Option<Option<BlockType>>> {
    let mut first = None;
    for p in patterns {
        if p.matches([a, b])? {
            first = first.or(Some(p.ty));
        }
    }
    Ok(first)
}

/// What llama.cpp's rules ask about a model.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// layers
    pub layers: usize,
    /// the embedding is the output matrix
    pub tied: bool,
    /// what llama.cpp takes for a 70B: a qwen2 of 80 layers, or a llama of 80 whose key-value heads are shared
    pub is_70b: bool,
}

impl Model {
    /// From a GGUF file's metadata; `tied` where the model has no output matrix of its own.
    pub fn read(meta: &Meta, tied: bool) -> Model {
        let arch = meta.str("general.architecture").unwrap_or("");
        let key = |k: &str| meta.uint(&format!("{arch}.{k}"));
        let layers = key("block_count").unwrap_or(0) as usize;
        let heads = key("attention.head_count");
        let shared = key("attention.head_count_kv").or(heads) != heads;
        Model { layers, tied, is_70b: layers == 80 && (arch == "qwen2" || arch == "llama" && shared) }
    }
}

/// The type of a matrix by llama.cpp's rules, before its row length is looked at. `columns` is that length.
pub fn by_mix(mix: Mix, model: &Model, gguf_name: &str, columns: u64) -> Option<BlockType> {
    let base = mix.base()?;
    let float = base.is_float();
    if float {
        return Some(base);
    }
    if gguf_name == "output.weight" || (model.tied && gguf_name == "token_embd.weight") {
        let whole = columns.is_multiple_of(256);
        return Some(if !whole || base == BlockType::Q8_0 { BlockType::Q8_0 } else { BlockType::Q6_K });
    }
    let part = gguf_name.rsplit('.').nth(1).unwrap_or("");
    let raised = names::layer_of(gguf_name).is_some_and(|l| mix.raises(l, model.layers));
    Some(match part {
        "attn_v" | "attn_qkv" | "ffn_down" if raised => BlockType::Q6_K,
        "attn_v" | "attn_qkv" if model.is_70b && base == BlockType::Q4_K => BlockType::Q5_K,
        _ => base,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::meta::Value;

    const LLAMA: Model = Model { layers: 22, tied: false, is_70b: false };

    #[test]
    fn q4_k_m_raises_what_llama_cpp_raises() {
        let pick = |name: &str| by_mix(Mix::Q4KM, &LLAMA, name, 2048).unwrap();
        let raised: Vec<usize> =
            (0..22).filter(|l| pick(&format!("blk.{l}.ffn_down.weight")) == BlockType::Q6_K).collect();
        assert_eq!(raised, [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
        assert_eq!(pick("blk.4.attn_v.weight"), BlockType::Q6_K);
        assert_eq!(pick("blk.4.attn_q.weight"), BlockType::Q4_K);
        assert_eq!(pick("blk.4.attn_qkv.weight"), BlockType::Q6_K);
        assert_eq!(pick("blk.5.attn_qkv.weight"), BlockType::Q4_K);
        assert_eq!(pick("output.weight"), BlockType::Q6_K);
        assert_eq!(pick("token_embd.weight"), BlockType::Q4_K);
        let tied = Model { tied: true, ..LLAMA };
        assert_eq!(by_mix(Mix::Q4KM, &tied, "token_embd.weight", 2048), Some(BlockType::Q6_K));
        assert_eq!(by_mix(Mix::Plain(BlockType::Q8_0), &tied, "token_embd.weight", 2048), Some(BlockType::Q8_0));
        assert_eq!(by_mix(Mix::Q5KM, &LLAMA, "output.weight", 160), Some(BlockType::Q8_0));
        let big = Model { layers: 80, tied: false, is_70b: true };
        assert_eq!(by_mix(Mix::Q4KM, &big, "blk.11.attn_v.weight", 8192), Some(BlockType::Q5_K));
    }

    #[test]
    fn what_llama_cpp_takes_for_a_70b_are_qwen2_and_shared_heads_in_80_layers() {
        let is_70b = |arch: &str, layers: u32, heads: [Option<u32>; 2]| {
            let [q, kv] = heads;
            let key = |k: &str, v: u32| (format!("{arch}.{k}"), Value::U32(v));
            let mut entries = vec![("general.architecture".into(), Value::Str(arch.into()))];
            entries.push(key("block_count", layers));
            entries.extend(q.map(|n| key("attention.head_count", n)));
            entries.extend(kv.map(|n| key("attention.head_count_kv", n)));
            Model::read(&Meta { entries }, false).is_70b
        };
        assert!(is_70b("llama", 80, [Some(64), Some(8)]) && is_70b("llama", 80, [Some(4), Some(2)]));
        assert!(is_70b("qwen2", 80, [Some(64), Some(8)]) && is_70b("qwen2", 80, [Some(64), Some(64)]));
        assert!(!is_70b("llama", 80, [Some(64), Some(64)]) && !is_70b("llama", 80, [Some(64), None]));
        assert!(!is_70b("llama", 32, [Some(32), Some(8)]) && !is_70b("qwen3", 80, [Some(64), Some(8)]));
    }

    #[test]
    fn policies_pick_what_their_names_say() {
        use Policy::*;
        let name = |l: usize, part: &str| format!("model.layers.{l}.{part}.weight");
        let q8k128 = |p: Policy, n: &str| by_policy(p, n) == BlockType::Q8K128;
        for qkv in ["self_attn.qkv_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"] {
            let layers = |p: Policy| (0..6).filter(|l| q8k128(p, &name(*l, qkv))).count();
            assert_eq!([Off, Layer0Qkv, EarlyQkv, Qkv, Attn, Q8k, All].map(layers), [0, 1, 4, 6, 6, 6, 6]);
        }
        let o = |p: Policy| q8k128(p, &name(5, "self_attn.o_proj"));
        assert_eq!([Off, Qkv, Attn, Q8k, All].map(o), [false, false, true, true, true]);
        let down = |p: Policy| by_policy(p, &name(5, "mlp.down_proj"));
        assert_eq!([Off, Attn, Q8k].map(down), [BlockType::Q4_K; 3]);
        assert_eq!(down(All), BlockType::Q8K128);
        assert_eq!(by_policy(Off, "lm_head.weight"), BlockType::Q8_K);
        assert_eq!(by_policy(All, "some.matrix.weight"), BlockType::Q8K128);
        assert_eq!(by_policy(Attn, "some.matrix.weight"), BlockType::Q8_K);
    }

    #[test]
    fn patterns_match_either_name_and_the_first_counts() {
        let p = Pattern::file("# a study\nattn_v  q6_k # values\nself_attn keep\n").unwrap();
        let v = by_pattern(&p, "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight").unwrap();
        assert_eq!(v, Some(Some(BlockType::Q6_K)));
        let q = by_pattern(&p, "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight").unwrap();
        assert_eq!(q, Some(None));
        assert_eq!(by_pattern(&p, "output.weight", "lm_head.weight").unwrap(), None);
        let p = Pattern::file("attn keep\nattn_q q8_0\nfoo q4_0\n").unwrap();
        by_pattern(&p, "blk.0.attn_q.weight", "x").unwrap();
        assert_eq!(
            p.iter().map(Pattern::met).collect::<Vec<_>>(),
            [true, true, false],
            "one that came too late has matched"
        );
        assert_eq!(p[2].said(), "line 3: foo q4_0");
        for bad in ["", "a b c", "( q4_k", "x q9"] {
            assert!(Pattern::file(bad).is_err(), "{bad}");
        }
        assert!(Pattern::flag("attn_v").is_err());
    }
}

//! Which type each tensor gets: llama.cpp's mixes for GGUF, nibble's policies for packed files, and patterns of one's own.
//!
//! A tensor is known by both its names, GGUF's and Hugging Face's; a pattern may match either.

use crate::blocks::BlockType;
use crate::formats::meta::Meta;
pub use crate::formats::mix::{Mix, that_fits};
use crate::formats::mix::{Part, Place};
use crate::formats::names;
use crate::formats::policy::{Group, Policy, place};
use anyhow::{Context, bail, ensure};
use fancy_regex::{Regex, RegexBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The names `Mix::parse` takes, for help and messages.
pub const MIXES: &str = "copy, f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q5_k, q5_1, q5_0, q4_k_m, q4_k_s, q4_k, q4_1, q4_0, iq4_nl, \
     iq4_xs, mxfp4, mxfp4_moe, nvfp4, q3_k_l, q3_k_m, q3_k_s, q3_k, iq3_m, iq3_s, iq3_xs, iq3_xxs, q2_k, q2_k_s, q2_0, iq2_m, iq2_s, \
     iq2_xs, iq2_xxs, tq2_0, tq1_0, iq1_m, iq1_s, q1_0; packed: q8k128, q8k, q6k, q4k";

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
#[derive(Clone, Debug)]
pub struct Model {
    /// layers
    pub layers: usize,
    /// the embedding is the output matrix
    pub tied: bool,
    /// what llama.cpp takes for a 70B: a qwen2 of 80 layers, or a llama of 80 whose key-value heads are shared
    pub is_70b: bool,
    /// heads to a key-value head
    pub shared: u64,
    /// experts of a layer, 0 where there are none
    pub experts: u64,
    /// the layers that have values, in order: of these, not of all layers, mixes count the first and the last
    pub values: Vec<usize>,
}

impl Model {
    /// From a GGUF file's metadata and the names of its tensors.
    pub fn read<'a>(meta: &Meta, tensors: impl Iterator<Item = &'a str>) -> Model {
        let arch = meta.str("general.architecture").unwrap_or("");
        let key = |k: &str| meta.uint(&format!("{arch}.{k}"));
        // heads may be counted for each layer; llama.cpp asks the first
        let first = |k: &str| key(k).or_else(|| meta.uints(&format!("{arch}.{k}"))?.first().copied());
        let layers = key("block_count").unwrap_or(0) as usize;
        let heads = first("attention.head_count");
        let kv_heads = first("attention.head_count_kv").or(heads);
        let (mut tied, mut values) = (true, Vec::new());
        for name in tensors {
            tied &= name != OUTPUT;
            if Part::of(name) == Part::Value && name.ends_with(".weight") {
                values.extend(names::layer_of(name));
            }
        }
        values.sort_unstable();
        values.dedup();
        Model {
            layers,
            tied,
            is_70b: layers == 80 && (arch == "qwen2" || arch == "llama" && kv_heads != heads),
            shared: heads.unwrap_or(0).checked_div(kv_heads.unwrap_or(0)).unwrap_or(0),
            experts: key("expert_count").unwrap_or(0),
            values,
        }
    }

    /// A tensor's number among its kind: of values among those of the layers that have any, of others the layer's.
    fn index(&self, part: Part, gguf_name: &str) -> Option<(usize, usize)> {
        let layer = names::layer_of(gguf_name)?;
        match part {
            Part::Value => Some((self.values.binary_search(&layer).ok()?, self.values.len())),
            _ => Some((layer, self.layers)),
        }
    }
}

/// The name of the output matrix.
const OUTPUT: &str = "output.weight";

/// The type of a matrix by llama.cpp's rules, before its row length is looked at. `shape` is fastest first; `importances`:
/// whether those of the model's columns are known.
pub fn by_mix(mix: Mix, model: &Model, gguf_name: &str, shape: &[u64], importances: bool) -> Option<BlockType> {
    let base = mix.base()?;
    if base.is_float() {
        return Some(base);
    }
    let part = Part::of(gguf_name);
    if gguf_name == OUTPUT || (model.tied && part == Part::Embedding) {
        let whole = shape.first().is_some_and(|columns| columns.is_multiple_of(256));
        return if whole { mix.output() } else { Some(BlockType::Q8_0) };
    }
    let ty = match mix {
        Mix::Recipe(recipe) => recipe.pick(&Place {
            part,
            index: model.index(part, gguf_name),
            shared: model.shared,
            experts: model.experts,
            stacked: shape.get(2).is_some_and(|n| *n > 1),
            importances,
        }),
        Mix::Plain(_) | Mix::Copy => base,
    };
    use BlockType::*;
    // the mixes of these have said all there is to say of values and keys
    let low = matches!(base, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S);
    Some(match (part, ty) {
        (Part::Value | Part::Key, _) if model.experts == 8 && !low => Q8_0,
        (Part::Value, Q3_K | Q4_K) if model.is_70b && !low => Q5_K,
        _ => ty,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::meta::Value;
    use crate::formats::mix::RECIPES;

    /// A llama of so many layers and heads to a key-value head, with an output matrix of its own.
    fn llama(layers: usize, shared: u64) -> Model {
        Model { layers, tied: false, is_70b: false, shared, experts: 0, values: (0..layers).collect() }
    }

    fn mix(name: &str) -> Mix {
        Mix::parse(name).unwrap()
    }

    #[test]
    fn every_name_in_the_list_is_one() {
        let mut found = 0;
        for name in MIXES.split([',', ';', ':']).map(str::trim).filter(|n| *n != "packed") {
            assert!(Mix::parse(name).is_some(), "{name}");
            found += 1;
        }
        let stored = BlockType::ALL.iter().filter(|t| t.is_stored()).count();
        // of types that are mixes too there is one name
        let mixes = RECIPES.iter().filter(|r| BlockType::parse(r.name).is_none()).count();
        assert_eq!(found, stored + mixes + ["copy", "q6k", "q4k"].len());
    }

    #[test]
    fn q4_k_m_raises_what_llama_cpp_raises() {
        let model = llama(22, 1);
        let pick = |name: &str| by_mix(mix("q4_k_m"), &model, name, &[2048, 64], false).unwrap();
        let raised: Vec<usize> =
            (0..22).filter(|l| pick(&format!("blk.{l}.ffn_down.weight")) == BlockType::Q6_K).collect();
        assert_eq!(raised, [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
        assert_eq!(pick("blk.4.attn_v.weight"), BlockType::Q6_K);
        assert_eq!(pick("blk.4.attn_q.weight"), BlockType::Q4_K);
        assert_eq!(pick("blk.4.attn_qkv.weight"), BlockType::Q6_K);
        assert_eq!(pick("blk.5.attn_qkv.weight"), BlockType::Q4_K);
        assert_eq!(pick("output.weight"), BlockType::Q6_K);
        assert_eq!(pick("token_embd.weight"), BlockType::Q4_K);
        let tied = Model { tied: true, ..model };
        let embedding = |name: &str| by_mix(mix(name), &tied, "token_embd.weight", &[2048, 64], false);
        assert_eq!(embedding("q4_k_m"), Some(BlockType::Q6_K));
        assert_eq!(embedding("q8_0"), Some(BlockType::Q8_0));
        assert_eq!(embedding("iq2_m"), Some(BlockType::Q5_K));
        assert_eq!(by_mix(mix("q5_k_m"), &llama(22, 1), "output.weight", &[160, 64], false), Some(BlockType::Q8_0));
        assert_eq!(by_mix(mix("iq2_xs"), &llama(22, 1), "output.weight", &[160, 64], false), Some(BlockType::Q8_0));
    }

    #[test]
    fn models_of_70b_and_of_eight_experts_keep_more_of_their_values() {
        let big = Model { is_70b: true, ..llama(80, 8) };
        let experts = Model { experts: 8, ..llama(32, 4) };
        use BlockType::*;
        for (name, of_70b, of_experts) in [
            ("q4_k_m", Q5_K, [Q8_0, Q8_0]),
            ("q4_k", Q5_K, [Q8_0, Q8_0]),
            ("q3_k_s", Q5_K, [Q8_0, Q8_0]),
            ("q2_k", Q5_K, [Q8_0, Q8_0]),
            ("q4_0", Q4_0, [Q8_0, Q8_0]),
            ("iq4_xs", Q5_K, [Q8_0, Q8_0]),
            ("iq2_xs", Q4_K, [Q4_K, Q4_K]),
            ("iq1_m", Q4_K, [Q4_K, Q4_K]),
        ] {
            let pick = |m: &Model, part: &str| {
                by_mix(mix(name), m, &format!("blk.11.{part}.weight"), &[8192, 64], true).unwrap()
            };
            assert_eq!(pick(&big, "attn_v"), of_70b, "{name}");
            assert_eq!([pick(&experts, "attn_v"), pick(&experts, "attn_k")], of_experts, "{name}");
        }
        let moe = |shape: &[u64]| by_mix(mix("mxfp4_moe"), &experts, "blk.0.ffn_up_exps.weight", shape, false).unwrap();
        assert_eq!([moe(&[2880, 64, 32]), moe(&[2880, 64])], [MXFP4, Q8_0]);
        assert_eq!(by_mix(mix("mxfp4_moe"), &experts, "token_embd.weight", &[2880, 64], false), Some(Q8_0));
    }

    #[test]
    fn the_first_values_are_those_of_the_first_layers_that_have_any() {
        let meta = Meta { entries: vec![("general.architecture".into(), Value::Str("x".into()))] };
        let names: Vec<String> = [9, 3, 5].iter().map(|l| format!("blk.{l}.attn_v.weight")).collect();
        let model = Model::read(&meta, names.iter().map(String::as_str).chain(["blk.0.attn_v.bias"]));
        assert_eq!((model.values.clone(), model.tied), (vec![3, 5, 9], true));
        let pick = |l: usize| by_mix(mix("q3_k_m"), &model, &format!("blk.{l}.attn_v.weight"), &[256, 1], false);
        assert_eq!([3, 5, 9].map(pick), [BlockType::Q5_K, BlockType::Q5_K, BlockType::Q4_K].map(Some));
    }

    #[test]
    fn what_llama_cpp_takes_for_a_70b_are_qwen2_and_shared_heads_in_80_layers() {
        let read = |arch: &str, layers: u32, heads: [Option<u32>; 2]| {
            let [q, kv] = heads;
            let key = |k: &str, v: u32| (format!("{arch}.{k}"), Value::U32(v));
            let mut entries = vec![("general.architecture".into(), Value::Str(arch.into()))];
            entries.push(key("block_count", layers));
            entries.extend(q.map(|n| key("attention.head_count", n)));
            entries.extend(kv.map(|n| key("attention.head_count_kv", n)));
            Model::read(&Meta { entries }, ["output.weight"].into_iter())
        };
        let is_70b = |arch: &str, layers: u32, heads: [Option<u32>; 2]| read(arch, layers, heads).is_70b;
        assert!(is_70b("llama", 80, [Some(64), Some(8)]) && is_70b("llama", 80, [Some(4), Some(2)]));
        assert!(is_70b("qwen2", 80, [Some(64), Some(8)]) && is_70b("qwen2", 80, [Some(64), Some(64)]));
        assert!(!is_70b("llama", 80, [Some(64), Some(64)]) && !is_70b("llama", 80, [Some(64), None]));
        assert!(!is_70b("llama", 32, [Some(32), Some(8)]) && !is_70b("qwen3", 80, [Some(64), Some(8)]));
        let shared = |heads| read("llama", 2, heads).shared;
        assert_eq!([shared([Some(64), Some(8)]), shared([Some(6), None]), shared([None, None])], [8, 1, 0]);
        assert_eq!(shared([Some(6), Some(0)]), 0);
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

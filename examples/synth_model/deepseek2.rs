//! The Hugging Face form of DeepSeek V2 and, as the larger form, V3.

use super::hf::{Whole, of_stack};
use super::{Model, Tensor, write_tensor};
use anyhow::Result;
use isobit::internals::formats::synthetic::{GLM_SCALE, Shape};
use serde_json::{Value, json};

/// How the name of the tensor ends that holds keys and values of all heads.
pub const BOTH: &str = ".kv_b_proj.weight";

/// YaRN's mscale and mscale_all_dim.
pub const MSCALE: f64 = 0.8;

/// The name of a part of attention.
pub fn name_of(what: &str) -> Option<&'static str> {
    Some(match what {
        "attn_q_a" => "self_attn.q_a_proj",
        "attn_q_a_norm" => "self_attn.q_a_layernorm",
        "attn_q_b" => "self_attn.q_b_proj",
        "attn_kv_a_mqa" => "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm" => "self_attn.kv_a_layernorm",
        "attn_k_b" | "attn_v_b" => "self_attn.kv_b_proj",
        _ => return None,
    })
}

/// Puts the matrices of all heads into the tensor of both: of keys, `[head][rank][nope]` in a GGUF file, then of values, each
/// behind its head's keys.
pub fn put(out: &mut Vec<Whole>, name: String, t: &Tensor) {
    let parts: Vec<Tensor> = (0..t.stack).map(|i| of_stack(t, i)).collect();
    match out.last_mut().filter(|keys| keys.name == name) {
        Some(keys) => {
            keys.dims[0] += t.rows;
            keys.parts = std::mem::take(&mut keys.parts).into_iter().zip(parts).flat_map(|(a, b)| [a, b]).collect();
        }
        None => out.push(Whole { name, dims: vec![t.stack * t.cols, t.rows / t.stack], parts }),
    }
}

/// The rows of a head's keys, whose columns they are in a GGUF file, or of its values.
pub fn rows(model: &Model, t: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_tensor(&mut bytes, t, model, |row| row)?;
    if t.name.ends_with("attn_v_b.weight") {
        return Ok(bytes);
    }
    let size = bytes.len() / (t.rows * t.cols);
    let at = |r: usize, c: usize| (r * t.cols + c) * size;
    let turned = (0..t.cols).flat_map(|c| (0..t.rows).map(move |r| at(r, c)));
    Ok(turned.flat_map(|at| bytes[at..at + size].to_vec()).collect())
}

/// What its config.json says besides.
pub fn config(s: &Shape, c: &mut Value) {
    let (l, e, (groups, kept)) = (s.latent, s.experts, s.groups());
    c["model_type"] = if s.larger { "deepseek_v3" } else { "deepseek_v2" }.into();
    c["num_key_value_heads"] = s.heads.into();
    c["q_lora_rank"] = if l.query_rank > 0 { l.query_rank.into() } else { Value::Null };
    c["kv_lora_rank"] = l.rank.into();
    c["qk_nope_head_dim"] = l.nope.into();
    c["qk_rope_head_dim"] = l.rope.into();
    c["v_head_dim"] = l.value.into();
    c["attention_bias"] = false.into();
    c["n_shared_experts"] = (e.shared / e.width.max(1)).into();
    c["first_k_dense_replace"] = e.dense.into();
    c["routed_scaling_factor"] = f64::from(GLM_SCALE).into();
    c["norm_topk_prob"] = s.larger.into();
    c["n_group"] = groups.into();
    c["topk_group"] = kept.into();
    let how = match (s.larger, groups) {
        (true, _) => json!(["noaux_tc", "sigmoid"]),
        (false, 1) => json!(["greedy", "softmax"]),
        (false, _) => json!(["group_limited_greedy", "softmax"]),
    };
    (c["topk_method"], c["scoring_func"]) = (how[0].clone(), how[1].clone());
}

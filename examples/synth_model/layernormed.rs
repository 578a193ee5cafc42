//! What Hugging Face directories of models with layer norms have otherwise than a llama's: names, fields, and how queries,
//! keys and values lie.

use super::{Arch, Model, Tensor};
use serde_json::{Value, json};

/// Names inside a layer by GGUF's, and those outside (without a number), the layers' prefix first.
type Names = (&'static str, &'static [(&'static str, &'static str)]);

const LLAMA: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Names that come before [`LLAMA`]'s.
fn own(arch: Arch) -> Names {
    match arch {
        Arch::StarCoder2 => ("model.layers.", &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")]),
        Arch::Phi2 => (
            "model.layers.",
            &[
                ("output_norm", "model.final_layernorm"),
                ("attn_output", "self_attn.dense"),
                ("ffn_up", "mlp.fc1"),
                ("ffn_down", "mlp.fc2"),
            ],
        ),
        Arch::Gpt2 => (
            "transformer.h.",
            &[
                ("token_embd", "transformer.wte"),
                ("position_embd", "transformer.wpe"),
                ("output_norm", "transformer.ln_f"),
                ("attn_norm", "ln_1"),
                ("attn_qkv", "attn.c_attn"),
                ("attn_output", "attn.c_proj"),
                ("ffn_norm", "ln_2"),
                ("ffn_up", "mlp.c_fc"),
                ("ffn_down", "mlp.c_proj"),
            ],
        ),
        Arch::Falcon => (
            "transformer.h.",
            &[
                ("token_embd", "transformer.word_embeddings"),
                ("output_norm", "transformer.ln_f"),
                ("attn_norm_2", "ln_attn"),
                ("attn_qkv", "self_attention.query_key_value"),
                ("attn_output", "self_attention.dense"),
                ("ffn_up", "mlp.dense_h_to_4h"),
                ("ffn_down", "mlp.dense_4h_to_h"),
            ],
        ),
        _ => ("model.layers.", &[]),
    }
}

/// The tensors under their names here.
pub fn named(model: &Model, list: Vec<Tensor>) -> Vec<(String, Tensor)> {
    let (arch, larger) = (model.shape.arch, model.shape.larger);
    let (prefix, own) = own(arch);
    let find = |what: &str| match (arch, what) {
        (Arch::Falcon, "attn_norm") => Some(if larger { "ln_mlp" } else { "input_layernorm" }),
        _ => own.iter().chain(LLAMA).find(|(gguf, _)| *gguf == what).map(|(_, hf)| *hf),
    };
    let mut out = Vec::new();
    for t in list {
        let name = t.name.clone();
        let Some((what, suffix)) = name.rsplit_once('.') else { continue };
        let Some((layer, what)) = what.strip_prefix("blk.").and_then(|part| part.split_once('.')) else {
            out.extend(find(what).map(|hf| (format!("{hf}.{suffix}"), t)));
            continue;
        };
        if arch == Arch::StableLm && what.ends_with("_norm") && what.starts_with("attn_") && what != "attn_norm" {
            // a tensor for each head
            let side = if what == "attn_q_norm" { "q" } else { "k" };
            for head in 0..t.rows {
                let own = format!("{prefix}{layer}.self_attn.{side}_layernorm.norms.{head}.{suffix}");
                let first = (head * t.cols) as u64;
                out.push((own, Tensor { name: name.clone(), values: None, columns: None, first, rows: 1, ..t }));
            }
            continue;
        }
        out.extend(find(what).map(|hf| (format!("{prefix}{layer}.{hf}.{suffix}"), t)));
    }
    out
}

/// Whether a tensor is stored with its rows as columns.
pub fn is_transposed(model: &Model, t: &Tensor) -> bool {
    let matrices = ["attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"];
    model.shape.arch == Arch::Gpt2 && matrices.iter().any(|m| t.name.ends_with(m))
}

/// Row of the GGUF matrix that holds row `row` here: queries, keys and values of Falcon's larger models are in groups.
pub fn source_row(model: &Model, t: &Tensor, row: usize) -> usize {
    let s = &model.shape;
    if !(s.arch == Arch::Falcon && s.larger && t.name.ends_with("attn_qkv.weight")) {
        return row;
    }
    let [heads, kv, hd] = [s.heads, s.kv_heads, s.head_dim].map(|n| n as usize);
    let (head, e) = (row / hd, row % hd);
    let (group, place) = (head / (heads / kv + 2), head % (heads / kv + 2));
    let head = match place.checked_sub(heads / kv) {
        None => group * (heads / kv) + place,
        Some(0) => heads + group,
        Some(_) => heads + kv + group,
    };
    head * hd + e
}

/// Turns a config with a llama's fields into one of these.
pub fn config(model: &Model, c: &mut Value) {
    let s = &model.shape;
    let Some(o) = c.as_object_mut() else { return };
    o.remove("rms_norm_eps");
    match s.arch {
        Arch::StarCoder2 => {
            o.extend(fields(json!({"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": true,
                "sliding_window": if s.window > 0 { json!(s.window) } else { Value::Null }})));
        }
        Arch::StableLm => {
            o.extend(fields(json!({"layer_norm_eps": 1e-5, "use_qkv_bias": !s.larger, "qk_layernorm": s.larger,
                "use_parallel_residual": s.larger, "partial_rotary_factor": model.rotary})));
        }
        Arch::CommandR | Arch::Cohere2 => {
            o.extend(fields(json!({"layer_norm_eps": 1e-5, "logit_scale": f64::from(s.arch.scales()[0].1)})));
            if s.arch == Arch::CommandR {
                o.extend(fields(json!({"model_type": "cohere", "use_qk_norm": s.larger})));
            } else {
                o.insert("sliding_window".into(), s.window.into());
            }
        }
        Arch::Phi2 => {
            o.extend(fields(json!({"model_type": "phi", "hidden_act": "gelu_new", "layer_norm_eps": 1e-5,
                "partial_rotary_factor": model.rotary})));
        }
        Arch::Gpt2 => {
            for (llama, own) in [
                ("hidden_size", "n_embd"),
                ("num_attention_heads", "n_head"),
                ("num_hidden_layers", "n_layer"),
                ("max_position_embeddings", "n_positions"),
                ("intermediate_size", "n_inner"),
            ] {
                if let Some(v) = o.remove(llama) {
                    o.insert(own.into(), v);
                }
            }
            for key in ["hidden_act", "num_key_value_heads", "rope_theta", "rope_scaling"] {
                o.remove(key);
            }
            o.extend(fields(json!({"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})));
        }
        Arch::Falcon => {
            o.remove("num_key_value_heads");
            o.extend(fields(json!({"activation": "gelu", "layer_norm_epsilon": 1e-5, "ffn_hidden_size": s.ffn,
                "num_kv_heads": s.kv_heads, "new_decoder_architecture": s.larger, "multi_query": true,
                "parallel_attn": true, "bias": false, "alibi": false})));
        }
        _ => {}
    }
}

fn fields(v: Value) -> serde_json::Map<String, Value> {
    if let Value::Object(o) = v { o } else { serde_json::Map::new() }
}

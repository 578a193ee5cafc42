//! The Hugging Face form of Gemma 4's text.

use isobit::internals::formats::synthetic::Shape;
use serde_json::{Value, json};

/// The whole name of a tensor that others do not have, or have under another: `layer` and what it is there, with its suffix.
pub fn name_of(layer: &str, what: &str, suffix: &str) -> Option<String> {
    let own = match (what, suffix) {
        ("ffn_gate_inp", "weight") => "router.proj.weight",
        ("ffn_gate_inp", _) => "router.scale",
        ("ffn_gate_exps" | "ffn_up_exps", _) => "experts.gate_up_proj",
        ("ffn_down_exps", "weight") => "experts.down_proj",
        ("ffn_down_exps", _) => "router.per_expert_scale",
        ("pre_ffw_norm_2", _) => "pre_feedforward_layernorm_2.weight",
        ("post_ffw_norm_1", _) => "post_feedforward_layernorm_1.weight",
        ("post_ffw_norm_2", _) => "post_feedforward_layernorm_2.weight",
        ("inp_gate", _) => "per_layer_input_gate.weight",
        ("proj", _) => "per_layer_projection.weight",
        ("post_norm", _) => "post_per_layer_input_norm.weight",
        ("layer_output_scale", _) => "layer_scalar",
        _ => return None,
    };
    Some(format!("model.layers.{layer}.{own}"))
}

/// The same of one before the layers.
pub fn global(what: &str) -> Option<&'static str> {
    Some(match what {
        "per_layer_token_embd" => "model.embed_tokens_per_layer.weight",
        "per_layer_model_proj" => "model.per_layer_model_projection.weight",
        "per_layer_proj_norm" => "model.per_layer_projection_norm.weight",
        _ => return None,
    })
}

/// What its config.json says besides.
pub fn config(s: &Shape, c: &mut Value) {
    let (u, e) = (s.uneven, s.experts);
    let kinds = (0..s.layers).map(|l| if s.has_window(l) { "sliding_attention" } else { "full_attention" });
    c["model_type"] = "gemma4_text".into();
    c["hidden_activation"] = "gelu_pytorch_tanh".into();
    c["head_dim"] = u.head_dim.into();
    c["global_head_dim"] = s.head_dim.into();
    c["num_key_value_heads"] = u.kv_heads.into();
    c["attention_k_eq_v"] = u.equal.into();
    if u.equal {
        c["num_global_key_value_heads"] = s.kv_heads.into();
    }
    c["sliding_window"] = s.window.into();
    c["layer_types"] = kinds.collect::<Vec<_>>().into();
    c["num_kv_shared_layers"] = u.sharing.into();
    c["use_double_wide_mlp"] = (u.wider == 2).into();
    c["hidden_size_per_layer_input"] = u.embedding.into();
    c["vocab_size_per_layer_input"] = s.vocab.into();
    c["rope_parameters"] = json!({
        "full_attention": {"rope_type": "proportional", "rope_theta": s.arch.made_up_base(), "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}});
    for (key, v) in s.arch.scales() {
        c[*key] = f64::from(*v).into();
    }
    if e.count > 0 {
        c["enable_moe_block"] = true.into();
        c["num_experts"] = e.count.into();
        c["top_k_experts"] = e.used.into();
        c["moe_intermediate_size"] = e.width.into();
    }
    if let Some(c) = c.as_object_mut() {
        for key in ["rope_theta", "rope_scaling", "num_experts_per_tok"] {
            c.remove(key);
        }
    }
}

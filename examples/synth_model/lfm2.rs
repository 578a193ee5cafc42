//! The Hugging Face form of LFM2.

use super::Arch;
use isobit::internals::formats::synthetic::Shape;
use serde_json::{Value, json};

/// LFM2's name of what a layer has; `#` stands for an expert's number.
pub fn name_of(what: &str) -> Option<&'static str> {
    Some(match what {
        "attn_norm" => "operator_norm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_q_norm" => "self_attn.q_layernorm",
        "attn_k_norm" => "self_attn.k_layernorm",
        "attn_output" => "self_attn.out_proj",
        "shortconv.in_proj" => "conv.in_proj",
        "shortconv.conv" => "conv.conv",
        "shortconv.out_proj" => "conv.out_proj",
        "ffn_norm" => "ffn_norm",
        "ffn_gate" => "feed_forward.w1",
        "ffn_up" => "feed_forward.w3",
        "ffn_down" => "feed_forward.w2",
        "ffn_gate_inp" => "feed_forward.gate",
        "exp_probs_b" => "feed_forward.expert",
        "ffn_gate_exps" => "feed_forward.experts.#.w1",
        "ffn_up_exps" => "feed_forward.experts.#.w3",
        "ffn_down_exps" => "feed_forward.experts.#.w2",
        _ => return None,
    })
}

/// What config.json says of it.
pub fn config(s: &Shape, c: &mut Value) {
    c["architectures"] = json!([if s.arch == Arch::Lfm2 { "Lfm2ForCausalLM" } else { "Lfm2MoeForCausalLM" }]);
    let kind = |l: u32| if s.is_convolution(l) { "conv" } else { "full_attention" };
    c["layer_types"] = (0..s.layers).map(kind).collect::<Vec<_>>().into();
    c["norm_eps"] = c["rms_norm_eps"].take();
    c["conv_L_cache"] = 3.into();
    c["conv_bias"] = false.into();
    c["block_auto_adjust_ff_dim"] = false.into();
    c["block_ffn_dim_multiplier"] = 1.0.into();
    c["block_multiple_of"] = 256.into();
}

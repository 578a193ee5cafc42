//! The Hugging Face form of Mamba-2.

use super::Model;
use super::vocabulary::vocabulary;
use serde_json::{Value, json};

/// Mamba-2's name of a tensor.
pub fn name_of(gguf: &str) -> Option<String> {
    Some(match gguf {
        "token_embd.weight" => "backbone.embeddings.weight".into(),
        "output_norm.weight" => "backbone.norm_f.weight".into(),
        "output.weight" => "lm_head.weight".into(),
        _ => {
            let (layer, what) = gguf.strip_prefix("blk.")?.split_once('.')?;
            let own = match what {
                "attn_norm.weight" => "norm.weight",
                "ssm_in.weight" => "mixer.in_proj.weight",
                "ssm_conv1d.weight" => "mixer.conv1d.weight",
                "ssm_conv1d.bias" => "mixer.conv1d.bias",
                "ssm_dt.bias" => "mixer.dt_bias",
                "ssm_a" => "mixer.A_log",
                "ssm_d" => "mixer.D",
                "ssm_norm.weight" => "mixer.norm.weight",
                "ssm_out.weight" => "mixer.out_proj.weight",
                _ => return None,
            };
            format!("backbone.layers.{layer}.{own}")
        }
    })
}

/// Its config.json.
pub fn config(model: &Model, dtype: &str) -> Value {
    let (s, v) = (&model.shape, vocabulary(model.shape.arch, model.shape.vocab as usize));
    let most = model.most_step.map_or(json!({"__float__": "Infinity"}), Value::from);
    json!({
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "torch_dtype": dtype, "hidden_act": "silu",
        "hidden_size": s.dim, "num_hidden_layers": s.layers, "vocab_size": s.vocab, "head_dim": s.head_dim,
        "num_heads": s.delta.heads, "n_groups": s.delta.key_heads, "state_size": s.delta.size, "conv_kernel": 4,
        "expand": s.delta.heads * s.head_dim / s.dim, "chunk_size": 32, "use_bias": false, "use_conv_bias": true,
        "layer_norm_epsilon": 1e-5, "pad_vocab_size_multiple": 1, "time_step_limit": [0.0, most], "residual_in_fp32": true,
        "tie_word_embeddings": s.tied, "bos_token_id": v.bos, "eos_token_id": v.eos, "pad_token_id": v.eos,
    })
}

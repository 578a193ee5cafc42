//! The Hugging Face form of Gemma 3n's text.

use super::gemma4;
use isobit::internals::formats::synthetic::Shape;
use serde_json::{Value, json};

/// The whole name of a tensor that others do not have, or have under another: `layer` and what it is there.
pub fn name_of(layer: &str, what: &str) -> Option<String> {
    let own = match what {
        "altup_correct_scale" => "altup.correct_output_scale",
        "altup_correct_coef" => "altup.correction_coefs.weight",
        "altup_predict_coef" => "altup.prediction_coefs.weight",
        "altup_router" => "altup.modality_router.weight",
        "altup_router_norm" => "altup.router_norm.weight",
        "laurel_l" => "laurel.linear_left.weight",
        "laurel_r" => "laurel.linear_right.weight",
        "laurel_post_norm" => "laurel.post_laurel_norm.weight",
        "inp_gate" | "proj" | "post_norm" => return gemma4::name_of(layer, what, "weight"),
        _ => return None,
    };
    Some(format!("model.layers.{layer}.{own}"))
}

/// The same of one before the layers; `#` stands for a matrix's number.
pub fn global(what: &str) -> Option<&'static str> {
    Some(match what {
        "altup_proj" => "model.altup_projections.#.weight",
        "altup_unembd_proj" => "model.altup_unembed_projections.#.weight",
        _ => return None,
    })
}

/// What its config.json says besides.
pub fn config(s: &Shape, c: &mut Value) {
    let (u, (bounded, (share, _))) = (s.uneven, s.bounded());
    let kinds = (0..s.layers).map(|l| if s.has_window(l) { "sliding_attention" } else { "full_attention" });
    c["model_type"] = "gemma3n_text".into();
    c["hidden_activation"] = "gelu_pytorch_tanh".into();
    c["head_dim"] = s.head_dim.into();
    c["intermediate_size"] = (0..s.layers).map(|l| s.ffn_of(l)).collect::<Vec<_>>().into();
    c["sliding_window"] = s.window.into();
    c["layer_types"] = kinds.collect::<Vec<_>>().into();
    c["num_kv_shared_layers"] = u.sharing.into();
    c["hidden_size_per_layer_input"] = u.embedding.into();
    c["vocab_size_per_layer_input"] = s.vocab.into();
    c["laurel_rank"] = s.laurel_rank().into();
    c["altup_num_inputs"] = 4.into();
    c["activation_sparsity_pattern"] =
        (0..s.layers).map(|l| if l < bounded { share } else { 0.0 }).collect::<Vec<_>>().into();
    c["rope_parameters"] = json!({
        "full_attention": {"rope_type": "default", "rope_theta": s.arch.made_up_base()},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}});
    for (key, v) in s.arch.scales() {
        c[*key] = f64::from(*v).into();
    }
    if let Some(c) = c.as_object_mut() {
        for key in ["rope_theta", "rope_scaling"] {
            c.remove(key);
        }
    }
}

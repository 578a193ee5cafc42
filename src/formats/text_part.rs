//! The text model of a directory that has a model of images or of sound beside it, as those of Gemma 3 from 4B on, of Gemma 3n
//! and 4 and of Qwen3.5 have.
//!
//! `config.json` keeps what belongs to the text in `text_config`; its tensors are named `language_model.model.…` and
//! `language_model.lm_head.…`, or `model.language_model.…` as transformers writes them since version 5. Those of the images
//! and of sound (`vision_tower`, `multi_modal_projector`, `visual`, `audio_tower` and others) are left out. What is left looks
//! like a directory of the text alone.

use super::Tensor;
use serde_json::Value;

/// What the text's tensors begin with, and what they would without images.
const TEXT: [(&str, &str); 3] =
    [("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."), ("model.language_model.", "model.")];

/// What those of images and of sound begin with.
const IMAGES: [&str; 7] = [
    "vision_tower.",
    "multi_modal_projector.",
    "visual.",
    "audio_tower.",
    "embed_vision.",
    "embed_audio.",
    "vision_embedder.",
];

/// `model_type` of the whole, and that of its text.
const MODELS: [(&str, &str); 6] = [
    ("gemma3", "gemma3_text"),
    ("gemma3n", "gemma3n_text"),
    ("gemma4", "gemma4_text"),
    ("gemma4_unified", "gemma4_unified_text"),
    ("qwen3_5", "qwen3_5_text"),
    ("qwen3_5_moe", "qwen3_5_moe_text"),
];

/// Fields of the whole model that its text may go by.
const SHARED: [&str; 6] =
    ["bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "torch_dtype", "quantization_config"];

/// The config of the text, where the directory is one of these.
pub(super) fn config(whole: &Value) -> Option<Value> {
    let (_, own) = MODELS.iter().find(|(name, _)| whole["model_type"] == *name)?;
    let mut text = whole["text_config"].as_object()?.clone();
    text.entry("model_type").or_insert((*own).into());
    for key in SHARED {
        if let (Some(value), false) = (whole.get(key), text.contains_key(key)) {
            text.insert(key.into(), value.clone());
        }
    }
    Some(Value::Object(text))
}

/// The text's tensors, by the names that a model without images has.
pub(super) fn tensors(all: Vec<Tensor>) -> Vec<Tensor> {
    all.into_iter().filter_map(|t| Some(Tensor { name: name(&t.name)?, ..t })).collect()
}

/// The tensors of a checkpoint that is a model without its head, as those for vectors are (Qwen3-Embedding), by the names that
/// they have within the whole.
pub(super) fn with_prefix(mut all: Vec<Tensor>) -> Vec<Tensor> {
    let bare = |name: &str| ["embed_tokens.", "layers.", "norm."].iter().any(|part| name.starts_with(part));
    if all.iter().any(|t| t.name == "embed_tokens.weight") && !all.iter().any(|t| t.name.starts_with("model.")) {
        all.iter_mut().filter(|t| bare(&t.name)).for_each(|t| t.name.insert_str(0, "model."));
    }
    all
}

/// Of one tensor; `None` for one of the images. Any other stays as it is, for `models` to judge.
fn name(of: &str) -> Option<String> {
    if IMAGES.iter().any(|part| of.strip_prefix("model.").unwrap_or(of).starts_with(part)) {
        return None;
    }
    let text = TEXT.iter().find_map(|(from, to)| Some(format!("{to}{}", of.strip_prefix(from)?)));
    Some(text.unwrap_or_else(|| of.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_of_the_text_are_those_without_images() {
        for (from, to) in [
            ("language_model.model.layers.0.mlp.up_proj.weight", Some("model.layers.0.mlp.up_proj.weight")),
            ("model.language_model.norm.weight", Some("model.norm.weight")),
            ("language_model.lm_head.weight", Some("lm_head.weight")),
            ("lm_head.weight", Some("lm_head.weight")),
            ("vision_tower.vision_model.post_layernorm.bias", None),
            ("model.visual.blocks.0.attn.qkv.weight", None),
            ("model.multi_modal_projector.mm_soft_emb_norm.weight", None),
            ("model.audio_tower.x", None),
            ("other_tower.x", Some("other_tower.x")),
        ] {
            assert_eq!(name(from).as_deref(), to, "{from}");
        }
    }

    #[test]
    fn the_text_has_its_own_fields_and_what_it_shares() {
        let whole = json!({"model_type": "gemma3", "eos_token_id": [1, 106], "hidden_size": 7, "vision_config": {},
            "text_config": {"hidden_size": 2560, "bos_token_id": 2}, "bos_token_id": 3});
        let text =
            json!({"hidden_size": 2560, "bos_token_id": 2, "model_type": "gemma3_text", "eos_token_id": [1, 106]});
        assert_eq!(config(&whole), Some(text));
        for other in [json!({"model_type": "gemma3"}), json!({"model_type": "llava", "text_config": {}}), json!(3)] {
            assert_eq!(config(&other), None);
        }
        assert_eq!(config(&json!({"model_type": "gemma3", "text_config": 3})), None);
    }
}

//! Directories of encoders: BertModel, RobertaModel, XLMRobertaModel, ModernBertModel, Gemma3TextModel where it sees both ways,
//! and NomicBertModel as transformers has it or as nomic's own code.
//!
//! Their tensors get the names that a llama's have, with those of their own beside them (`names`); a prefix (`bert.`) goes.
//! What makes something else of hidden states than vectors by pooling (`pooler`, `cls`, `lm_head`; a ModernBERT's `head` and
//! `decoder`) is left out. A RoBERTa counts positions from the padding token's id plus one, as fairseq did: the rows of its table
//! before that, which no token has, are left out, as llama.cpp's converter does, and `max_position_embeddings` is what remains.
//!
//! What sentence-transformers says of a model's vectors, in files of its own beside any model (`modules.json`,
//! `1_Pooling/config.json`), goes into the config as `pooling_type`.

use super::error::{FormatError, quote};
use super::source::Source;
use super::{Tensor, dense};
use serde_json::Value;

/// What names may begin with.
const PREFIXES: [&str; 5] = ["bert.", "nomic_bert.", "model.", "roberta.", "xlm_roberta."];

/// Names outside the layers, without `.weight` or `.bias`, and what they are here.
const GLOBAL: [(&str, &str); 10] = [
    ("embed_tokens", "model.embed_tokens"),
    ("norm", "model.norm"),
    ("embeddings.word_embeddings", "model.embed_tokens"),
    ("embeddings.position_embeddings", "model.embed_positions"),
    ("embeddings.token_type_embeddings", "model.embed_types"),
    ("embeddings.LayerNorm", "model.embed_norm"),
    ("emb_ln", "model.embed_norm"),
    ("embeddings.tok_embeddings", "model.embed_tokens"),
    ("embeddings.norm", "model.embed_norm"),
    ("final_norm", "model.norm"),
];

/// What a layer's names begin with, before its number.
const LAYERS: [&str; 3] = ["encoder.layer.", "encoder.layers.", "layers."];

/// Names inside a layer.
const LAYER: [(&str, &str); 21] = [
    ("attention.self.query", "self_attn.q_proj"),
    ("attention.self.key", "self_attn.k_proj"),
    ("attention.self.value", "self_attn.v_proj"),
    ("attention.output.dense", "self_attn.o_proj"),
    ("attention.output.LayerNorm", "post_attention_layernorm"),
    ("intermediate.dense", "mlp.up_proj"),
    ("output.dense", "mlp.down_proj"),
    ("output.LayerNorm", "post_mlp_layernorm"),
    ("attn.Wqkv", "self_attn.qkv_proj"),
    ("attn.out_proj", "self_attn.o_proj"),
    // gated by the second
    ("mlp.fc11", "mlp.up_proj"),
    ("mlp.fc12", "mlp.gate_proj"),
    ("mlp.fc2", "mlp.down_proj"),
    ("norm1", "post_attention_layernorm"),
    ("norm2", "post_mlp_layernorm"),
    ("self_attn.o_proj", "self_attn.o_proj"),
    // a ModernBERT's
    ("attn_norm", "input_layernorm"),
    ("attn.Wo", "self_attn.o_proj"),
    ("mlp_norm", "post_attention_layernorm"),
    ("mlp.Wi", "mlp.gate_up_proj"),
    ("mlp.Wo", "mlp.down_proj"),
];

/// What is not computed: heads over the states, and numbers that follow from the config.
const LEFT_OUT: [&str; 5] = ["pooler.", "cls.", "lm_head.", "embeddings.position_ids", "embeddings.token_type_ids"];

/// Nor is the head of a ModernBertForMaskedLM.
const MASKED: [&str; 2] = ["head.", "decoder."];

/// The field of sentence-transformers for each way of pooling.
const WAYS: [(&str, &str); 3] =
    [("pooling_mode_cls_token", "cls"), ("pooling_mode_mean_tokens", "mean"), ("pooling_mode_lasttoken", "last")];

/// Other ways it may ask for.
const OTHER_WAYS: [&str; 3] =
    ["pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"];

/// Whether the directory is one of these.
pub(super) fn is_one(config: &Value) -> bool {
    config["model_type"].as_str().is_some_and(is_encoder) || is_gemma(config)
}

/// Whether it is a Gemma 3 whose tokens see what comes behind them: an EmbeddingGemma.
fn is_gemma(config: &Value) -> bool {
    config["model_type"] == "gemma3_text" && config["use_bidirectional_attention"] == true
}

/// `model_type` of those whose positions are counted from behind the padding token's id.
pub const ROBERTA: [&str; 3] = ["roberta", "xlm-roberta", "camembert"];

/// And of the others that are encoders by it alone.
const OTHERS: [&str; 3] = ["bert", "nomic_bert", "modernbert"];

/// Whether every model of this `model_type` is an encoder.
pub fn is_encoder(model_type: &str) -> bool {
    OTHERS.contains(&model_type) || ROBERTA.contains(&model_type)
}

/// Whether positions are counted from behind the padding token's id.
fn is_roberta(config: &Value) -> bool {
    config["model_type"].as_str().is_some_and(|name| ROBERTA.contains(&name))
}

/// The id of a RoBERTa's padding token where the config does not say.
const PADDING: u64 = 1;

/// What a config says here of the rows of its table of positions that no token has, once they are left out.
const OFFSET: &str = "position_offset";

/// Rows of the table of positions that no token has.
fn unused_positions(config: &Value) -> u64 {
    match config[OFFSET].as_u64() {
        Some(n) => n,
        None if is_roberta(config) => config["pad_token_id"].as_u64().unwrap_or(PADDING).saturating_add(1),
        None => 0,
    }
}

/// Where sentence-transformers says what it does, in a directory: its modules in their order, and how it pools.
pub(super) const MODULES: &str = "modules.json";
/// see [`MODULES`]
pub(super) const POOLING: &str = "1_Pooling/config.json";

/// The config, with what sentence-transformers has said of its `modules` and of `pooling`. `dense`: the functions behind its
/// dense layers, where these are read.
pub(super) fn with_pooling(
    mut config: Value,
    modules: Option<&Value>,
    pooling: Option<Value>,
    dense: Option<Vec<Value>>,
) -> Value {
    if let (Some(pooling), Some(fields)) = (pooling, config.as_object_mut())
        && !fields.contains_key("pooling_type")
    {
        let mut said = way(&pooling);
        for module in modules.and_then(Value::as_array).into_iter().flatten() {
            // what comes behind makes another vector; to length 1 it is brought anyway
            let name = module["type"].as_str().and_then(|t| t.rsplit('.').next()).unwrap_or("?");
            let known = ["Transformer", "Pooling", "Normalize"].contains(&name) || name == "Dense" && dense.is_some();
            if !known {
                said = format!("{said}+{name}");
            }
        }
        fields.insert("pooling_type".into(), said.into());
    }
    if let (Some(functions), Some(fields)) = (dense, config.as_object_mut()) {
        fields.insert(dense::FUNCTIONS.into(), functions.into());
    }
    config
}

/// The config of an encoder: of a RoBERTa, positions without those that no token has.
pub(super) fn config(mut config: Value) -> Value {
    let unused = unused_positions(&config);
    if let (true, Some(all)) = (unused > 0, config["max_position_embeddings"].as_u64()) {
        config["max_position_embeddings"] = all.saturating_sub(unused).into();
        config[OFFSET] = 0.into();
    }
    config
}

/// How a file of sentence-transformers pools, by a word.
fn way(pooling: &Value) -> String {
    let asked = |key: &&str| pooling[*key] == true;
    // several would be put side by side
    let mut all: Vec<&str> = WAYS.iter().filter(|(key, _)| asked(key)).map(|(_, way)| *way).collect();
    all.extend(OTHER_WAYS.iter().filter(|key| asked(key)).map(|key| key.trim_start_matches("pooling_mode_")));
    // newer files name it
    if let (true, Some(mode)) = (all.is_empty(), pooling["pooling_mode"].as_str()) {
        all.push(if mode == "lasttoken" { "last" } else { mode });
    }
    if all.is_empty() { "none".into() } else { all.join("+") }
}

/// The tensors that are computed with, by the names they have here.
///
/// Errors: a table of positions with fewer rows than those that no token has.
pub(super) fn tensors(config: &Value, all: Vec<Tensor>, sources: &[Source]) -> Result<Vec<Tensor>, FormatError> {
    let unused = unused_positions(config);
    let masked = |name: &str| config["model_type"] == "modernbert" && MASKED.iter().any(|part| name.starts_with(part));
    let kept = all.into_iter().filter(|t| !masked(&t.name));
    let mut found: Vec<Tensor> = kept.filter_map(|t| Some(Tensor { name: name(&t.name)?, ..t })).collect();
    for t in found.iter_mut().filter(|t| t.name == "model.embed_positions.weight") {
        let &[_, rows] = &t.shape[..] else { continue };
        if unused >= rows {
            let (file, place) = (sources[t.file].name(), format!("tensor {}", quote(&t.name)));
            return Err(FormatError::invalid(
                file,
                place,
                "rows",
                format!("more than pad_token_id + 1 = {unused}"),
                rows,
            ));
        }
        let skipped = t.bytes / rows * unused;
        (t.shape[1], t.bytes, t.offset) = (rows - unused, t.bytes - skipped, t.offset + skipped);
    }
    Ok(found)
}

/// Of one tensor; `None` for what is left out. Any other stays as it is, for `models` to judge.
fn name(of: &str) -> Option<String> {
    let own = PREFIXES.iter().find_map(|p| of.strip_prefix(p)).unwrap_or(of);
    if LEFT_OUT.iter().any(|part| own.starts_with(part)) {
        return None;
    }
    let Some((stem, suffix)) = own.rsplit_once('.') else { return Some(of.to_string()) };
    let suffix = match suffix {
        // as the first BERT has it
        "gamma" => "weight",
        "beta" => "bias",
        other => other,
    };
    if let Some((_, here)) = GLOBAL.iter().find(|(there, _)| *there == stem) {
        return Some(format!("{here}.{suffix}"));
    }
    let layer = LAYERS.iter().find_map(|p| stem.strip_prefix(p)?.split_once('.'));
    Some(match layer {
        Some((number, rest)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => {
            let here = LAYER.iter().find(|(there, _)| *there == rest).map_or(rest, |(_, here)| here);
            format!("model.layers.{number}.{here}.{suffix}")
        }
        _ => of.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_of_every_form_become_one() {
        for (from, to) in [
            ("embeddings.word_embeddings.weight", Some("model.embed_tokens.weight")),
            ("bert.embeddings.LayerNorm.gamma", Some("model.embed_norm.weight")),
            ("emb_ln.bias", Some("model.embed_norm.bias")),
            ("bert.encoder.layer.11.attention.self.query.bias", Some("model.layers.11.self_attn.q_proj.bias")),
            ("encoder.layer.0.attention.output.LayerNorm.beta", Some("model.layers.0.post_attention_layernorm.bias")),
            ("encoder.layer.0.output.dense.weight", Some("model.layers.0.mlp.down_proj.weight")),
            ("encoder.layers.3.attn.Wqkv.weight", Some("model.layers.3.self_attn.qkv_proj.weight")),
            ("encoder.layers.3.mlp.fc11.weight", Some("model.layers.3.mlp.up_proj.weight")),
            ("encoder.layers.3.mlp.fc12.weight", Some("model.layers.3.mlp.gate_proj.weight")),
            ("layers.3.self_attn.k_proj.weight", Some("model.layers.3.self_attn.k_proj.weight")),
            ("nomic_bert.layers.3.post_mlp_layernorm.weight", Some("model.layers.3.post_mlp_layernorm.weight")),
            ("pooler.dense.weight", None),
            ("bert.embeddings.position_ids", None),
            ("cls.predictions.bias", None),
            ("classifier.weight", Some("classifier.weight")),
            // as written by isobit
            ("model.embed_types.weight", Some("model.embed_types.weight")),
            ("model.layers.3.mlp.up_proj.weight", Some("model.layers.3.mlp.up_proj.weight")),
        ] {
            assert_eq!(name(from).as_deref(), to, "{from}");
        }
    }

    #[test]
    fn the_way_of_pooling_is_one_word() {
        let of = |v: Value| way(&v);
        assert_eq!(of(json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})), "cls");
        assert_eq!(of(json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})), "cls+mean");
        assert_eq!(of(json!({"pooling_mode_max_tokens": true})), "max_tokens");
        assert_eq!(of(json!({"pooling_mode": "lasttoken"})), "last");
        assert_eq!(of(json!({"word_embedding_dimension": 384})), "none");
    }
}

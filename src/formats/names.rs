//! Tensor names: the Hugging Face name of a weight and its name in a GGUF file, for the decoders this engine knows.
//!
//! The one table of all spellings. `qkv_proj` and `gate_up_proj` are fused matrices (Phi-3; the second GLM-4 too); a GGUF
//! file calls the second `ffn_up`, so that way round the answer depends on the architecture. Directories for ChatGLM's own
//! code spell everything in another way, with `transformer.` in front or without it.

/// Names outside the layers: (Hugging Face, GGUF), without `.weight`.
const GLOBAL: [(&str, &str); 5] = [
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    // as `dense` calls them
    ("dense_2", "dense_2"),
    ("dense_3", "dense_3"),
];

/// Names inside a layer: (Hugging Face, GGUF), without `.weight` or `.bias`.
const LAYER: [(&str, &str); 13] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// (Hugging Face, GGUF).
type Names = &'static [(&'static str, &'static str)];

/// Names of some architectures alone, and norms of those that have some behind attention and the feed-forward; they go before
/// [`LAYER`], since `post_attention_layernorm` is the norm before the feed-forward elsewhere.
const NORMS_AFTER: [(&[&str], Names); 7] = [
    (&["glm4"], &[("post_self_attn_layernorm", "post_attention_norm"), ("post_mlp_layernorm", "post_ffw_norm")]),
    (
        &["olmo2", "exaone4", "gemma2", "gemma3", "gemma-embedding", "gemma3n", "gemma4"],
        &[
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
        ],
    ),
    (&["starcoder2"], &[("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")]),
    (&["phi2"], &[("self_attn.dense", "attn_output"), ("mlp.fc1", "ffn_up"), ("mlp.fc2", "ffn_down")]),
    (&["stablelm"], &[("self_attn.q_layernorm", "attn_q_norm"), ("self_attn.k_layernorm", "attn_k_norm")]),
    // as `relaid` calls it
    (&["falcon"], &[("attn_layernorm", "attn_norm_2")]),
    // as `encoders` calls them
    (
        &["bert", "nomic-bert"],
        &[("post_attention_layernorm", "attn_output_norm"), ("post_mlp_layernorm", "layer_output_norm")],
    ),
];

/// Names that only architectures with experts have, or with recurrent layers, and those of them that mean something else
/// elsewhere; they go before [`LAYER`]. Matrices of experts have no number: `formats` has put them together.
const EXPERTS: [(&[&str], Names); 12] = [
    (
        // one name as `stacks` has it
        &["gemma3n"],
        &[
            ("altup.correct_output_scale", "altup_correct_scale"),
            ("altup.correction_coefs", "altup_correct_coef"),
            ("altup.prediction_coefs", "altup_predict_coef"),
            ("altup.modality_router", "altup_router"),
            ("altup.router_norm", "altup_router_norm"),
            ("laurel.linear_left", "laurel_l"),
            ("laurel.linear_right", "laurel_r"),
            ("laurel.post_laurel_norm", "laurel_post_norm"),
            ("per_layer_input_gate", "inp_gate"),
            ("per_layer_projection", "proj"),
            ("post_per_layer_input_norm", "post_norm"),
        ],
    ),
    (
        // as `stacks` calls some of them
        &["gemma4"],
        &[
            ("layer_scalar", "layer_output_scale"),
            ("per_layer_input_gate", "inp_gate"),
            ("per_layer_projection", "proj"),
            ("post_per_layer_input_norm", "post_norm"),
            ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
            ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
            ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
            ("router.proj", "ffn_gate_inp"),
            ("experts.gate_proj", "ffn_gate_exps"),
            ("experts.up_proj", "ffn_up_exps"),
            ("experts.down_proj", "ffn_down_exps"),
        ],
    ),
    (
        // as `relaid` calls them
        &["mamba2"],
        &[
            ("mixer.in_proj", "ssm_in"),
            ("mixer.conv1d", "ssm_conv1d"),
            ("mixer.dt", "ssm_dt"),
            ("mixer.A_log", "ssm_a"),
            ("mixer.D", "ssm_d"),
            ("mixer.norm", "ssm_norm"),
            ("mixer.out_proj", "ssm_out"),
        ],
    ),
    (
        &["qwen35", "qwen35moe", "qwen3next"],
        &[
            // the norm before the feed-forward
            ("post_attention_layernorm", "post_attention_norm"),
            ("linear_attn.in_proj_qkv", "attn_qkv"),
            ("linear_attn.in_proj_z", "attn_gate"),
            ("linear_attn.in_proj_b", "ssm_beta"),
            ("linear_attn.in_proj_a", "ssm_alpha"),
            ("linear_attn.in_proj_qkvz", "ssm_in"),
            ("linear_attn.in_proj_ba", "ssm_ba"),
            ("linear_attn.conv1d", "ssm_conv1d"),
            // as `stacks` calls them
            ("linear_attn.dt", "ssm_dt"),
            ("linear_attn.A_log", "ssm_a"),
            ("linear_attn.norm", "ssm_norm"),
            ("linear_attn.out_proj", "ssm_out"),
        ],
    ),
    (
        &["lfm2", "lfm2moe"],
        &[
            ("operator_norm", "attn_norm"),
            ("self_attn.out_proj", "attn_output"),
            ("self_attn.q_layernorm", "attn_q_norm"),
            ("self_attn.k_layernorm", "attn_k_norm"),
            ("conv.in_proj", "shortconv.in_proj"),
            ("conv.conv", "shortconv.conv"),
            ("conv.out_proj", "shortconv.out_proj"),
            ("ffn_norm", "ffn_norm"),
            ("feed_forward.w1", "ffn_gate"),
            ("feed_forward.w3", "ffn_up"),
            ("feed_forward.w2", "ffn_down"),
        ],
    ),
    (
        &["lfm2moe"],
        &[
            ("feed_forward.gate", "ffn_gate_inp"),
            // as `stacks` calls them
            ("feed_forward.expert", "exp_probs_b"),
            ("feed_forward.experts.gate_proj", "ffn_gate_exps"),
            ("feed_forward.experts.up_proj", "ffn_up_exps"),
            ("feed_forward.experts.down_proj", "ffn_down_exps"),
        ],
    ),
    (
        &["llama"],
        &[
            ("block_sparse_moe.gate", "ffn_gate_inp"),
            ("block_sparse_moe.experts.w1", "ffn_gate_exps"),
            ("block_sparse_moe.experts.w3", "ffn_up_exps"),
            ("block_sparse_moe.experts.w2", "ffn_down_exps"),
        ],
    ),
    (
        &["granitemoe"],
        &[
            ("block_sparse_moe.router.layer", "ffn_gate_inp"),
            ("block_sparse_moe.input_linear.gate", "ffn_gate_exps"),
            ("block_sparse_moe.input_linear.up", "ffn_up_exps"),
            ("block_sparse_moe.output_linear", "ffn_down_exps"),
            ("shared_mlp.input_linear.gate", "ffn_gate_shexp"),
            ("shared_mlp.input_linear.up", "ffn_up_shexp"),
            ("shared_mlp.output_linear", "ffn_down_shexp"),
        ],
    ),
    (
        &["glm4moe"],
        &[
            // the norm before the feed-forward, whose name in a GGUF file is that of one behind attention elsewhere
            ("post_attention_layernorm", "post_attention_norm"),
            ("mlp.gate.e_score_correction", "exp_probs_b"),
            ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
            ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
        ],
    ),
    (
        &["deepseek2"],
        &[
            ("self_attn.q_a_proj", "attn_q_a"),
            ("self_attn.q_a_layernorm", "attn_q_a_norm"),
            ("self_attn.q_b_proj", "attn_q_b"),
            ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
            ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
            // as `relaid` calls them
            ("self_attn.k_b_proj", "attn_k_b"),
            ("self_attn.v_b_proj", "attn_v_b"),
            ("mlp.gate.e_score_correction", "exp_probs_b"),
            ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
            ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
        ],
    ),
    (
        // matrices of experts as `relaid` calls them
        &["gpt-oss"],
        &[
            ("post_attention_layernorm", "post_attention_norm"),
            ("self_attn.sinks", "attn_sinks"),
            ("mlp.router", "ffn_gate_inp"),
            ("mlp.experts.gate_proj", "ffn_gate_exps"),
            ("mlp.experts.up_proj", "ffn_up_exps"),
            ("mlp.experts.down_proj", "ffn_down_exps"),
        ],
    ),
    (
        &["qwen2moe", "qwen3moe", "glm4moe", "qwen35moe", "qwen3next", "deepseek2"],
        &[
            ("mlp.gate", "ffn_gate_inp"),
            ("mlp.experts.gate_proj", "ffn_gate_exps"),
            ("mlp.experts.up_proj", "ffn_up_exps"),
            ("mlp.experts.down_proj", "ffn_down_exps"),
            ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
            ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
            ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
        ],
    ),
];

/// As [`GLOBAL`], of some architectures alone; they go before those of all.
const OWN_GLOBAL: [(&str, &str, &str); 18] = [
    // the first two as `stacks` calls them
    ("gemma3n", "model.altup_projections", "altup_proj"),
    ("gemma3n", "model.altup_unembed_projections", "altup_unembd_proj"),
    ("gemma3n", "model.embed_tokens_per_layer", "per_layer_token_embd"),
    ("gemma3n", "model.per_layer_model_projection", "per_layer_model_proj"),
    ("gemma3n", "model.per_layer_projection_norm", "per_layer_proj_norm"),
    ("gemma4", "model.embed_tokens_per_layer", "per_layer_token_embd"),
    ("gemma4", "model.per_layer_model_projection", "per_layer_model_proj"),
    ("gemma4", "model.per_layer_projection_norm", "per_layer_proj_norm"),
    ("phi2", "model.final_layernorm", "output_norm"),
    ("gpt2", "model.embed_positions", "position_embd"),
    ("lfm2", "model.embedding_norm", "token_embd_norm"),
    ("lfm2moe", "model.embedding_norm", "token_embd_norm"),
    ("bert", "model.embed_positions", "position_embd"),
    ("bert", "model.embed_types", "token_types"),
    ("bert", "model.embed_norm", "token_embd_norm"),
    ("nomic-bert", "model.embed_types", "token_types"),
    ("nomic-bert", "model.embed_norm", "token_embd_norm"),
    ("modern-bert", "model.embed_norm", "token_embd_norm"),
];

/// Architectures whose gate and up are one tensor, which GGUF files call `ffn_up`.
const FUSED: [&str; 4] = ["phi3", "chatglm", "glm4", "modern-bert"];

/// As [`GLOBAL`], in directories for ChatGLM's own code.
const CHATGLM_GLOBAL: [(&str, &str); 3] = [
    ("embedding.word_embeddings", "token_embd"),
    ("encoder.final_layernorm", "output_norm"),
    ("output_layer", "output"),
];

/// As [`LAYER`], in directories for ChatGLM's own code.
const CHATGLM_LAYER: [(&str, &str); 6] = [
    ("input_layernorm", "attn_norm"),
    ("self_attention.query_key_value", "attn_qkv"),
    ("self_attention.dense", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.dense_h_to_4h", "ffn_up"),
    ("mlp.dense_4h_to_h", "ffn_down"),
];

/// What ChatGLM's own names may begin with.
const CHATGLM_PREFIX: &str = "transformer.";

/// How the names of one file's tensors are spelt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling {
    /// as in GGUF files
    Gguf,
    /// as transformers has it
    HuggingFace,
    /// as ChatGLM's own code has it, after this prefix
    ChatGlm(&'static str),
}

impl Spelling {
    /// That of a directory, told by the name of its embedding.
    pub fn of_directory(has: impl Fn(&str) -> bool) -> Spelling {
        let own = |prefix: &&'static str| has(&format!("{prefix}{}.weight", CHATGLM_GLOBAL[0].0));
        ["", CHATGLM_PREFIX].iter().find(|p| own(p)).map_or(Spelling::HuggingFace, |p| Spelling::ChatGlm(p))
    }

    /// A tensor's name by its name in a GGUF file of architecture `arch`; `None` where there is none.
    pub fn name(self, arch: &str, gguf: &str) -> Option<String> {
        let prefix = match self {
            Spelling::Gguf => return Some(gguf.to_string()),
            Spelling::HuggingFace => return to_hf(arch, gguf),
            Spelling::ChatGlm(prefix) => prefix,
        };
        let (stem, suffix) = split(gguf)?;
        if CACHE_SUFFIXES.contains(&suffix) {
            // of keys and of values apart, which these names do not have
            return to_hf(arch, gguf);
        }
        if let Some((own, _)) = CHATGLM_GLOBAL.iter().find(|(_, g)| *g == stem) {
            return Some(format!("{prefix}{own}{suffix}"));
        }
        let (l, rest) = layer(stem, "blk.")?;
        let (own, _) = CHATGLM_LAYER.iter().find(|(_, g)| *g == rest)?;
        Some(format!("{prefix}encoder.layers.{l}.{own}{suffix}"))
    }
}

/// Whether a tensor of a directory holds frequencies of the rotation, which follow from the config.
pub fn is_frequencies(name: &str) -> bool {
    name.ends_with("rotary_emb.inv_freq") || name.ends_with("rotary_pos_emb.inv_freq")
}

/// What the names of a c8 cache's scales and offsets end with, beside the matrices of keys and of values.
const CACHE_SUFFIXES: [&str; 2] = [".kv_cache_scale", ".kv_cache_offset"];

/// Whether a tensor holds scales or offsets of a c8 cache.
pub fn is_of_cache(name: &str) -> bool {
    CACHE_SUFFIXES.iter().any(|s| name.ends_with(s))
}

/// What the name of a tensor may end with.
const SUFFIXES: [&str; 5] = [".weight", ".bias", ".scale", CACHE_SUFFIXES[0], CACHE_SUFFIXES[1]];

/// `name` without one of [`SUFFIXES`], and that suffix.
fn split(name: &str) -> Option<(&str, &str)> {
    let at = name.len() - SUFFIXES.into_iter().find(|s| name.ends_with(s))?.len();
    Some(name.split_at(at))
}

/// `"<number>.<rest>"` after a prefix.
fn layer<'a>(stem: &'a str, prefix: &str) -> Option<(usize, &'a str)> {
    let (number, rest) = stem.strip_prefix(prefix)?.split_once('.')?;
    // the number as it would be written again
    let l: usize = number.parse().ok()?;
    (l.to_string() == number).then_some((l, rest))
}

/// Names inside a layer of architecture `arch`, in the order in which they are looked for.
fn names_of(arch: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let own = NORMS_AFTER.iter().chain(&EXPERTS).filter(move |(archs, _)| archs.contains(&arch));
    own.flat_map(|(_, names)| names.iter()).chain(&LAYER)
}

/// The GGUF name of a Hugging Face tensor of architecture `arch` (GGUF's name of it).
pub fn to_gguf(arch: &str, hf: &str) -> Option<String> {
    let (stem, suffix) = split(hf)?;
    let own = stem.strip_prefix(CHATGLM_PREFIX).unwrap_or(stem);
    if let Some((_, _, gguf)) = OWN_GLOBAL.iter().find(|(a, h, _)| *a == arch && *h == stem) {
        return Some(format!("{gguf}{suffix}"));
    }
    let everywhere = GLOBAL.iter().find(|(h, _)| *h == stem).or(CHATGLM_GLOBAL.iter().find(|(h, _)| *h == own));
    if let Some((_, gguf)) = everywhere {
        return Some(format!("{gguf}{suffix}"));
    }
    let (l, gguf) = match layer(stem, "model.layers.") {
        Some((l, rest)) => (l, names_of(arch).find(|(h, _)| *h == rest)?.1),
        None => {
            let (l, rest) = layer(own, "encoder.layers.")?;
            (l, CHATGLM_LAYER.iter().find(|(h, _)| *h == rest)?.1)
        }
    };
    Some(format!("blk.{l}.{gguf}{suffix}"))
}

/// The Hugging Face name of a GGUF tensor of architecture `arch`.
pub fn to_hf(arch: &str, gguf: &str) -> Option<String> {
    let (stem, suffix) = split(gguf)?;
    if let Some((_, hf, _)) = OWN_GLOBAL.iter().find(|(a, _, g)| *a == arch && *g == stem) {
        return Some(format!("{hf}{suffix}"));
    }
    if let Some((hf, _)) = GLOBAL.iter().find(|(_, g)| *g == stem) {
        return Some(format!("{hf}{suffix}"));
    }
    let (l, rest) = layer(stem, "blk.")?;
    let fused = FUSED.contains(&arch);
    let fits = |(h, g): &&(&str, &str)| *g == rest && (*g != "ffn_up" || (*h == "mlp.gate_up_proj") == fused);
    let (hf, _) = names_of(arch).find(fits)?;
    Some(format!("model.layers.{l}.{hf}{suffix}"))
}

/// The layer a tensor belongs to, by any spelling.
pub fn layer_of(name: &str) -> Option<usize> {
    let own = name.strip_prefix(CHATGLM_PREFIX).unwrap_or(name);
    let found = layer(name, "model.layers.").or_else(|| layer(name, "blk.")).or_else(|| layer(own, "encoder.layers."));
    found.map(|(l, _)| l)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_goes_over_and_back() {
        for arch in [
            "llama",
            "phi3",
            "qwen2",
            "qwen3",
            "chatglm",
            "glm4",
            "olmo2",
            "exaone4",
            "gemma2",
            "gemma3",
            "gemma-embedding",
            "modern-bert",
            "gemma3n",
            "granite",
            "qwen2moe",
            "qwen3moe",
            "granitemoe",
            "glm4moe",
            "qwen35",
            "qwen35moe",
            "qwen3next",
            "lfm2",
            "lfm2moe",
            "mamba2",
            "deepseek2",
        ] {
            let fused = FUSED.contains(&arch);
            for (hf, gguf) in GLOBAL {
                assert_eq!(to_gguf(arch, &format!("{hf}.weight")).unwrap(), format!("{gguf}.weight"));
                assert_eq!(to_hf(arch, &format!("{gguf}.weight")).unwrap(), format!("{hf}.weight"));
            }
            let mut seen = std::collections::HashSet::new();
            for (hf, gguf) in names_of(arch).filter(|(h, _)| (*h == "mlp.gate_up_proj") <= fused) {
                // one of the architecture's own goes before one of all
                let known = !seen.insert(*hf) || !seen.insert(*gguf);
                if known || fused && *hf == "mlp.up_proj" {
                    continue;
                }
                let (hf, gguf) = (format!("model.layers.12.{hf}.bias"), format!("blk.12.{gguf}.bias"));
                assert_eq!(to_gguf(arch, &hf).unwrap(), gguf);
                assert_eq!(to_hf(arch, &gguf).unwrap(), hf);
                assert_eq!((layer_of(&hf), layer_of(&gguf)), (Some(12), Some(12)));
            }
            for suffix in ["kv_cache_scale", "kv_cache_offset"] {
                let hf = format!("model.layers.3.self_attn.k_proj.{suffix}");
                assert_eq!(to_gguf(arch, &hf), Some(format!("blk.3.attn_k.{suffix}")));
                assert_eq!(to_hf(arch, &format!("blk.3.attn_k.{suffix}")), Some(hf));
            }
        }
    }

    #[test]
    fn names_of_layer_normed_models_go_over_and_back() {
        for (arch, hf, gguf) in [
            ("starcoder2", "model.layers.1.mlp.c_fc.bias", "blk.1.ffn_up.bias"),
            ("starcoder2", "model.norm.weight", "output_norm.weight"),
            ("phi2", "model.layers.1.self_attn.dense.weight", "blk.1.attn_output.weight"),
            ("phi2", "model.final_layernorm.bias", "output_norm.bias"),
            ("phi2", "lm_head.bias", "output.bias"),
            ("gpt2", "model.embed_positions.weight", "position_embd.weight"),
            ("gpt2", "model.layers.0.self_attn.qkv_proj.bias", "blk.0.attn_qkv.bias"),
            ("stablelm", "model.layers.9.self_attn.k_layernorm.weight", "blk.9.attn_k_norm.weight"),
            ("command-r", "model.layers.9.self_attn.k_norm.weight", "blk.9.attn_k_norm.weight"),
            ("falcon", "model.layers.9.attn_layernorm.bias", "blk.9.attn_norm_2.bias"),
            ("falcon", "model.layers.9.mlp.up_proj.weight", "blk.9.ffn_up.weight"),
            ("bert", "model.embed_types.weight", "token_types.weight"),
            ("bert", "model.layers.9.post_attention_layernorm.bias", "blk.9.attn_output_norm.bias"),
            ("nomic-bert", "model.embed_norm.bias", "token_embd_norm.bias"),
            ("nomic-bert", "model.layers.9.post_mlp_layernorm.weight", "blk.9.layer_output_norm.weight"),
        ] {
            assert_eq!(to_gguf(arch, hf).as_deref(), Some(gguf), "{arch}");
            assert_eq!(to_hf(arch, gguf).as_deref(), Some(hf), "{arch}");
        }
        assert_eq!(to_gguf("llama", "model.embed_positions.weight"), None);
    }

    #[test]
    fn the_norm_after_attention_is_not_taken_for_the_one_before_the_feed_forward() {
        let hf = "model.layers.0.post_attention_layernorm.weight";
        for (arch, gguf) in [("llama", "ffn_norm"), ("glm4", "ffn_norm"), ("olmo2", "post_attention_norm")] {
            assert_eq!(to_gguf(arch, hf), Some(format!("blk.0.{gguf}.weight")), "{arch}");
        }
        let after = "blk.0.post_attention_norm.weight";
        assert_eq!(to_hf("glm4", after).unwrap(), "model.layers.0.post_self_attn_layernorm.weight");
        assert_eq!(to_hf("gemma3", after).unwrap(), hf);
        assert_eq!(to_hf("llama", after), None);
    }

    #[test]
    fn names_of_chatglm_go_over_and_back_with_their_prefix_and_without() {
        for prefix in ["", CHATGLM_PREFIX] {
            let embedding = format!("{prefix}embedding.word_embeddings.weight");
            let spelling = Spelling::of_directory(|name| name == embedding);
            assert_eq!(spelling, Spelling::ChatGlm(prefix));
            let global = CHATGLM_GLOBAL.map(|(own, gguf)| (own.to_string(), gguf.to_string()));
            let layers =
                CHATGLM_LAYER.map(|(own, gguf)| (format!("encoder.layers.27.{own}"), format!("blk.27.{gguf}")));
            for (own, gguf) in global.into_iter().chain(layers) {
                let (own, gguf) = (format!("{prefix}{own}.weight"), format!("{gguf}.weight"));
                assert_eq!(to_gguf("chatglm", &own).as_ref(), Some(&gguf));
                assert_eq!(spelling.name("chatglm", &gguf), Some(own.clone()));
                assert_eq!(layer_of(&own), layer_of(&gguf));
            }
            assert_eq!(spelling.name("chatglm", "blk.0.attn_q.weight"), None);
            let of_keys = "model.layers.7.self_attn.k_proj.kv_cache_scale";
            assert_eq!(spelling.name("chatglm", "blk.7.attn_k.kv_cache_scale").as_deref(), Some(of_keys));
            assert!(is_frequencies(&format!("{prefix}rotary_pos_emb.inv_freq")));
        }
        assert_eq!(Spelling::of_directory(|name| name == "model.embed_tokens.weight"), Spelling::HuggingFace);
        assert_eq!(layer_of("encoder.layers.03.mlp.dense_h_to_4h.weight"), None);
    }

    #[test]
    fn names_that_only_look_alike_are_not_translated() {
        for bad in ["model.layers.01.mlp.up_proj.weight", "model.layers.1.mlp.up_proj", "lm_head", "x.weight", ""] {
            assert_eq!(to_gguf("llama", bad), None, "{bad}");
        }
        assert_eq!(to_hf("llama", "blk.x.attn_q.weight"), None);
        assert_eq!(layer_of("output.weight"), None);
    }
}

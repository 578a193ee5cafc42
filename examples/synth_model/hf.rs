//! The Hugging Face form of a synthetic model: config.json, safetensors shards with their index, tokenizer files.

use super::gguf::paired_row;
use super::vocabulary::{json as tokenizer_json, vocabulary};
use super::{
    Arch, Format, Mix, Model, Role, Rope, Summary, Tensor, deepseek2, gemma3n, gemma4, hybrid, layernormed, lfm2,
    mamba2, write_tensor,
};
use anyhow::{Context, Result, bail, ensure};
use isobit::internals::formats::synthetic::{GLM_SCALE, Shape};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The tensor's name here; rope factors have none, they stand in config.json.
fn name_of(t: &Tensor, arch: Arch, format: Format) -> Option<String> {
    if format == Format::Chatglm {
        return own_name(t);
    }
    if arch == Arch::Mamba2 {
        return mamba2::name_of(&t.name);
    }
    let (what, suffix) = t.name.rsplit_once('.')?;
    let part = match what.strip_prefix("blk.") {
        None => {
            return Some(match what {
                "token_embd" => format!("model.embed_tokens.{suffix}"),
                "output_norm" => format!("model.norm.{suffix}"),
                "token_embd_norm" => format!("model.embedding_norm.{suffix}"),
                "output" => format!("lm_head.{suffix}"),
                what => return gemma4::global(what).or(gemma3n::global(what)).map(String::from),
            });
        }
        Some(part) => part,
    };
    let (layer, what) = part.split_once('.')?;
    if let (Arch::Gemma4, Some(name)) = (arch, gemma4::name_of(layer, what, suffix)) {
        return Some(name);
    }
    if let (Arch::Gemma3n, Some(name)) = (arch, gemma3n::name_of(layer, what)) {
        return Some(name);
    }
    if arch.is_lfm2() {
        let end = if what == "exp_probs_b" { "_bias".to_string() } else { format!(".{suffix}") };
        return Some(format!("model.layers.{layer}.{}{end}", lfm2::name_of(what)?));
    }
    let own = match what {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        // of a recurrent layer `hybrid` writes it
        "attn_qkv" if arch.is_hybrid() => return None,
        "attn_qkv" => "self_attn.qkv_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "attn_output" => "self_attn.o_proj",
        _ if arch == Arch::DeepSeek2 && what.starts_with("attn_") => deepseek2::name_of(what)?,
        // no suffix
        "attn_sinks" => return Some(format!("model.layers.{layer}.self_attn.sinks")),
        _ if arch == Arch::GptOss && what.ends_with("_exps") => {
            let end = if suffix == "bias" { "_bias" } else { "" };
            return Some(format!("model.layers.{layer}.{}{end}", mixture(what, arch)?));
        }
        _ if matches!(what, "ffn_gate_inp" | "exp_probs_b") || what.contains("exp") => mixture(what, arch)?,
        "post_attention_norm" if arch == Arch::Glm4 => "post_self_attn_layernorm",
        "post_attention_norm" => "post_attention_layernorm",
        "ffn_norm" if matches!(arch, Arch::Gemma2 | Arch::Gemma3 | Arch::Gemma3n | Arch::Gemma4) => {
            "pre_feedforward_layernorm"
        }
        "ffn_norm" => "post_attention_layernorm",
        "post_ffw_norm" if arch == Arch::Glm4 => "post_mlp_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" if t.fused => "mlp.gate_up_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => return None,
    };
    let dot = if what == "exp_probs_b" { "_" } else { "." };
    Some(format!("model.layers.{layer}.{own}{dot}{suffix}"))
}

/// What of a mixture of experts a tensor is; `#` stands for an expert's number.
fn mixture(what: &str, arch: Arch) -> Option<&'static str> {
    let names = match arch {
        Arch::Llama => [
            "block_sparse_moe.gate",
            "block_sparse_moe.experts.#.w1",
            "block_sparse_moe.experts.#.w3",
            "block_sparse_moe.experts.#.w2",
        ],
        Arch::GraniteMoe => [
            "block_sparse_moe.router.layer",
            "block_sparse_moe.input_linear",
            "block_sparse_moe.input_linear",
            "block_sparse_moe.output_linear",
        ],
        Arch::GptOss => ["mlp.router", "mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
        _ => ["mlp.gate", "mlp.experts.#.gate_proj", "mlp.experts.#.up_proj", "mlp.experts.#.down_proj"],
    };
    Some(match (what, arch) {
        ("ffn_gate_inp", _) => names[0],
        ("ffn_gate_exps", _) => names[1],
        ("ffn_up_exps", _) => names[2],
        ("ffn_down_exps", _) => names[3],
        ("exp_probs_b", _) => "mlp.gate.e_score_correction",
        ("ffn_gate_inp_shexp", _) => "mlp.shared_expert_gate",
        ("ffn_gate_shexp" | "ffn_up_shexp", Arch::GraniteMoe) => "shared_mlp.input_linear",
        ("ffn_down_shexp", Arch::GraniteMoe) => "shared_mlp.output_linear",
        ("ffn_gate_shexp", Arch::Glm4Moe | Arch::DeepSeek2) => "mlp.shared_experts.gate_proj",
        ("ffn_up_shexp", Arch::Glm4Moe | Arch::DeepSeek2) => "mlp.shared_experts.up_proj",
        ("ffn_down_shexp", Arch::Glm4Moe | Arch::DeepSeek2) => "mlp.shared_experts.down_proj",
        ("ffn_gate_shexp", _) => "mlp.shared_expert.gate_proj",
        ("ffn_up_shexp", _) => "mlp.shared_expert.up_proj",
        ("ffn_down_shexp", _) => "mlp.shared_expert.down_proj",
        _ => return None,
    })
}

/// One tensor of the directory: what it is made of, one after the other.
pub struct Whole {
    pub name: String,
    /// slowest dimension first
    pub dims: Vec<usize>,
    pub parts: Vec<Tensor>,
}

impl Whole {
    fn bytes(&self) -> Result<u64> {
        self.parts.iter().map(Tensor::bytes).sum()
    }
}

/// Rows of a stack that belong to one matrix.
pub fn of_stack(t: &Tensor, i: usize) -> Tensor {
    let rows = t.rows / t.stack;
    let first = t.first + (i * rows * t.cols) as u64;
    Tensor { name: t.name.clone(), values: None, columns: None, first, rows, stack: 1, ..*t }
}

/// The tensors as the directory has them: stacks of experts apart, or gate and up of Granite's together.
fn wholes(named: Vec<(String, Tensor)>) -> Vec<Whole> {
    let mut out: Vec<Whole> = Vec::new();
    for (name, t) in named {
        if name.contains('#') {
            out.extend((0..t.stack).map(|i| {
                let part = of_stack(&t, i);
                Whole { name: name.replace('#', &i.to_string()), dims: vec![part.rows, part.cols], parts: vec![part] }
            }));
            continue;
        }
        if name.ends_with(deepseek2::BOTH) {
            deepseek2::put(&mut out, name, &t);
            continue;
        }
        let rows = t.rows / t.stack;
        let parts: Vec<Tensor> = (0..t.stack).map(|i| of_stack(&t, i)).collect();
        if let Some(gate) = out.last_mut().filter(|gate| gate.name == name) {
            // of each expert the rows of gate, then those of up
            let at = gate.dims.len() - 2;
            gate.dims[at] += rows;
            gate.parts = std::mem::take(&mut gate.parts).into_iter().zip(parts).flat_map(|(a, b)| [a, b]).collect();
            continue;
        }
        let dims = match (t.is_vector(), t.stack) {
            (true, _) => vec![t.cols],
            (false, 1) if name.ends_with("conv.conv.weight") || name.ends_with("mixer.conv1d.weight") => {
                vec![t.rows, 1, t.cols]
            }
            (false, 1) if name.ends_with("mixer.norm.weight") => vec![t.rows * t.cols],
            (false, 1) => vec![t.rows, t.cols],
            (false, n) => vec![n, rows, t.cols],
        };
        let parts = if t.stack == 1 { vec![t] } else { parts };
        out.push(Whole { name, dims, parts });
    }
    out
}

/// The tensor's name in ChatGLM's own code.
fn own_name(t: &Tensor) -> Option<String> {
    let (what, suffix) = t.name.rsplit_once('.')?;
    let own = match what.strip_prefix("blk.").and_then(|part| part.split_once('.')) {
        None => match what {
            "token_embd" => "embedding.word_embeddings".to_string(),
            "output_norm" => "encoder.final_layernorm".to_string(),
            "output" => "output_layer".to_string(),
            _ => return None,
        },
        Some((layer, what)) => {
            let own = match what {
                "attn_norm" => "input_layernorm",
                "attn_qkv" => "self_attention.query_key_value",
                "attn_output" => "self_attention.dense",
                "ffn_norm" => "post_attention_layernorm",
                "ffn_up" => "mlp.dense_h_to_4h",
                "ffn_down" => "mlp.dense_4h_to_h",
                _ => return None,
            };
            format!("encoder.layers.{layer}.{own}")
        }
    };
    Some(format!("transformer.{own}.{suffix}"))
}

/// Queries, keys and values of GLM-4 apart, as transformers has them: parts of the one tensor, with its noise.
fn apart(model: &Model, list: Vec<Tensor>) -> Vec<(String, Tensor)> {
    let [q, kv] = [model.shape.heads, model.shape.kv_heads].map(|n| (n * model.shape.head_dim) as usize);
    let mut out = Vec::new();
    for t in list {
        let Some((before, suffix)) = t.name.split_once("attn_qkv.") else {
            let name = t.name.clone();
            out.extend(name_of(&t, Arch::ChatGlm, Format::Hf).map(|own| (own, Tensor { name, ..t })));
            continue;
        };
        let layer = before.trim_start_matches("blk.").trim_end_matches('.');
        let is_bias = t.role == Role::Bias;
        let mut first = 0;
        for (part, n) in [("q", q), ("k", kv), ("v", kv)] {
            let own = format!("model.layers.{layer}.self_attn.{part}_proj.{suffix}");
            let (rows, cols) = if is_bias { (1, n) } else { (n, t.cols) };
            let begin = first as u64 * if is_bias { 1 } else { t.cols as u64 };
            let (name, values) = (t.name.clone(), None);
            out.push((own, Tensor { name, values, columns: None, first: begin, rows, cols, ..t }));
            first += n;
        }
    }
    out
}

/// config.json for ChatGLM's own code.
fn own_config(model: &Model) -> Value {
    let s = &model.shape;
    json!({
        "architectures": ["ChatGLMModel"], "model_type": "chatglm", "torch_dtype": "float32",
        "hidden_size": s.dim, "ffn_hidden_size": s.ffn, "num_layers": s.layers, "num_attention_heads": s.heads,
        "multi_query_attention": true, "multi_query_group_num": s.kv_heads, "kv_channels": s.head_dim,
        "padded_vocab_size": s.vocab, "seq_length": s.ctx, "layernorm_epsilon": 1e-5, "add_qkv_bias": true,
        "add_bias_linear": false, "rmsnorm": true, "post_layer_norm": true, "original_rope": true,
        "apply_residual_connection_post_layernorm": false, "tie_word_embeddings": s.tied,
    })
}

/// What transformers calls it.
fn class(s: &Shape) -> &'static str {
    match s.arch {
        Arch::Llama if s.experts.count > 0 => "MixtralForCausalLM",
        Arch::Llama => "LlamaForCausalLM",
        Arch::Phi3 => "Phi3ForCausalLM",
        Arch::Qwen2 => "Qwen2ForCausalLM",
        Arch::Qwen3 => "Qwen3ForCausalLM",
        Arch::ChatGlm => "GlmForCausalLM",
        Arch::SmolLm3 => "SmolLM3ForCausalLM",
        Arch::Olmo2 if s.window > 0 => "Olmo3ForCausalLM",
        Arch::Olmo2 => "Olmo2ForCausalLM",
        Arch::Exaone4 => "Exaone4ForCausalLM",
        Arch::Glm4 => "Glm4ForCausalLM",
        Arch::Gemma2 => "Gemma2ForCausalLM",
        Arch::Gemma3 => "Gemma3ForCausalLM",
        Arch::Gemma3n => "Gemma3nForCausalLM",
        Arch::Gemma4 => "Gemma4ForCausalLM",
        Arch::Granite => "GraniteForCausalLM",
        Arch::Qwen2Moe => "Qwen2MoeForCausalLM",
        Arch::Qwen3Moe => "Qwen3MoeForCausalLM",
        Arch::GraniteMoe if s.experts.shared > 0 => "GraniteMoeSharedForCausalLM",
        Arch::GraniteMoe => "GraniteMoeForCausalLM",
        Arch::Glm4Moe => "Glm4MoeForCausalLM",
        Arch::GptOss => "GptOssForCausalLM",
        Arch::StarCoder2 => "Starcoder2ForCausalLM",
        Arch::StableLm => "StableLmForCausalLM",
        Arch::Cohere2 => "Cohere2ForCausalLM",
        Arch::CommandR => "CohereForCausalLM",
        Arch::Phi2 => "PhiForCausalLM",
        Arch::Gpt2 => "GPT2LMHeadModel",
        Arch::Falcon => "FalconForCausalLM",
        Arch::DeepSeek2 if s.larger => "DeepseekV3ForCausalLM",
        Arch::DeepSeek2 => "DeepseekV2ForCausalLM",
        // which `lfm2` says, and `mamba2`
        Arch::Lfm2 | Arch::Lfm2Moe | Arch::Mamba2 => "",
        // which `hybrid` says
        Arch::Qwen35 | Arch::Qwen35Moe | Arch::Qwen3Next => "",
        // which `synth_encoder` writes
        Arch::Bert | Arch::NomicBert | Arch::GemmaEmbedding | Arch::ModernBert => "",
    }
}

fn config(model: &Model) -> Value {
    let (s, v) = (&model.shape, vocabulary(model.shape.arch, model.shape.vocab as usize));
    let dtype = match model.mix {
        Mix::F16 => "float16",
        Mix::Bf16 => "bfloat16",
        _ => "float32",
    };
    if s.arch == Arch::Mamba2 {
        return mamba2::config(model, dtype);
    }
    let mut c = json!({
        "architectures": [class(s)], "model_type": model.shape.arch.name(), "torch_dtype": dtype, "hidden_act": "silu",
        "hidden_size": s.dim, "intermediate_size": s.ffn, "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "vocab_size": s.vocab,
        "max_position_embeddings": s.ctx, "rms_norm_eps": 1e-5, "rope_theta": s.arch.made_up_base(), "rope_scaling": null,
        "tie_word_embeddings": s.tied, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": true,
        "bos_token_id": v.bos, "eos_token_id": v.eos, "pad_token_id": v.eos,
    });
    if s.latent.rank == 0 && s.dim != s.heads * s.head_dim
        || matches!(s.arch, Arch::Qwen3 | Arch::Qwen3Moe | Arch::Glm4 | Arch::Glm4Moe | Arch::Gemma2 | Arch::Gemma3)
        || s.arch == Arch::GptOss
    {
        c["head_dim"] = s.head_dim.into();
    }
    if model.shape.arch == Arch::Phi3 {
        c["original_max_position_embeddings"] = model.original.into();
        c["sliding_window"] = Value::Null;
        if model.n_rot() != s.head_dim {
            c["partial_rotary_factor"] = model.rotary.into();
        }
    }
    if model.shape.arch == Arch::ChatGlm {
        c["model_type"] = "glm".into();
        c["head_dim"] = s.head_dim.into();
        c["attention_bias"] = true.into();
        c["partial_rotary_factor"] = model.rotary.into();
        c["bos_token_id"] = Value::Null;
    }
    match s.arch {
        Arch::Glm4 => {
            c["attention_bias"] = true.into();
            c["partial_rotary_factor"] = model.rotary.into();
            c["bos_token_id"] = Value::Null;
        }
        Arch::Olmo2 if s.window > 0 => c["model_type"] = "olmo3".into(),
        Arch::Gemma2 => {
            c["hidden_activation"] = "gelu_pytorch_tanh".into();
            c["query_pre_attn_scalar"] = s.head_dim.into();
            for (key, v) in s.arch.scales() {
                c[*key] = f64::from(*v).into();
            }
        }
        Arch::Gemma3 => {
            c["model_type"] = "gemma3_text".into();
            c["hidden_activation"] = "gelu_pytorch_tanh".into();
            c["query_pre_attn_scalar"] = s.head_dim.into();
            c["rope_local_base_freq"] = 1e4.into();
        }
        Arch::Granite | Arch::GraniteMoe => {
            let fields = ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"];
            for (field, (_, v)) in fields.into_iter().zip(s.arch.scales()) {
                c[field] = f64::from(*v).into();
            }
        }
        _ => {}
    }
    mixture_config(s, model.rotary, &mut c);
    if matches!(s.arch, Arch::Olmo2 | Arch::Exaone4 | Arch::Gemma2 | Arch::Gemma3)
        && (s.window > 0 || s.arch != Arch::Olmo2)
    {
        c["sliding_window"] = if s.window > 0 { s.window.into() } else { Value::Null };
    }
    if s.arch == Arch::Exaone4 && s.window == 0 {
        // the default has a window in every layer but some
        c["layer_types"] = vec!["full_attention"; s.layers as usize].into();
    }
    c["rope_scaling"] = match model.rope {
        Rope::Plain => Value::Null,
        Rope::Longrope => {
            let [short, long] = model.longrope_factors();
            json!({"type": "longrope", "short_factor": short, "long_factor": long})
        }
        Rope::Yarn => yarn(model),
        Rope::Linear => json!({"rope_type": "linear", "factor": model.factor()}),
        Rope::Llama3 => json!({"rope_type": "llama3", "factor": model.factor(), "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": model.original}),
    };
    if s.arch.has_layer_norm() {
        layernormed::config(model, &mut c);
    }
    if s.arch.is_hybrid() {
        hybrid::config(model, &mut c);
    }
    if s.arch.is_lfm2() {
        lfm2::config(s, &mut c);
    }
    if s.arch == Arch::DeepSeek2 {
        deepseek2::config(s, &mut c);
    }
    match s.arch {
        Arch::Gemma3n => gemma3n::config(s, &mut c),
        Arch::Gemma4 => gemma4::config(s, &mut c),
        _ => {}
    }
    c
}

/// What config.json says of experts.
fn mixture_config(s: &Shape, rotary: f64, c: &mut Value) {
    let e = s.experts;
    if e.count == 0 {
        return;
    }
    let model_type = match s.arch {
        Arch::Llama => "mixtral",
        Arch::GraniteMoe if e.shared > 0 => "granitemoeshared",
        Arch::Qwen2Moe => "qwen2_moe",
        Arch::Qwen3Moe => "qwen3_moe",
        Arch::Glm4Moe => "glm4_moe",
        Arch::GptOss => "gpt_oss",
        Arch::Lfm2Moe => "lfm2_moe",
        other => other.name(),
    };
    c["model_type"] = model_type.into();
    c["num_experts_per_tok"] = e.used.into();
    let count = match s.arch {
        Arch::Llama | Arch::GraniteMoe | Arch::GptOss => "num_local_experts",
        Arch::Glm4Moe | Arch::DeepSeek2 => "n_routed_experts",
        _ => "num_experts",
    };
    c[count] = e.count.into();
    if s.arch == Arch::Llama {
        c["sliding_window"] = Value::Null;
    } else if s.arch == Arch::GraniteMoe {
        c["shared_intermediate_size"] = e.shared.into();
    } else if s.arch == Arch::GptOss {
        c["intermediate_size"] = e.width.into();
        c["attention_bias"] = true.into();
        c["swiglu_limit"] = 7.0.into();
        c["sliding_window"] = s.window.max(1).into();
    } else {
        c["moe_intermediate_size"] = e.width.into();
    }
    match s.arch {
        Arch::Qwen2Moe => {
            c["shared_expert_intermediate_size"] = e.shared.into();
            c["norm_topk_prob"] = false.into();
        }
        Arch::Qwen3Moe => c["norm_topk_prob"] = true.into(),
        Arch::Lfm2Moe => {
            c["norm_topk_prob"] = true.into();
            c["use_expert_bias"] = true.into();
            c["num_dense_layers"] = e.dense.into();
            c["routed_scaling_factor"] = 1.0.into();
        }
        Arch::Glm4Moe => {
            c["norm_topk_prob"] = true.into();
            c["n_shared_experts"] = (e.shared / e.width).into();
            c["first_k_dense_replace"] = e.dense.into();
            c["routed_scaling_factor"] = f64::from(GLM_SCALE).into();
            c["attention_bias"] = true.into();
            c["use_qk_norm"] = true.into();
            c["partial_rotary_factor"] = rotary.into();
            c["n_group"] = 1.into();
            c["topk_group"] = 1.into();
            c["bos_token_id"] = Value::Null;
        }
        _ => {}
    }
}

/// What a directory says of yarn.
fn yarn(model: &Model) -> Value {
    let mut yarn = json!({"rope_type": "yarn", "factor": model.factor(),
        "original_max_position_embeddings": model.original});
    if model.shape.arch == Arch::GptOss {
        yarn["truncate"] = false.into();
    }
    if model.shape.arch == Arch::DeepSeek2 {
        yarn["mscale"] = deepseek2::MSCALE.into();
        yarn["mscale_all_dim"] = deepseek2::MSCALE.into();
    }
    yarn
}

/// A tensor of gpt-oss's experts: elements of gate and of up in turns, matrices transposed.
fn interleaved(model: &Model, whole: &Whole) -> Result<Vec<u8>> {
    let in_turns = if whole.name.contains("gate_up") { 2 } else { 1 };
    let mut out = Vec::new();
    for parts in whole.parts.chunks(in_turns) {
        let mut bytes = vec![vec![]; parts.len()];
        for (bytes, t) in bytes.iter_mut().zip(parts) {
            write_tensor(bytes, t, model, |row| row)?;
        }
        let (rows, cols) = (parts[0].rows, parts[0].cols);
        let size = bytes[0].len() / (rows * cols);
        let turned = whole.dims.len() == 3;
        for i in 0..rows * cols {
            // the row's number runs first
            let at = if turned { i % rows * cols + i / rows } else { i };
            bytes.iter().for_each(|b| out.extend_from_slice(&b[at * size..][..size]));
        }
    }
    Ok(out)
}

/// One safetensors file of these tensors.
fn write_shard(path: &Path, model: &Model, shard: &[Whole]) -> Result<()> {
    let dtype = match model.mix {
        Mix::F16 => "F16",
        Mix::Bf16 => "BF16",
        _ => "F32",
    };
    let of_experts = |whole: &Whole| model.shape.arch == Arch::GptOss && whole.name.contains("mlp.experts.");
    let mut head = serde_json::Map::new();
    head.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for whole in shard {
        let begin = end;
        end += whole.bytes()?;
        let mut dims = whole.dims.clone();
        if whole.parts.iter().any(|t| layernormed::is_transposed(model, t)) {
            dims.reverse();
        }
        match dims[..] {
            [n, rows, cols] if of_experts(whole) => dims = vec![n, cols, rows],
            [n, cols] if of_experts(whole) => dims = vec![n / whole.parts.len(), cols * whole.parts.len()],
            _ => {}
        }
        head.insert(whole.name.clone(), json!({"dtype": dtype, "shape": dims, "data_offsets": [begin, end]}));
    }
    let mut text = serde_json::to_vec(&Value::Object(head))?;
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut file = File::create(path)?;
    file.write_all(&(text.len() as u64).to_le_bytes())?;
    file.write_all(&text)?;
    for whole in shard {
        if of_experts(whole) {
            file.write_all(&interleaved(model, whole)?)?;
            continue;
        }
        for t in &whole.parts {
            if whole.name.ends_with(deepseek2::BOTH) {
                file.write_all(&deepseek2::rows(model, t)?)?;
                continue;
            }
            let pairs = t.name.ends_with("attn_q.weight") || t.name.ends_with("attn_k.weight");
            let head_dim = model.shape.head_dim as usize;
            if model.shape.arch.has_layer_norm() {
                let mut bytes = Vec::new();
                write_tensor(&mut bytes, t, model, |row| layernormed::source_row(model, t, row))?;
                if layernormed::is_transposed(model, t) {
                    let size = bytes.len() / (t.rows * t.cols);
                    let at = |r: usize, c: usize| (r * t.cols + c) * size;
                    let turned = (0..t.cols).flat_map(|c| (0..t.rows).map(move |r| at(r, c)));
                    bytes = turned.flat_map(|at| bytes[at..at + size].to_vec()).collect();
                }
                file.write_all(&bytes)?;
                continue;
            }
            write_tensor(
                &mut file,
                t,
                model,
                |row| if pairs { paired_row(model.shape.arch, head_dim, row) } else { row },
            )?;
        }
    }
    Ok(file.sync_all()?)
}

/// Writes the directory's files, the weights in `shards` files of about the same size.
pub fn write_model(dir: &Path, model: &Model, shards: usize, format: Format) -> Result<Summary> {
    if !matches!(model.mix, Mix::F32 | Mix::F16 | Mix::Bf16) {
        bail!("a directory holds f32, f16 or bf16; give --type");
    }
    let mut list = model.tensors();
    for t in &mut list {
        t.ty = model.mix.plain();
    }
    let recurrent: Vec<Whole> =
        list.iter().enumerate().filter_map(|(i, t)| hybrid::whole(model, t, list.get(i + 1))).collect();
    let named: Vec<(String, Tensor)> = if model.shape.arch == Arch::ChatGlm && format == Format::Hf {
        apart(model, list)
    } else if model.shape.arch.has_layer_norm() {
        layernormed::named(model, list)
    } else {
        list.into_iter().filter_map(|t| Some((name_of(&t, model.shape.arch, format)?, t))).collect()
    };
    ensure!((1..=named.len()).contains(&shards), "{shards} shards for {} tensors", named.len());
    let mut named = wholes(named);
    named.extend(recurrent);
    let mut sum = Summary::default();
    for t in named.iter().flat_map(|whole| &whole.parts) {
        sum.parameters += t.rows as u64 * t.cols as u64;
        sum.largest = sum.largest.max(t.bytes()?);
        sum.data += t.bytes()?;
    }
    let mut weight_map = serde_json::Map::new();
    let (mut first, mut done) = (0, 0);
    for i in 0..shards {
        // as many as bring the files so far to their share, but one at least, and one left for each file to come
        let mut n = 0;
        while first + n + (shards - i - 1) < named.len()
            && (n == 0 || i + 1 == shards || done * (shards as u64) < sum.data * (i as u64 + 1))
        {
            done += named[first + n].bytes()?;
            n += 1;
        }
        let file = match shards {
            1 => "model.safetensors".to_string(),
            _ => format!("model-{:05}-of-{shards:05}.safetensors", i + 1),
        };
        let shard = &named[first..first + n];
        write_shard(&dir.join(&file), model, shard)?;
        weight_map.extend(shard.iter().map(|whole| (whole.name.clone(), Value::from(file.as_str()))));
        first += n;
    }
    let (tokenizer, tokenizer_config) =
        tokenizer_json(model.shape.arch, &vocabulary(model.shape.arch, model.shape.vocab as usize));
    let mut files = vec![
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", tokenizer_config),
        ("config.json", if format == Format::Chatglm { own_config(model) } else { config(model) }),
    ];
    if shards > 1 {
        let index = json!({"metadata": {"total_size": sum.data}, "weight_map": weight_map});
        files.push(("model.safetensors.index.json", index));
    }
    for (name, value) in files {
        std::fs::write(dir.join(name), serde_json::to_vec_pretty(&value)?).with_context(|| name.to_string())?;
    }
    Ok(sum)
}

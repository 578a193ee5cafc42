//! Writes an encoder of random weights as a Hugging Face directory, for tests: a BertModel, a RobertaModel, an XLMRobertaModel, a
//! ModernBertModel, a Gemma3TextModel or a NomicBertModel, in each form that such directories have.
//!
//! ```text
//! cargo run --release --example synth_encoder -- bert bert-dir
//! cargo run --release --example synth_encoder -- nomic-original nomic-dir
//! ```
//!
//! `bert`; `bert-prefixed`: names with `bert.` in front, norms of `gamma` and `beta`, and tensors that make no vectors;
//! `roberta` and `xlm-roberta`: a BertModel whose positions begin behind the padding token's id, with their tokenizers (of
//! `tests/data/encoders`); `xlm-roberta-prefixed`: with `roberta.` in front; `bert-dense`: with a layer behind pooling, as LaBSE
//! has; `gemma`: an EmbeddingGemma, windows in three layers of four and two layers behind pooling; `modern`: a ModernBertModel,
//! windows in two layers of three; `modern-masked`: the same as it was published, a ModernBertForMaskedLM with an older config;
//! `modern-silu`: with another gate; `nomic`: as transformers has it; `nomic-original`: names and config of nomic's own code.
//! Both forms of one model have the same weights. Element i of a tensor depends on the tensor's name and on i alone (`synthetic::Noise`).

use anyhow::{Context, Result, bail};
use isobit::internals::formats::synthetic::Noise;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// Tokens of the vocabulary of WordPiece; more than the tokenizers of the others have.
const VOCAB: usize = 262;
const ROBERTA_VOCAB: usize = 420;

/// The tokenizers of RobertaModel and XLMRobertaModel.
const BYTES: &[u8] = include_bytes!("../tests/data/encoders/bytes.json");
const UNIGRAM: &[u8] = include_bytes!("../tests/data/encoders/unigram.json");

/// The shape of one kind.
#[derive(Clone, Copy)]
struct Shape {
    dim: usize,
    heads: usize,
    ffn: usize,
    layers: usize,
    /// positions
    context: usize,
}

const BERT: Shape = Shape { dim: 64, heads: 4, ffn: 96, layers: 3, context: 192 };
const NOMIC: Shape = Shape { dim: 96, heads: 3, ffn: 160, layers: 2, context: 192 };

/// Of a Gemma: heads of 32, one of keys and values; a window of 41 positions, 20 on either side.
const GEMMA: Shape = Shape { dim: 72, heads: 4, ffn: 100, layers: 4, context: 192 };
const GEMMA_HEAD: usize = 32;
const GEMMA_WINDOW: usize = 40;

/// Of a ModernBERT: a window of 20 positions on either side.
const MODERN: Shape = Shape { dim: 64, heads: 4, ffn: 96, layers: 5, context: 192 };
const MODERN_WINDOW: usize = 40;

/// Elements between the two layers behind pooling.
const BETWEEN: usize = 90;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let done = match &args[1..] {
        [form, out] => generate(form, Path::new(out)),
        _ => Err(anyhow::anyhow!("synth_encoder FORM DIRECTORY")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// A tensor: its name in the form, that of its noise, its shape, slowest first, mean and deviation.
type Tensor = (String, String, Vec<usize>, f32, f64);

/// Writes the directory.
pub fn generate(form: &str, out: &Path) -> Result<()> {
    let (list, config) = match form {
        "bert" | "bert-dense" => (bert("", false), config_of_bert()),
        "gemma" => (gemma(), config_of_gemma()),
        "modern" | "modern-silu" => (modern(false), config_of_modern(form)),
        "modern-masked" => (modern(true), config_of_modern(form)),
        "bert-prefixed" => (bert("bert.", false), config_of_bert()),
        "roberta" | "xlm-roberta" => (bert("", true), config_of_roberta(form)),
        "xlm-roberta-prefixed" => (bert("roberta.", true), config_of_roberta("xlm-roberta")),
        "nomic" | "nomic-original" => (nomic(form == "nomic-original"), config_of_nomic(form == "nomic-original")),
        _ => bail!(
            "expected bert, bert-prefixed, bert-dense, gemma, modern, modern-masked, modern-silu, roberta, xlm-roberta, \
             xlm-roberta-prefixed, nomic or nomic-original, found {form}"
        ),
    };
    std::fs::create_dir_all(out.join("1_Pooling"))?;
    write_tensors(&out.join("model.safetensors"), list)?;
    let write = |name: &str, value: &Value| {
        std::fs::write(out.join(name), serde_json::to_vec_pretty(value)?).context(out.display().to_string())
    };
    write("config.json", &config)?;
    match form {
        "roberta" => std::fs::write(out.join("tokenizer.json"), BYTES)?,
        _ if form.starts_with("modern") => write("tokenizer.json", &bytes_as_bert(serde_json::from_slice(BYTES)?))?,
        _ if form.starts_with("xlm") => std::fs::write(out.join("tokenizer.json"), UNIGRAM)?,
        _ => write("tokenizer.json", &tokenizer())?,
    }
    let kind = |name: &str, path: &str| json!({"type": format!("sentence_transformers.models.{name}"), "path": path});
    let mut modules = vec![kind("Transformer", ""), kind("Pooling", "1_Pooling")];
    let layers: &[(&str, usize, usize, bool)] = match form {
        "bert-dense" => &[("2_Dense", BERT.dim, BERT.dim, true)],
        "gemma" => &[("2_Dense", GEMMA.dim, BETWEEN, false), ("3_Dense", BETWEEN, GEMMA.dim, false)],
        _ => &[],
    };
    for &(path, from, to, whole) in layers {
        std::fs::create_dir_all(out.join(path))?;
        let tensor = |what: &str, shape: Vec<usize>| {
            (format!("linear.{what}"), format!("{path}.{what}"), shape, 0.0, root(from))
        };
        let mut list = vec![tensor("weight", vec![to, from])];
        list.extend(whole.then(|| tensor("bias", vec![to])));
        write_tensors(&out.join(path).join("model.safetensors"), list)?;
        let function = if whole { "torch.nn.modules.activation.Tanh" } else { "torch.nn.modules.linear.Identity" };
        let config = json!({"in_features": from, "out_features": to, "bias": whole, "activation_function": function});
        write(&format!("{path}/config.json"), &config)?;
        modules.push(kind("Dense", path));
    }
    if !layers.is_empty() {
        modules.push(kind("Normalize", "4_Normalize"));
        write("modules.json", &modules.into())?;
    }
    let mean = form.starts_with("nomic") || form == "gemma";
    write("1_Pooling/config.json", &json!({"pooling_mode_cls_token": !mean, "pooling_mode_mean_tokens": mean}))
}

fn write_tensors(path: &Path, list: Vec<Tensor>) -> Result<()> {
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = list
        .into_iter()
        .map(|(name, own, shape, mean, std)| {
            // a fused matrix has the rows of those it is made of, so that both forms have the same weights
            let parts: Vec<&str> = own.split('+').collect();
            let n = shape.iter().product::<usize>() / parts.len();
            let each = |part: &&str| {
                let noise = Noise::new(1, part, mean, std);
                (0..n as u64).flat_map(move |i| noise.at(i).to_le_bytes())
            };
            let bytes = parts.iter().flat_map(each).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        Ok((name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).context(name.clone())?))
    });
    let views = views.collect::<Result<Vec<_>>>()?;
    std::fs::write(path, safetensors::serialize(views, None)?).context(path.display().to_string())
}

fn config_of_bert() -> Value {
    let s = BERT;
    json!({"model_type": "bert", "architectures": ["BertModel"], "hidden_size": s.dim, "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads, "intermediate_size": s.ffn, "vocab_size": VOCAB, "hidden_act": "gelu",
        "max_position_embeddings": s.context, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0})
}

fn config_of_roberta(model_type: &str) -> Value {
    let s = BERT;
    json!({"model_type": model_type, "hidden_size": s.dim, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
        "intermediate_size": s.ffn, "vocab_size": ROBERTA_VOCAB, "hidden_act": "gelu", "max_position_embeddings": s.context + 2,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2})
}

fn config_of_gemma() -> Value {
    let s = GEMMA;
    let kinds: Vec<&str> = (0..s.layers).map(|l| if l == 2 { "full_attention" } else { "sliding_attention" }).collect();
    json!({"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], "hidden_size": s.dim,
        "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "num_key_value_heads": 1, "head_dim": GEMMA_HEAD,
        "intermediate_size": s.ffn, "vocab_size": VOCAB, "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": s.context, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": GEMMA_HEAD,
        "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0, "sliding_window": GEMMA_WINDOW, "layer_types": kinds,
        "use_bidirectional_attention": true, "attention_bias": false, "tie_word_embeddings": true,
        "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0})
}

fn config_of_modern(form: &str) -> Value {
    let s = MODERN;
    let act = if form == "modern-silu" { "silu" } else { "gelu" };
    let mut config = json!({"model_type": "modernbert", "hidden_size": s.dim, "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads, "intermediate_size": s.ffn, "vocab_size": ROBERTA_VOCAB, "hidden_activation": act,
        "max_position_embeddings": s.context, "norm_eps": 1e-5, "norm_bias": false, "attention_bias": false,
        "mlp_bias": false, "local_attention": MODERN_WINDOW, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "cls_token_id": 0, "sep_token_id": 2});
    let more = if form == "modern-masked" {
        json!({"architectures": ["ModernBertForMaskedLM"], "global_attn_every_n_layers": 3,
            "global_rope_theta": 80_000.0, "local_rope_theta": 5000.0})
    } else {
        let kinds: Vec<_> =
            (0..s.layers).map(|l| if l % 3 == 0 { "full_attention" } else { "sliding_attention" }).collect();
        json!({"architectures": ["ModernBertModel"], "layer_types": kinds, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 80_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}})
    };
    if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
        config.extend(more);
    }
    config
}

fn config_of_nomic(original: bool) -> Value {
    let s = NOMIC;
    if original {
        return json!({"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": s.dim,
            "n_layer": s.layers, "n_head": s.heads, "n_inner": s.ffn, "vocab_size": VOCAB, "n_positions": 4 * s.context,
            "max_trained_positions": s.context, "type_vocab_size": 2, "layer_norm_epsilon": 1e-12,
            "activation_function": "swiglu", "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": false, "prenorm": false, "causal": false, "qkv_proj_bias": false});
    }
    json!({"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "hidden_size": s.dim,
        "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "intermediate_size": s.ffn, "vocab_size": VOCAB,
        "hidden_act": "silu", "max_position_embeddings": s.context, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}})
}

/// Deviation of a matrix over `n` elements.
fn root(n: usize) -> f64 {
    1.5 / (n as f64).sqrt()
}

/// The two vectors of a norm: what each is called behind the norm's name, and its mean.
const NORM: [(&str, f32); 2] = [("weight", 1.0), ("bias", 0.0)];

/// A BertModel, or (`roberta`) a RobertaModel: two rows of positions more, one type of tokens.
fn bert(prefix: &str, roberta: bool) -> Vec<Tensor> {
    let Shape { dim, ffn, layers, context, .. } = BERT;
    let (vocab, positions, types) = if roberta { (ROBERTA_VOCAB, context + 2, 1) } else { (VOCAB, context, 2) };
    let mut list: Vec<Tensor> = Vec::new();
    let mut add = |name: &str, shape: &[usize], mean: f32, std: f64| {
        let (mut there, own) = (format!("{prefix}{name}"), name.to_string());
        if prefix == "bert." {
            there = there.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
        }
        list.push((there, own, shape.to_vec(), mean, std));
    };
    add("embeddings.word_embeddings.weight", &[vocab, dim], 0.0, 1.0);
    add("embeddings.position_embeddings.weight", &[positions, dim], 0.0, 0.5);
    add("embeddings.token_type_embeddings.weight", &[types, dim], 0.0, 0.5);
    NORM.iter().for_each(|(v, mean)| add(&format!("embeddings.LayerNorm.{v}"), &[dim], *mean, 0.2));
    for l in 0..layers {
        let b = |part: &str| format!("encoder.layer.{l}.{part}");
        for (part, rows, cols, bias) in [
            ("attention.self.query", dim, dim, 0.5),
            ("attention.self.key", dim, dim, 2.0),
            ("attention.self.value", dim, dim, 0.2),
            ("attention.output.dense", dim, dim, 0.2),
            ("intermediate.dense", ffn, dim, 0.3),
            ("output.dense", dim, ffn, 0.2),
        ] {
            add(&b(&format!("{part}.weight")), &[rows, cols], 0.0, root(cols));
            add(&b(&format!("{part}.bias")), &[rows], 0.0, bias);
        }
        for norm in ["attention.output.LayerNorm", "output.LayerNorm"] {
            NORM.iter().for_each(|(v, mean)| add(&b(&format!("{norm}.{v}")), &[dim], *mean, 0.2));
        }
    }
    if prefix == "roberta." {
        add("lm_head.dense.weight", &[dim, dim], 0.0, root(dim));
        add("pooler.dense.bias", &[dim], 0.0, 0.2);
    }
    if prefix == "bert." {
        add("pooler.dense.weight", &[dim, dim], 0.0, root(dim));
        add("pooler.dense.bias", &[dim], 0.0, 0.2);
        let bias = ("cls.predictions.bias".to_string(), "cls".to_string(), vec![VOCAB], 0.0, 0.2);
        list.push(bias);
    }
    list
}

/// A Gemma3TextModel as released for vectors: without `model.` in front. Norms are kept less 1.
fn gemma() -> Vec<Tensor> {
    let Shape { dim, heads, ffn, layers, .. } = GEMMA;
    let (width, kv) = (heads * GEMMA_HEAD, GEMMA_HEAD);
    let mut list: Vec<Tensor> = Vec::new();
    let mut add = |name: String, shape: &[usize], std: f64| list.push((name.clone(), name, shape.to_vec(), 0.0, std));
    add("embed_tokens.weight".into(), &[VOCAB, dim], 0.2);
    for l in 0..layers {
        let own = |part: &str| format!("layers.{l}.{part}.weight");
        for (part, rows, cols) in [
            ("self_attn.q_proj", width, dim),
            ("self_attn.k_proj", kv, dim),
            ("self_attn.v_proj", kv, dim),
            ("self_attn.o_proj", dim, width),
            ("mlp.gate_proj", ffn, dim),
            ("mlp.up_proj", ffn, dim),
            ("mlp.down_proj", dim, ffn),
        ] {
            add(own(part), &[rows, cols], root(cols));
        }
        for (part, n) in [("self_attn.q_norm", GEMMA_HEAD), ("self_attn.k_norm", GEMMA_HEAD)] {
            add(own(part), &[n], 0.3);
        }
        for part in
            ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]
        {
            add(own(part), &[dim], 0.2);
        }
    }
    add("norm.weight".into(), &[dim], 0.2);
    list
}

/// A ModernBertModel, or (`masked`) a ModernBertForMaskedLM.
fn modern(masked: bool) -> Vec<Tensor> {
    let Shape { dim, ffn, layers, .. } = MODERN;
    let prefix = if masked { "model." } else { "" };
    let mut list: Vec<Tensor> = Vec::new();
    let mut add = |name: String, shape: &[usize], mean: f32, std: f64| {
        list.push((format!("{prefix}{name}.weight"), name, shape.to_vec(), mean, std));
    };
    add("embeddings.tok_embeddings".into(), &[ROBERTA_VOCAB, dim], 0.0, 1.0);
    add("embeddings.norm".into(), &[dim], 1.0, 0.2);
    for l in 0..layers {
        let own = |part: &str| format!("layers.{l}.{part}");
        if l > 0 {
            add(own("attn_norm"), &[dim], 1.0, 0.2);
        }
        add(own("mlp_norm"), &[dim], 1.0, 0.2);
        for (part, rows, cols) in
            [("attn.Wqkv", 3 * dim, dim), ("attn.Wo", dim, dim), ("mlp.Wi", 2 * ffn, dim), ("mlp.Wo", dim, ffn)]
        {
            add(own(part), &[rows, cols], 0.0, root(cols));
        }
    }
    add("final_norm".into(), &[dim], 1.0, 0.2);
    if masked {
        for (name, shape) in [
            ("head.dense.weight", vec![dim, dim]),
            ("head.norm.weight", vec![dim]),
            ("decoder.bias", vec![ROBERTA_VOCAB]),
        ] {
            list.push((name.into(), name.into(), shape, 0.0, 0.2));
        }
    }
    list
}

fn nomic(original: bool) -> Vec<Tensor> {
    let Shape { dim, ffn, layers, .. } = NOMIC;
    let mut list: Vec<Tensor> = Vec::new();
    let mut add = |name: &str, own: &str, shape: &[usize], mean: f32, std: f64| {
        list.push((name.to_string(), own.to_string(), shape.to_vec(), mean, std));
    };
    let pick = |there: &'static str, own: &'static str| if original { there } else { own };
    let words = "embeddings.word_embeddings.weight";
    add(words, words, &[VOCAB, dim], 0.0, 1.0);
    let types = "embeddings.token_type_embeddings.weight";
    add(types, types, &[2, dim], 0.0, 0.5);
    let first = pick("emb_ln", "embeddings.LayerNorm");
    for (v, mean) in NORM {
        add(&format!("{first}.{v}"), &format!("embeddings.LayerNorm.{v}"), &[dim], mean, 0.2);
    }
    let layer = pick("encoder.layers", "layers");
    for l in 0..layers {
        let own = |part: &str| format!("layers.{l}.{part}.weight");
        let there = |part: &str| format!("{layer}.{l}.{part}.weight");
        let qkv = ["q_proj", "k_proj", "v_proj"].map(|p| own(&format!("self_attn.{p}")));
        if original {
            add(&there("attn.Wqkv"), &qkv.join("+"), &[3 * dim, dim], 0.0, root(dim));
        } else {
            qkv.iter().for_each(|name| add(name, name, &[dim, dim], 0.0, root(dim)));
        }
        for (old, new, rows, cols) in [
            ("attn.out_proj", "self_attn.o_proj", dim, dim),
            ("mlp.fc11", "mlp.up_proj", ffn, dim),
            ("mlp.fc12", "mlp.gate_proj", ffn, dim),
            ("mlp.fc2", "mlp.down_proj", dim, ffn),
        ] {
            let name = if original { old } else { new };
            add(&there(name), &own(new), &[rows, cols], 0.0, root(cols));
        }
        for (old, new) in [("norm1", "post_attention_layernorm"), ("norm2", "post_mlp_layernorm")] {
            let name = if original { old } else { new };
            for (v, mean) in NORM {
                add(&format!("{layer}.{l}.{name}.{v}"), &format!("layers.{l}.{new}.{v}"), &[dim], mean, 0.2);
            }
        }
    }
    list
}

/// RoBERTa's vocabulary with the special tokens and the steps that a ModernBERT has: NFC, and a template.
fn bytes_as_bert(mut json: Value) -> Value {
    let names = [("<s>", "[CLS]"), ("<pad>", "[PAD]"), ("</s>", "[SEP]"), ("<unk>", "[UNK]"), ("<mask>", "[MASK]")];
    for (old, new) in names {
        if let Some(vocab) = json["model"]["vocab"].as_object_mut()
            && let Some(id) = vocab.shift_remove(old)
        {
            vocab.insert(new.into(), id);
        }
        let added = json["added_tokens"].as_array_mut().into_iter().flatten();
        added.filter(|t| t["content"] == old).for_each(|t| t["content"] = new.into());
    }
    let of = |text: &str| json!({"id": text, "ids": [if text == "[CLS]" { 0 } else { 2 }], "tokens": [text]});
    let special = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let (first, last) = (special("[CLS]"), special("[SEP]"));
    let [a, b] = ["A", "B"].map(|id| json!({"Sequence": {"id": id, "type_id": 0}}));
    json["normalizer"] = json!({"type": "NFC"});
    json["model"]["unk_token"] = "[UNK]".into();
    json["post_processor"] = json!({"type": "TemplateProcessing", "single": [first, a, last],
        "pair": [first, a, last, b, last], "special_tokens": {"[CLS]": of("[CLS]"), "[SEP]": of("[SEP]")}});
    json
}

/// Letters, digits and a few words, as BERT has them.
fn tokenizer() -> Value {
    let mut words: Vec<String> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).to_vec();
    words.extend((b'a'..=b'z').chain(b'0'..=b'9').map(|c| char::from(c).to_string()));
    words.extend((b'a'..=b'z').chain(b'0'..=b'9').map(|c| format!("##{}", char::from(c))));
    words.extend(
        [".", ",", "!", "?", "'", "-", "the", "once", "upon", "time", "king", "##ing", "##s", "sons"].map(String::from),
    );
    words.extend((words.len()..VOCAB).map(|i| format!("[unused{i}]")).collect::<Vec<_>>());
    let vocab: serde_json::Map<String, Value> = words.iter().enumerate().map(|(i, w)| (w.clone(), i.into())).collect();
    let added: Vec<Value> = (0..5)
        .map(|id| {
            json!({"id": id, "content": words[id], "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab},
    })
}

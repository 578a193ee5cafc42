//! ChatGLM and GLM-4: logits against a forward pass in float64 written here, the three file forms of one model against
//! each other, conversion, and the configs that are refused.
//!
//! `arch` compares with transformers' GLM-4, and devices with each other.

use crate::arch::{distance, hyper, ids, logits, open, refused};
use crate::checkpoint::{SMALL, model};
use crate::program;
use crate::window::{norm, times};
use isobit::internals::blocks::{BlockType, f16_to_f32, f32_to_f16};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::generate::tokenizer::Tokenizer;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A model of 8 query heads that share 2 key-value heads, with its three forms.
const MANY_HEADS: &str = "--heads 8 --kv-heads 2 --head-dim 32";

/// As many heads as [`SMALL`] has.
const FEW_HEADS: &str = "--heads 4 --kv-heads 2";

/// A checkpoint of these heads in a form: `gguf`, `hf`, or `chatglm` for ChatGLM's own code.
fn form(format: &str, heads: &str) -> (TempDir, PathBuf) {
    model(&format!("{} --arch chatglm --format {format}", SMALL.replace(FEW_HEADS, heads)))
}

fn own(heads: &str) -> (TempDir, PathBuf) {
    form("chatglm", heads)
}

/// What the published model gives at every position (modeling_chatglm of ChatGLM3-6B and GLM-4-9B, in plain formulas) over
/// the file's own tensors: rotation of neighbouring pairs in the first half of a head by position · base^(-2i/n), query
/// head h over group h / (heads / groups), scores over the root of the head's width, silu(first half) · second half.
fn reference(path: &Path, ids: &[u32]) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(path.join("model.safetensors")).expect("there");
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let tensor = |name: &str| -> Vec<f64> {
        let t = st.tensor(&format!("transformer.{name}")).unwrap_or_else(|e| panic!("{name}: {e}"));
        t.data().chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
    };
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path.join("config.json")).expect("there")).expect("json");
    let number = |key: &str| config[key].as_f64().unwrap_or_else(|| panic!("{key}"));
    let whole = |key: &str| number(key) as usize;
    let (dim, ffn, hd) = (whole("hidden_size"), whole("ffn_hidden_size"), whole("kv_channels"));
    let (heads, groups) = (whole("num_attention_heads"), whole("multi_query_group_num"));
    let (eps, n_rot) = (number("layernorm_epsilon"), hd / 2);
    let base = 10000.0 * config["rope_ratio"].as_f64().unwrap_or(1.0);
    let embedding = tensor("embedding.word_embeddings.weight");
    let mut x: Vec<Vec<f64>> = ids.iter().map(|&id| embedding[id as usize * dim..][..dim].to_vec()).collect();
    let rotate = |head: &mut [f64], pos: usize| {
        for i in 0..n_rot / 2 {
            let (sin, cos) = (pos as f64 * base.powf(-2.0 * i as f64 / n_rot as f64)).sin_cos();
            // the tables are f32 here
            let (sin, cos) = (f64::from(sin as f32), f64::from(cos as f32));
            let (a, b) = (head[2 * i], head[2 * i + 1]);
            (head[2 * i], head[2 * i + 1]) = (a * cos - b * sin, b * cos + a * sin);
        }
    };
    for l in 0..whole("num_layers") {
        let of = |what: &str| tensor(&format!("encoder.layers.{l}.{what}"));
        let (n1, n2) = (of("input_layernorm.weight"), of("post_attention_layernorm.weight"));
        let (wqkv, bias) = (of("self_attention.query_key_value.weight"), of("self_attention.query_key_value.bias"));
        let (wo, wgu, wd) =
            (of("self_attention.dense.weight"), of("mlp.dense_h_to_4h.weight"), of("mlp.dense_4h_to_h.weight"));
        let mut qkv: Vec<Vec<f64>> = x.iter().map(|x| times(&wqkv, &norm(&n1, x, eps))).collect();
        for (pos, row) in qkv.iter_mut().enumerate() {
            row.iter_mut().zip(&bias).for_each(|(v, b)| *v += b);
            row[..(heads + groups) * hd].chunks_exact_mut(hd).for_each(|head| rotate(head, pos));
        }
        for (pos, x) in x.iter_mut().enumerate() {
            let mut attended = vec![];
            for head in 0..heads {
                let group = head / (heads / groups);
                let q = &qkv[pos][head * hd..][..hd];
                let of = |j: usize, first: usize| &qkv[j][(first + group) * hd..][..hd];
                let score = |j: usize| -> f64 {
                    q.iter().zip(of(j, heads)).map(|(a, b)| a * b).sum::<f64>() / (hd as f64).sqrt()
                };
                let scores: Vec<f64> = (0..=pos).map(score).collect();
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let p: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
                let sum: f64 = p.iter().sum();
                let value = |e: usize| p.iter().enumerate().map(|(j, p)| p * of(j, heads + groups)[e]).sum::<f64>();
                attended.extend((0..hd).map(|e| value(e) / sum));
            }
            x.iter_mut().zip(times(&wo, &attended)).for_each(|(x, y)| *x += y);
            let both = times(&wgu, &norm(&n2, x, eps));
            let mid: Vec<f64> = (0..ffn).map(|i| both[i] / (1.0 + (-both[i]).exp()) * both[ffn + i]).collect();
            x.iter_mut().zip(times(&wd, &mid)).for_each(|(x, y)| *x += y);
        }
    }
    let (out, w) = (tensor("encoder.final_layernorm.weight"), tensor("output_layer.weight"));
    x.iter().map(|x| times(&w, &norm(&out, x, eps)).into_iter().map(|v| v as f32).collect()).collect()
}

fn changed(path: &Path, change: impl Fn(&mut serde_json::Value)) {
    let file = path.join("config.json");
    let mut v: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    change(&mut v);
    std::fs::write(&file, v.to_string()).expect("writes");
}

fn same_bits(a: &[Vec<f32>], b: &[Vec<f32>]) -> bool {
    a.iter().flatten().map(|v| v.to_bits()).eq(b.iter().flatten().map(|v| v.to_bits()))
}

fn run(c: &Container, n: usize) -> Vec<Vec<f32>> {
    logits(c, &ids(n), n).unwrap_or_else(|e| panic!("{e:#}"))
}

#[test]
fn logits_are_those_of_the_published_formulas_in_float64() {
    let n = 96;
    for args in [FEW_HEADS, MANY_HEADS] {
        for ratio in [1.0, 500.0] {
            let (_dir, path) = own(&format!("{args} --shards 1"));
            changed(&path, |c| c["rope_ratio"] = ratio.into());
            let (expected, found) = (reference(&path, &ids(n)), run(&open(&path), n));
            let (worst, flips, diff) = distance(&expected, &found);
            println!("{args}, ratio {ratio}: worst KL {worst:.2e}, {flips} top-1 flips, largest difference {diff:.2e}");
            assert!(worst < 1e-9 && flips == 0 && diff < 1e-4, "{args}: {worst} {flips} {diff}");
            // and the comparison sees another base
            changed(&path, |c| c["rope_ratio"] = (ratio * 2.0).into());
            let (worst, _, diff) = distance(&expected, &run(&open(&path), n));
            assert!(worst > 1e-6 && diff > 1e-3, "{args}: {worst} {diff}");
        }
    }
}

#[test]
fn the_three_file_forms_of_the_same_weights_give_the_same_bits() {
    for args in [FEW_HEADS, MANY_HEADS] {
        let forms = [form("gguf", args), form("hf", args), own(args)];
        let [a, b, c] = forms.each_ref().map(|(_, path)| run(&open(path), 40));
        assert!(same_bits(&a, &b), "{args}: GGUF against transformers' form");
        assert!(same_bits(&a, &c), "{args}: GGUF against the form of ChatGLM's own code");
        // without the prefix of its names
        let path = &forms[2].1;
        for file in std::fs::read_dir(path).expect("a directory").map(|e| e.expect("readable").path()) {
            let bytes = std::fs::read(&file).expect("there");
            let at = |from: &[u8]| bytes.windows(from.len()).position(|w| w == from);
            if file.extension().is_some_and(|e| e == "safetensors") || at(b"weight_map").is_some() {
                std::fs::write(&file, without_prefix(&bytes)).expect("writes");
            }
        }
        let d = open(path);
        assert!(d.tensor("encoder.final_layernorm.weight").is_some());
        assert!(same_bits(&a, &run(&d, 40)), "{args}: without a prefix");
    }
}

/// A safetensors file or its index with `transformer.` taken from its names.
fn without_prefix(bytes: &[u8]) -> Vec<u8> {
    let strip =
        |text: &[u8]| String::from_utf8(text.to_vec()).expect("text").replace("\"transformer.", "\"").into_bytes();
    if bytes.starts_with(b"{") {
        return strip(bytes);
    }
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let mut head = strip(&bytes[8..8 + n]);
    head.resize(head.len().next_multiple_of(8), b' ');
    [&(head.len() as u64).to_le_bytes(), &head[..], &bytes[8 + n..]].concat()
}

#[test]
fn every_form_and_the_file_quantize_makes_of_it_give_the_same_bits() {
    type Change<'a> = &'a dyn Fn(&mut serde_json::Value);
    let cases: [(&str, Change); 6] = [
        ("hf", &|_| {}),
        ("hf", &|c| c["rms_norm_eps"] = serde_json::Value::Null),
        ("hf", &|c| c["rope_theta"] = 12345.678.into()),
        ("hf", &|c| c["partial_rotary_factor"] = 0.25.into()),
        ("chatglm", &|_| {}),
        ("chatglm", &|c| (c["rope_ratio"], c["layernorm_epsilon"]) = (500.into(), 1e-6.into())),
    ];
    for (i, (format, change)) in cases.into_iter().enumerate() {
        let (dir, path) = form(format, MANY_HEADS);
        changed(&path, change);
        let gguf = dir.path().join("made.gguf");
        let made = program::isobit(["quantize"]).args([&path, &gguf]).arg("f32").output().expect("it starts");
        assert!(made.status.success(), "case {i}: {}", String::from_utf8_lossy(&made.stderr));
        let [a, b] = [&path, &gguf].map(|p| open(p));
        let [ha, hb] = [&a, &b].map(hyper);
        assert_eq!((ha.n_rot, ha.head_dim, ha.eps, ha.rope_base), (hb.n_rot, hb.head_dim, hb.eps, hb.rope_base));
        assert!(same_bits(&run(&a, 40), &run(&b, 40)), "case {i}: {format}");
        assert_eq!(b.meta.str("tokenizer.ggml.pre"), Some("chatglm-bpe"));
        let [ta, tb] = [&a, &b].map(|c| Tokenizer::read(c).unwrap_or_else(|e| panic!("{e:#}")));
        assert_eq!(ta.start(), tb.start());
        assert_eq!(ta.start().len(), 2);
    }
}

#[test]
fn configs_of_chatglm_that_make_no_model_are_refused_by_name() {
    type Change = fn(&mut serde_json::Value);
    let cases: [(Change, &str); 18] = [
        (|c| c["original_rope"] = false.into(), "original_rope = false is not supported"),
        (|c| c["rmsnorm"] = false.into(), "rmsnorm = false is not supported"),
        (|c| c["post_layer_norm"] = false.into(), "post_layer_norm = false"),
        (|c| c["multi_query_attention"] = false.into(), "multi_query_attention = false"),
        (|c| c["add_bias_linear"] = true.into(), "add_bias_linear = true"),
        (|c| c["apply_residual_connection_post_layernorm"] = true.into(), "post_layernorm = true"),
        (|c| c["quantization_bit"] = 8.into(), "quantization_bit = 8"),
        (|c| c["pre_seq_len"] = 128.into(), "pre_seq_len = 128"),
        (|c| c["position_encoding_2d"] = true.into(), "the first ChatGLM-6B is not supported"),
        (
            |c| (c["_name_or_path"], c["rope_ratio"]) = ("THUDM/chatglm2-6b-32k".into(), 50.into()),
            "rope_ratio = 50.0 of a ChatGLM2",
        ),
        (|c| drop(c.as_object_mut().unwrap().remove("seq_length")), "seq_length is missing"),
        (|c| drop(c.as_object_mut().unwrap().remove("multi_query_group_num")), "multi_query_group_num is missing"),
        (|c| c["multi_query_group_num"] = 3.into(), "4 heads cannot share 3"),
        (|c| c["multi_query_group_num"] = 4.into(), "query_key_value.weight has shape [64, 128]"),
        (|c| c["add_qkv_bias"] = false.into(), "query_key_value.bias has no place in a chatglm model"),
        (|c| c["ffn_hidden_size"] = 95.into(), "dense_h_to_4h.weight has shape [64, 192]"),
        (|c| c["kv_channels"] = 20.into(), "query_key_value.weight has shape"),
        (|c| c["padded_vocab_size"] = 263.into(), "word_embeddings.weight has shape"),
    ];
    for (change, expected) in cases {
        let (_dir, path) = own(FEW_HEADS);
        changed(&path, change);
        let error = refused(&path);
        assert!(error.contains(expected), "{expected:?} in {error:?}");
    }
    for (change, expected) in [
        ((|c| c["attention_bias"] = false.into()) as Change, "q_proj.bias has no place in a chatglm model"),
        (|c| c["partial_rotary_factor"] = 1.5.into(), "partial_rotary_factor is 1.5"),
        (|c| c["hidden_act"] = "gelu".into(), "hidden_act"),
        (|c| c["model_type"] = "glm4".into(), "post_self_attn_layernorm.weight is missing"),
        (|c| c["model_type"] = "chatglm".into(), "multi_query_attention = false"),
    ] {
        let (_dir, path) = form("hf", FEW_HEADS);
        changed(&path, change);
        let error = refused(&path);
        assert!(error.contains(expected), "{expected:?} in {error:?}");
    }
}

/// Rewrites a checkpoint as ChatGLM's INT4: a scale of f16 a row, signed nibbles, the even columns high. `alter` may change
/// a tensor's name, dtype, shape and bytes.
fn as_int4(path: &Path, alter: impl Fn(&mut String, &mut Dtype, &mut Vec<usize>, &mut Vec<u8>)) {
    let file = path.join("model.safetensors");
    let bytes = std::fs::read(&file).expect("there");
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut list: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = vec![];
    for (name, t) in st.tensors() {
        let matrix = name.contains(".layers.") && t.shape().len() == 2;
        if !matrix {
            list.push((name, t.dtype(), t.shape().to_vec(), t.data().to_vec()));
            continue;
        }
        let [n, k] = t.shape()[..] else { panic!("a matrix") };
        let values: Vec<f32> = t.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let (mut nibbles, mut scales) = (vec![], vec![]);
        for row in values.chunks_exact(k) {
            let bits = f32_to_f16(row.iter().fold(0f32, |m, v| m.max(v.abs())) / 7.0);
            scales.extend(bits.to_le_bytes());
            let code = |v: f32| (v / f16_to_f32(bits)).round().clamp(-8.0, 7.0) as i8 as u8 & 15;
            nibbles.extend(row.chunks_exact(2).map(|pair| code(pair[0]) << 4 | code(pair[1])));
        }
        list.push((format!("{name}_scale"), Dtype::F16, vec![n], scales));
        list.push((name, Dtype::I8, vec![n, k / 2], nibbles));
    }
    for (name, dtype, shape, bytes) in &mut list {
        alter(name, dtype, shape, bytes);
    }
    let views: Vec<_> = list
        .iter()
        .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).expect("a view")))
        .collect();
    std::fs::write(&file, safetensors::serialize(views, None).expect("serialises")).expect("writes");
    changed(path, |c| c["quantization_bit"] = 4.into());
}

#[test]
fn an_int4_checkpoint_has_the_weights_that_its_nibbles_and_scales_say() {
    let (dir, path) = form("chatglm", &format!("{FEW_HEADS} --shards 1"));
    let floats = run(&open(&path), 40);
    as_int4(&path, |_, _, _, _| {});
    let (c, bytes) = (open(&path), std::fs::read(path.join("model.safetensors")).expect("there"));
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut seen = 0;
    for t in c.tensors.iter().filter(|t| t.dtype.name() == "Q4_0") {
        let [k, n] = t.shape[..] else { panic!("a matrix") };
        let (nibbles, scales) = (st.tensor(&t.name).unwrap(), st.tensor(&format!("{}_scale", t.name)).unwrap());
        let scale = |row: usize| f16_to_f32(u16::from_le_bytes([scales.data()[2 * row], scales.data()[2 * row + 1]]));
        let signed = |n: u8| f32::from(((n << 4) as i8) >> 4);
        let pairs = nibbles.data().iter().enumerate();
        let wanted: Vec<f32> =
            pairs.flat_map(|(i, b)| [b >> 4, b & 15].map(|n| signed(n) * scale(i / (k as usize / 2)))).collect();
        let mut blocks = vec![0; t.bytes as usize];
        c.read(t, 0, &mut blocks).expect("readable");
        let mut found = vec![0f32; (n * k) as usize];
        BlockType::Q4_0.decode_row(&blocks, &mut found);
        assert!(found.iter().zip(&wanted).all(|(a, b)| a == b), "{}", t.name);
        // any part is that part of the whole
        for (at, len) in [(0, 1), (17, 3), (18, 18), (5, 100), (blocks.len() - 7, 7)] {
            let mut part = vec![0xaa; len];
            c.read(t, at as u64, &mut part).expect("readable");
            assert!(part == blocks[at..at + len], "{} {at}..{}", t.name, at + len);
        }
        seen += 1;
    }
    assert_eq!(seen, 8);
    // another model, but near; and the file made of it is the same one
    let ints = run(&c, 40);
    let (worst, _, _) = distance(&floats, &ints);
    println!("INT4 against F32: worst KL {worst:.2e}");
    assert!(worst > 1e-6 && worst < 0.5, "{worst}");
    let gguf = dir.path().join("made.gguf");
    let made = program::isobit(["quantize"]).args([&path, &gguf]).arg("copy").output().expect("it starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(same_bits(&ints, &run(&open(&gguf), 40)));
}

#[test]
fn int4_checkpoints_that_are_not_whole_are_refused_by_name() {
    type Alter = fn(&mut String, &mut Dtype, &mut Vec<usize>, &mut Vec<u8>);
    let cases: [(Alter, &str); 6] = [
        (
            |name, _, _, _| {
                if name.ends_with("layers.1.mlp.dense_4h_to_h.weight_scale") {
                    *name = name.replace("_scale", "_skale");
                }
            },
            "a matrix of I8 without scales",
        ),
        (
            |name, dtype, _, _| {
                if name.ends_with("layers.1.mlp.dense_4h_to_h.weight") {
                    *dtype = Dtype::U8;
                }
            },
            "scales of nothing",
        ),
        (
            |name, _, shape, bytes| {
                if name.ends_with("weight_scale") {
                    bytes.truncate(bytes.len() - 2);
                    shape[0] -= 1;
                }
            },
            "a scale for each row of its matrix",
        ),
        (
            |name, dtype, _, _| {
                if name.ends_with("weight_scale") {
                    *dtype = Dtype::BF16;
                }
            },
            "scales of another type: expected F16, or F32 with values of F16, found BF16",
        ),
        (
            |name, dtype, _, bytes| {
                if name.ends_with("weight_scale") {
                    *dtype = Dtype::F32;
                    *bytes = bytes.chunks_exact(2).flat_map(|_| 0.1f32.to_le_bytes()).collect();
                }
            },
            "a scale that no Q4_0 block can hold: expected a value of F16, found 0.1",
        ),
        (
            |_, dtype, shape, bytes| {
                if *dtype == Dtype::I8 {
                    *bytes = bytes.chunks_exact(shape[1]).flat_map(|row| &row[..shape[1] - 1]).copied().collect();
                    shape[1] -= 1;
                }
            },
            "rows that are not whole Q4_0 blocks",
        ),
    ];
    for (alter, expected) in cases {
        let (_dir, path) = form("chatglm", &format!("{FEW_HEADS} --shards 1"));
        as_int4(&path, alter);
        let error = Container::open(&path, LoadMode::Read).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("model.safetensors"), "{expected:?} in {error:?}");
    }
    // scales of f32 that f16 holds are as good
    let (_dir, path) = form("chatglm", &format!("{FEW_HEADS} --shards 1"));
    as_int4(&path, |name, dtype, _, bytes| {
        if name.ends_with("weight_scale") {
            *dtype = Dtype::F32;
            let value = |b: &[u8]| f16_to_f32(u16::from_le_bytes([b[0], b[1]])).to_le_bytes();
            *bytes = bytes.chunks_exact(2).flat_map(value).collect();
        }
    });
    assert_eq!(run(&open(&path), 4).len(), 4);
}

#[test]
fn a_model_without_biases_runs_where_its_file_says_so() {
    let (_dir, path) = own(&format!("{FEW_HEADS} --shards 1"));
    let with = run(&open(&path), 16);
    // biases of zero, then none: the same model
    let file = path.join("model.safetensors");
    let bytes = std::fs::read(&file).expect("there");
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let write = |keep: bool| {
        let zeros = vec![0u8; 4096];
        let list: Vec<_> = st
            .tensors()
            .into_iter()
            .filter(|(name, _)| keep || !name.ends_with(".bias"))
            .map(|(name, t)| {
                let data = if name.ends_with(".bias") { &zeros[..t.data().len()] } else { t.data() };
                let view = TensorView::new(t.dtype(), t.shape().to_vec(), data);
                (name, view.expect("a view"))
            })
            .collect();
        let bytes = safetensors::serialize(list, None).expect("serialises");
        std::fs::write(&file, bytes).expect("writes");
        changed(&path, |c| c["add_qkv_bias"] = json!(keep));
        run(&open(&path), 16)
    };
    let (zeros, none) = (write(true), write(false));
    assert!(same_bits(&zeros, &none) && !same_bits(&with, &none));
}

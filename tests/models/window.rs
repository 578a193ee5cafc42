//! Sliding windows: logits against a forward pass in float64 written here, which token a query stops seeing, and the same
//! digest on every device, at every batch, with every cache type and whatever the pages.

use crate::checkpoint::{SMALL, model};
use crate::common;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::meta::Value;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::verify::{Script, verify};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::Device;
use isobit::internals::simd::Level;
use std::path::Path;

fn open(path: &Path) -> Container {
    Container::open(path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

/// A model in a directory, with keys of its config.json replaced.
fn changed(path: &Path, keys: &[(&str, serde_json::Value)]) -> Container {
    let mut c = open(path);
    let config = c.config.as_mut().expect("a directory has one");
    for (key, value) in keys {
        config[*key] = value.clone();
    }
    c
}

fn options(n_ctx: usize, cache: CacheType) -> SessionOptions {
    let plan =
        PlanOptions { n_ctx, ubatch: 48, max_out: n_ctx, k_type: cache, v_type: cache, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

/// Logits of every position, on the CPU with caches of f32.
fn logits(c: &Container, ids: &[u32]) -> Vec<Vec<f32>> {
    let h = Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"));
    let mut device = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let mut rows = Vec::new();
    pollster::block_on(async {
        let mut s = Session::new(&mut device, c, &h, options(ids.len(), CacheType::F32), |_| {}).await?;
        s.feed(ids, Want::From(0), |_, l| {
            rows.push(l.to_vec());
            Ok(())
        })
        .await
    })
    .unwrap_or_else(|e| panic!("{e:#}"));
    rows
}

/// The ids of `tests/data/arch/make.py`.
fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + i * i * 5 + 11) % 262).collect()
}

// ---------------------------------------------------------------- float64

/// y = W x, W `[rows][x.len()]`
pub(super) fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

pub(super) fn norm(w: &[f64], x: &[f64], eps: f64) -> Vec<f64> {
    let scale = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + eps).sqrt();
    x.iter().zip(w).map(|(x, w)| x * scale * w).collect()
}

/// What a Phi-3 without RoPE scaling gives at every position: the textbook's formulas over the file's own tensors, a query
/// at p seeing the keys j with j <= p and j > p - window.
fn reference(path: &Path, ids: &[u32], window: usize) -> Vec<Vec<f32>> {
    let files = std::fs::read_dir(path).expect("a directory").map(|e| e.expect("readable").path());
    let shards: Vec<Vec<u8>> = files
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .map(|p| std::fs::read(p).expect("readable"))
        .collect();
    let tensor = |name: &str| -> Vec<f64> {
        let of = |bytes| safetensors::SafeTensors::deserialize(bytes).expect("safetensors").tensor(name).ok();
        let t = shards.iter().find_map(|bytes| of(bytes)).unwrap_or_else(|| panic!("{name} is in no shard"));
        t.data().chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
    };
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path.join("config.json")).expect("there")).expect("json");
    let eps = config["rms_norm_eps"].as_f64().expect("a number");
    let base = config["rope_theta"].as_f64().expect("a number");
    let (dim, heads, kv_heads, ffn) = (64, 4, 2, 96);
    let hd = dim / heads;
    let embedding = tensor("model.embed_tokens.weight");
    let mut x: Vec<Vec<f64>> = ids.iter().map(|&id| embedding[id as usize * dim..][..dim].to_vec()).collect();
    let rotate = |head: &mut [f64], pos: usize| {
        for i in 0..hd / 2 {
            let (sin, cos) = (pos as f64 * base.powf(-2.0 * i as f64 / hd as f64)).sin_cos();
            // the tables are f32 in transformers and here
            let (sin, cos) = (f64::from(sin as f32), f64::from(cos as f32));
            let (a, b) = (head[i], head[i + hd / 2]);
            (head[i], head[i + hd / 2]) = (a * cos - b * sin, a * sin + b * cos);
        }
    };
    for l in 0..2 {
        let of = |what: &str| tensor(&format!("model.layers.{l}.{what}.weight"));
        let (wqkv, wo, n1) = (of("self_attn.qkv_proj"), of("self_attn.o_proj"), of("input_layernorm"));
        let (wgu, wd, n2) = (of("mlp.gate_up_proj"), of("mlp.down_proj"), of("post_attention_layernorm"));
        let mut qkv: Vec<Vec<f64>> = x.iter().map(|x| times(&wqkv, &norm(&n1, x, eps))).collect();
        for (pos, row) in qkv.iter_mut().enumerate() {
            row[..(heads + kv_heads) * hd].chunks_exact_mut(hd).for_each(|head| rotate(head, pos));
        }
        for (pos, x) in x.iter_mut().enumerate() {
            let mut attended = vec![];
            for head in 0..heads {
                let kv = head / (heads / kv_heads);
                let q = &qkv[pos][head * hd..][..hd];
                let seen: Vec<usize> = (0..=pos).filter(|j| j + window > pos).collect();
                let score = |j: usize| -> f64 {
                    let k = &qkv[j][(heads + kv) * hd..][..hd];
                    q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() / (hd as f64).sqrt()
                };
                let p: Vec<f64> = seen.iter().map(|&j| score(j).exp()).collect();
                let sum: f64 = p.iter().sum();
                attended.extend((0..hd).map(|e| {
                    let value = |j: usize| qkv[j][(heads + kv_heads + kv) * hd + e];
                    seen.iter().zip(&p).map(|(&j, p)| p * value(j)).sum::<f64>() / sum
                }));
            }
            x.iter_mut().zip(times(&wo, &attended)).for_each(|(x, y)| *x += y);
            let both = times(&wgu, &norm(&n2, x, eps));
            let mid: Vec<f64> = (0..ffn).map(|i| both[i] / (1.0 + (-both[i]).exp()) * both[ffn + i]).collect();
            x.iter_mut().zip(times(&wd, &mid)).for_each(|(x, y)| *x += y);
        }
    }
    let (out, w) = (tensor("model.norm.weight"), tensor("lm_head.weight"));
    x.iter().map(|x| times(&w, &norm(&out, x, eps)).into_iter().map(|v| v as f32).collect()).collect()
}

/// The largest difference of a logit.
fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn the_forward_pass_in_float64_agrees_with_transformers_where_nothing_is_windowed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch/logits.safetensors");
    let bytes = std::fs::read(path).expect("the reference is there");
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let t = st.tensor("phi3").expect("the case is there");
    let values: Vec<f32> = t.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let recorded: Vec<Vec<f32>> = values.chunks(t.shape()[1]).map(<[f32]>::to_vec).collect();
    let (_dir, path) = model(&format!("{SMALL} --format hf --arch phi3"));
    let found: Vec<Vec<f32>> = reference(&path, &ids(64), 1 << 30).into_iter().step_by(4).collect();
    let diff = difference(&recorded, &found);
    assert!(diff < 1e-5, "{diff:e}");
}

#[test]
fn a_windowed_phi3_agrees_with_float64_at_every_position() {
    let (_dir, path) = model(&format!("{SMALL} --format hf --arch phi3"));
    let ids = ids(200);
    for window in [1, 40, 64, 100, 130, 199, 200] {
        let found = logits(&changed(&path, &[("sliding_window", window.into())]), &ids);
        let diff = difference(&reference(&path, &ids, window), &found);
        let off_by_one = difference(&reference(&path, &ids, window + 1), &found);
        println!("window {window}: largest difference {diff:.2e}; with one position more {off_by_one:.2e}");
        assert!(diff < 1e-4, "window {window}: {diff:e}");
        // and the comparison sees a window that is one too long
        assert!(window == 200 || off_by_one > 1e-3, "window {window}: {off_by_one:e}");
    }
}

#[test]
fn every_layer_of_a_phi3_sees_the_window_and_no_position_more() {
    let (_dir, path) = model(&format!("{SMALL} --format hf --arch phi3"));
    let c = changed(&path, &[("sliding_window", 10.into())]);
    let mut ids = ids(90);
    let last = |ids: &[u32]| logits(&c, ids)[89].iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let before = last(&ids);
    // two layers reach back 9 positions each
    ids[89 - 19] += 1;
    assert_eq!(last(&ids), before);
    ids[89 - 18] += 1;
    assert_ne!(last(&ids), before);
}

#[test]
fn of_a_qwen_the_layers_from_max_window_layers_on_have_the_window_or_those_that_layer_types_names() {
    let (_dir, path) = model(&format!("{SMALL} --format hf --arch qwen2"));
    let window = |keys: &[(&str, serde_json::Value)]| {
        let mut all = vec![("sliding_window", 10.into()), ("use_sliding_window", true.into())];
        all.extend(keys.iter().cloned());
        let h = Hyper::read(&changed(&path, &all)).unwrap_or_else(|e| panic!("{e:#}"));
        ([0, 1].map(|l| h.window_of(l)), h.window_text())
    };
    let text = |t: &str| Some(t.to_string());
    assert_eq!(window(&[]), ([None, None], None), "28 layers go before");
    assert_eq!(window(&[("max_window_layers", 0.into())]), ([Some(10), Some(10)], text("10")));
    assert_eq!(window(&[("max_window_layers", 1.into())]), ([None, Some(10)], text("10 in 1 of 2 layers")));
    assert_eq!(window(&[("max_window_layers", 0.into()), ("use_sliding_window", false.into())]), ([None, None], None));
    let types = serde_json::json!(["sliding_attention", "full_attention"]);
    assert_eq!(window(&[("layer_types", types)]), ([Some(10), None], text("10 in 1 of 2 layers")));
    for (types, expected) in [
        (
            serde_json::json!(["sliding_attention"]),
            "1 layers are said to have a sliding window or none, and there are 2",
        ),
        (serde_json::json!(["sliding_attention", "linear_attention"]), "layer_types has \"linear_attention\""),
    ] {
        let keys = [("sliding_window", 10.into()), ("use_sliding_window", true.into()), ("layer_types", types)];
        let error = format!("{:#}", Hyper::read(&changed(&path, &keys)).expect_err("must be refused"));
        assert!(error.contains(expected), "{error}");
    }
    // the first layer sees everything, so the last position depends on a token that the second does not see
    let c = changed(
        &path,
        &[("sliding_window", 10.into()), ("use_sliding_window", true.into()), ("max_window_layers", 1.into())],
    );
    let mut ids = ids(90);
    let before = logits(&c, &ids);
    ids[20] += 1;
    let after = logits(&c, &ids);
    assert!(before[89] != after[89] && before[19] == after[19]);
}

// ---------------------------------------------------------------- words

fn cpu(level: Option<Level>, max_binding: Option<u64>) -> Box<dyn Device> {
    Box::new(CpuDevice::new(CpuOptions { level, threads: 0, max_binding }).expect("threads start"))
}

/// The digest of a script of 100 tokens and more in batches of 1, 3, 7 and 64: on this CPU's best level, or everywhere.
fn digest(c: &Container, o: SessionOptions, everywhere: bool, max_binding: Option<u64>) -> String {
    let h = Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"));
    let mut devices = vec![cpu(Some(Level::detect()), max_binding)];
    if everywhere {
        devices.push(cpu(None, max_binding));
        devices.extend(Level::available().into_iter().map(|l| cpu(Some(l), max_binding)));
        devices.extend(common::boxed_gpus(max_binding));
    }
    let script = Script { prompt: ids(104), generate: 6, batches: vec![1, 3, 7, 64] };
    let r = pollster::block_on(verify(&mut devices, c, &h, o, &script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
    println!("{} devices, {} commands, {} words, digest {}", devices.len(), r.commands, r.words, r.digest);
    assert_eq!(r.mismatches, 0, "{:?}", r.first);
    assert!(r.ok() && (r.words > 0 || !everywhere), "{:?} against {}", r.digests, r.digest);
    r.digest
}

#[test]
fn a_windowed_phi3_has_the_same_words_on_every_device_in_every_batch_and_in_pages() {
    let (_dir, path) = model("--preset phi3-tiny");
    // binding limits that hold 64 positions of a layer's keys; those of tq3_1 are smaller than the ring of recent positions
    for (cache, limit) in
        [(CacheType::F16, Some(33 << 10)), (CacheType::Q8_0, Some(20 << 10)), (CacheType::TQ3_1, None)]
    {
        let mut o = options(112, cache);
        (o.plan.ubatch, o.plan.max_out) = (64, 1);
        let mut c = open(&path);
        let whole = digest(&c, o, false, None);
        c.meta.entries.push(("phi3.attention.sliding_window".into(), Value::U32(40)));
        let windowed = digest(&c, o, true, None);
        assert_ne!(whole, windowed, "{}: the window changes what is seen", cache.name());
        let plain = SessionOptions { fuse: Fuse::Off, ..o };
        assert_eq!(digest(&c, plain, false, None), windowed, "{}: plain against fused", cache.name());
        if limit.is_some() {
            let mut small = o;
            small.plan.ubatch = 7;
            assert_eq!(digest(&c, small, true, limit), windowed, "{}: in pages", cache.name());
        }
        // a window as long as the session is none
        c.meta.entries.last_mut().expect("just pushed").1 = Value::U32(128);
        assert_eq!(digest(&c, o, false, None), whole, "{}: a window longer than all positions", cache.name());
    }
}

//! Accuracy against references made elsewhere: logits in float64, perplexities by llama.cpp's protocol.
//!
//! These are the only tests with a bound instead of equality: they compare with another arithmetic, not with ourselves.

use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use std::path::PathBuf;

fn data(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny")).join(name)
}

fn open(name: &str) -> Container {
    let path = match name {
        "Q4_K_M" => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf")),
        "hf" => data("hf"),
        _ => data(&format!("tiny-stories-{name}.gguf")),
    };
    Container::open(&path, LoadMode::Read).expect("the test model opens")
}

fn options(n_ctx: usize, digits: usize, cache: CacheType) -> SessionOptions {
    let plan = PlanOptions {
        n_ctx,
        ubatch: n_ctx,
        max_out: n_ctx,
        digits,
        k_type: cache,
        v_type: cache,
        ..PlanOptions::default()
    };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

fn logits(c: &Container, ids: &[u32], digits: usize, cache: CacheType) -> Vec<Vec<f32>> {
    let h = Hyper::read(c).expect("hyperparameters");
    let mut device = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let mut rows = Vec::new();
    pollster::block_on(async {
        let mut s = Session::new(&mut device, c, &h, options(64, digits, cache), |_| {}).await?;
        s.feed(ids, Want::From(0), |_, l| {
            rows.push(l.to_vec());
            Ok(())
        })
        .await
    })
    .expect("the model runs");
    rows
}

fn reference(file: &str, key: &str) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(data(file)).expect("the reference is there");
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("the reference is safetensors");
    let t = st.tensor(key).expect("the key is there");
    let values: Vec<f32> = t.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    values.chunks(t.shape()[1]).map(<[f32]>::to_vec).collect()
}

fn softmax(l: &[f32]) -> Vec<f64> {
    let max = l.iter().fold(f32::MIN, |m, v| m.max(*v));
    let e: Vec<f64> = l.iter().map(|v| f64::from(v - max).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

/// KL divergence of `found` from `expected`.
fn kl(expected: &[f32], found: &[f32]) -> f64 {
    softmax(expected).iter().zip(softmax(found)).map(|(p, q)| if *p > 0.0 { p * (p / q).ln() } else { 0.0 }).sum()
}

fn top(l: &[f32]) -> u32 {
    isobit::internals::generate::verify::argmax(l)
}

fn prompt_ids() -> Vec<u32> {
    let v: serde_json::Value =
        serde_json::from_slice(&std::fs::read(data("reference.json")).expect("there")).expect("json");
    v["prompt_ids"].as_array().expect("ids").iter().map(|i| i.as_u64().expect("id") as u32).collect()
}

/// (worst KL divergence, positions whose top-1 differs, largest difference of a logit)
fn distance(expected: &[Vec<f32>], found: &[Vec<f32>]) -> (f64, usize, f32) {
    assert_eq!(expected.len(), found.len());
    let (mut worst, mut flips, mut diff) = (0f64, 0, 0f32);
    for (e, f) in expected.iter().zip(found) {
        assert_eq!(e.len(), f.len());
        worst = worst.max(kl(e, f));
        flips += usize::from(top(e) != top(f));
        diff = e.iter().zip(f).fold(diff, |m, (a, b)| m.max((a - b).abs()));
    }
    (worst, flips, diff)
}

#[test]
fn the_f16_model_agrees_with_the_float64_logits_at_every_position() {
    let ids = prompt_ids();
    let expected = reference("reference_logits.safetensors", "logits");
    for cache in [CacheType::F32, CacheType::F16] {
        let (worst, flips, diff) = distance(&expected, &logits(&open("f16"), &ids, 1, cache));
        println!(
            "f16, cache {}: worst KL {worst:.2e}, {flips} top-1 flips, largest difference {diff:.2e}",
            cache.name()
        );
        assert_eq!(flips, 0);
        assert!(worst < 1e-5, "{worst}");
        assert!(diff < if cache == CacheType::F32 { 1e-4 } else { 1e-2 }, "{diff}");
    }
}

#[test]
fn the_hugging_face_directory_gives_the_same_model() {
    let ids = prompt_ids();
    let expected = reference("reference_logits.safetensors", "logits");
    let (worst, flips, diff) = distance(&expected, &logits(&open("hf"), &ids, 1, CacheType::F32));
    println!("hf: worst KL {worst:.2e}, {flips} top-1 flips, largest difference {diff:.2e}");
    assert_eq!(flips, 0);
    assert!(diff < 1e-4, "{diff}");
}

#[test]
fn quantised_models_agree_with_their_dequantised_weights_and_16_bit_activations_agree_better() {
    let ids = prompt_ids();
    for (name, key, bound8, bound16) in
        [("Q8_0", "q8_0", 1e-2, 1e-5), ("Q4_0", "q4_0", 2e-2, 1e-5), ("Q4_K_M", "q4_k_m", 2e-2, 1e-5)]
    {
        let expected = reference("reference_logits_gguf.safetensors", key);
        let c = open(name);
        let (kl8, flips8, diff8) = distance(&expected, &logits(&c, &ids, 1, CacheType::F32));
        let (kl16, flips16, diff16) = distance(&expected, &logits(&c, &ids, 2, CacheType::F32));
        println!(
            "{name}: 8 bits: worst KL {kl8:.2e}, {flips8} flips, {diff8:.2e}; 16 bits: {kl16:.2e}, {flips16} flips, {diff16:.2e}"
        );
        assert!(kl8 < bound8, "{name} with 8 bits: {kl8}");
        assert!(kl16 < bound16 && kl16 < kl8, "{name} with 16 bits: {kl16}");
        assert_eq!(flips16, 0, "{name}");
    }
}

fn perplexity(name: &str, digits: usize, cache: CacheType) -> f64 {
    let c = open(name);
    let h = Hyper::read(&c).expect("hyperparameters");
    let tok = Tokenizer::from_gguf(&c.meta).expect("tokeniser");
    let text = std::fs::read_to_string(data("valid.txt")).expect("the text is there");
    let mut ids = tok.encode(&text, true, false).expect("the text is tokenised");
    assert_eq!(ids.len(), 33_984);
    let mut device = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let (mut nll, mut n) = (0f64, 0u32);
    pollster::block_on(async {
        let mut s = Session::new(&mut device, &c, &h, options(512, digits, cache), |_| {}).await?;
        for window in ids.chunks_exact_mut(512) {
            window[0] = tok.bos().expect("the model has one");
            s.reset();
            let targets = window.to_vec();
            s.feed(&window[..511], Want::From(256), |i, l| {
                nll -= softmax(l)[targets[i + 1] as usize].ln();
                n += 1;
                Ok(())
            })
            .await?;
        }
        anyhow::Ok(())
    })
    .expect("the model runs");
    assert_eq!(n, 16_830);
    (nll / f64::from(n)).exp()
}

fn within(name: &str, expected: f64, bound: f64) {
    let found = perplexity(name, 1, CacheType::F16);
    println!("{name}: perplexity {found:.4}, float64 {expected:.4}, {:+.3} %", (found / expected - 1.0) * 100.0);
    assert!((found / expected - 1.0).abs() < bound, "{name}: {found} against {expected}");
}

#[test]
fn perplexity_of_the_f16_model_is_the_float64_figure() {
    within("f16", 23.8321, 0.0001);
}

#[test]
fn perplexity_of_the_q8_0_model_is_near_the_float64_figure() {
    within("Q8_0", 23.8382, 0.003);
}

#[test]
fn perplexity_of_the_q4_0_model_is_near_the_float64_figure() {
    within("Q4_0", 24.3189, 0.003);
}

#[test]
fn perplexity_of_the_q4_k_m_model_is_near_the_float64_figure() {
    within("Q4_K_M", 24.0461, 0.003);
}

#[test]
fn greedy_text_of_the_f16_model_is_the_reference_text() {
    let v: serde_json::Value =
        serde_json::from_slice(&std::fs::read(data("reference.json")).expect("there")).expect("json");
    let expected: Vec<u32> =
        v["greedy_ids"].as_array().expect("ids").iter().map(|i| i.as_u64().expect("id") as u32).collect();
    let c = open("f16");
    let h = Hyper::read(&c).expect("hyperparameters");
    let mut device = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let mut found = Vec::new();
    pollster::block_on(async {
        let mut s = Session::new(&mut device, &c, &h, options(128, 1, CacheType::F16), |_| {}).await?;
        let mut feed = prompt_ids();
        while found.len() < expected.len() {
            let mut next = 0;
            s.feed(&feed, Want::Last, |_, l| {
                next = top(l);
                Ok(())
            })
            .await?;
            found.push(next);
            feed = vec![next];
        }
        anyhow::Ok(())
    })
    .expect("the model runs");
    assert_eq!(found, expected);
}

//! Architectures: logits against Hugging Face transformers, equal digests of both file forms and on every device, and
//! one clear line for metadata that make no model.
//!
//! The checkpoints are synthetic, written by `examples/synth_model.rs` when a test runs; `tests/data/arch` holds what
//! transformers makes of the same ones.

mod devices;
mod forms;

pub(super) use devices::{same_words_everywhere, same_words_of};

use crate::checkpoint::{SMALL, model};
use crate::{common, program};
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::verify::{Report, Script, argmax, prompt, verify};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::hyper::RopeScaling;
use isobit::internals::models::{Experts, Hyper, PlanOptions, Rotation};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::{Device, Op};
use isobit::internals::simd::Level;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(super) fn open(path: &Path) -> Container {
    Container::open(path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn hyper(c: &Container) -> Hyper {
    Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"))
}

fn options(n_ctx: usize, digits: usize, cache: CacheType) -> SessionOptions {
    let plan = PlanOptions {
        n_ctx,
        ubatch: n_ctx.min(48),
        max_out: n_ctx,
        digits,
        k_type: cache,
        v_type: cache,
        ..PlanOptions::default()
    };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

/// Logits of every position, on the CPU with caches of f32.
pub(super) fn logits(c: &Container, ids: &[u32], n_ctx: usize) -> anyhow::Result<Vec<Vec<f32>>> {
    logits_of(c, &Hyper::read(c)?, ids, n_ctx)
}

/// The same with other hyperparameters than the container's.
pub(super) fn logits_of(c: &Container, h: &Hyper, ids: &[u32], n_ctx: usize) -> anyhow::Result<Vec<Vec<f32>>> {
    let mut device = CpuDevice::new(CpuOptions::default())?;
    let mut rows = Vec::new();
    pollster::block_on(async {
        let mut s = Session::new(&mut device, c, h, options(n_ctx, 1, CacheType::F32), |_| {}).await?;
        s.feed(ids, Want::From(0), |_, l| {
            rows.push(l.to_vec());
            Ok(())
        })
        .await
    })?;
    Ok(rows)
}

fn softmax(l: &[f32]) -> Vec<f64> {
    let max = l.iter().fold(f32::MIN, |m, v| m.max(*v));
    let e: Vec<f64> = l.iter().map(|v| f64::from(v - max).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

/// (worst KL divergence, positions whose top-1 differs, largest difference of a logit)
pub(super) fn distance(expected: &[Vec<f32>], found: &[Vec<f32>]) -> (f64, usize, f32) {
    assert_eq!(expected.len(), found.len());
    let (mut worst, mut flips, mut diff) = (0f64, 0, 0f32);
    for (e, f) in expected.iter().zip(found) {
        assert_eq!(e.len(), f.len());
        let kl = softmax(e).iter().zip(softmax(f)).map(|(p, q)| if *p > 0.0 { p * (p / q).ln() } else { 0.0 }).sum();
        worst = worst.max(kl);
        flips += usize::from(argmax(e) != argmax(f));
        diff = e.iter().zip(f).fold(diff, |m, (a, b)| m.max((a - b).abs()));
    }
    (worst, flips, diff)
}

/// What transformers makes of a case.
pub(super) struct Recorded {
    /// the arguments of its checkpoint
    pub args: String,
    pub tokens: usize,
    /// of how many positions one is recorded
    pub every: usize,
    pub logits: Vec<Vec<f32>>,
    /// the best token of every position, where that is recorded
    best: Vec<usize>,
}

pub(super) fn recorded(name: &str) -> Recorded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arch/logits.safetensors");
    let bytes = std::fs::read(path).expect("the reference is there");
    let (_, meta) = safetensors::SafeTensors::read_metadata(&bytes).expect("a header");
    let case = &meta.metadata().as_ref().expect("metadata")[name];
    let case: serde_json::Value = serde_json::from_str(case).expect("json");
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let t = st.tensor(name).expect("the case is there");
    let values: Vec<f32> = t.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let number = |v: &serde_json::Value| v.as_u64().expect("a number") as usize;
    Recorded {
        args: case["args"].as_str().expect("text").to_string(),
        tokens: number(&case["tokens"]),
        every: case.get("every").map_or(4, number),
        logits: values.chunks(t.shape()[1]).map(<[f32]>::to_vec).collect(),
        best: case["best"].as_array().into_iter().flatten().map(number).collect(),
    }
}

/// The ids of `make.py`.
pub(super) fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + i * i * 5 + 11) % 262).collect()
}

pub(super) fn agrees(name: &str) {
    let r = recorded(name);
    let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
    let all = logits(&open(&path), &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
    let best: Vec<usize> = all.iter().map(|l| argmax(l) as usize).collect();
    assert!(r.best.is_empty() || best == r.best, "{name}: {best:?}, expected {:?}", r.best);
    let found: Vec<Vec<f32>> = all.into_iter().step_by(r.every).collect();
    let (worst, flips, diff) = distance(&r.logits, &found);
    println!("{name}: worst KL {worst:.2e}, {flips} top-1 flips, largest difference {diff:.2e}");
    assert_eq!(flips, 0, "{name}");
    assert!(worst < 1e-9, "{name}: {worst}");
    assert!(diff < 1e-4, "{name}: {diff}");
}

#[test]
fn llama_agrees_with_transformers() {
    agrees("llama");
}

#[test]
fn llama_with_the_scaling_of_llama_3_agrees_with_transformers() {
    agrees("llama_llama3");
}

#[test]
fn llama_with_yarn_agrees_with_transformers() {
    agrees("llama_yarn");
}

#[test]
fn phi3_agrees_with_transformers() {
    agrees("phi3");
}

#[test]
fn phi3_with_longrope_agrees_with_transformers_within_the_original_context() {
    agrees("phi3_short");
}

#[test]
fn phi3_with_longrope_agrees_with_transformers_beyond_the_original_context() {
    agrees("phi3_long");
}

#[test]
fn phi3_with_partly_rotated_heads_agrees_with_transformers() {
    agrees("phi3_partial");
}

#[test]
fn qwen2_agrees_with_transformers() {
    agrees("qwen2");
}

#[test]
fn qwen2_with_yarn_agrees_with_transformers() {
    agrees("qwen2_yarn");
}

#[test]
fn qwen3_agrees_with_transformers() {
    agrees("qwen3");
}

#[test]
fn chatglm_agrees_with_transformers() {
    agrees("chatglm");
}

#[test]
fn chatglm_with_many_queries_to_a_key_agrees_with_transformers() {
    agrees("chatglm_groups");
}

#[test]
fn smollm3_agrees_with_transformers_where_every_fourth_layer_is_not_rotated() {
    agrees("smollm3");
}

#[test]
fn olmo2_agrees_with_transformers() {
    agrees("olmo2");
}

#[test]
fn olmo3_agrees_with_transformers_past_its_window_whose_layers_are_not_scaled() {
    agrees("olmo3");
}

#[test]
fn exaone4_agrees_with_transformers() {
    agrees("exaone4");
}

#[test]
fn exaone4_with_a_window_agrees_with_transformers_past_it() {
    agrees("exaone4_window");
}

#[test]
fn glm4_agrees_with_transformers() {
    agrees("glm4");
}

#[test]
fn gemma3_agrees_with_transformers_past_its_window_with_two_tables() {
    agrees("gemma3");
}

#[test]
fn gemma2_agrees_with_transformers_past_its_window_where_scores_and_logits_meet_their_caps() {
    agrees("gemma2");
}

#[test]
fn granite_agrees_with_transformers() {
    agrees("granite");
}

#[test]
fn mixtral_agrees_with_transformers() {
    agrees("mixtral");
}

#[test]
fn qwen2moe_agrees_with_transformers() {
    agrees("qwen2moe");
}

#[test]
fn qwen3moe_agrees_with_transformers() {
    agrees("qwen3moe");
}

#[test]
fn granitemoe_agrees_with_transformers() {
    agrees("granitemoe");
    agrees("granitemoe_shared");
}

#[test]
fn glm4moe_agrees_with_transformers() {
    agrees("glm4moe");
}

#[test]
fn deepseek2_agrees_with_transformers_with_experts_by_softmax_and_by_sigmoids_and_in_groups() {
    agrees("deepseek2");
    agrees("deepseek2_groups");
    agrees("deepseek2_larger");
}

#[test]
fn gpt_oss_agrees_with_transformers() {
    agrees("gptoss");
}

#[test]
fn the_comparison_sees_experts_weighted_or_chosen_otherwise() {
    fn experts(h: &mut Hyper) -> &mut Experts {
        h.experts.as_mut().expect("a mixture")
    }
    type Change = fn(&mut Hyper);
    let cases: [(&str, Change); 18] = [
        ("mixtral", |h| experts(h).normalise = false),
        ("qwen2moe", |h| experts(h).normalise = true),
        ("qwen3moe", |h| experts(h).used = 2),
        ("granitemoe_shared", |h| h.residual_scale = 0.71),
        ("glm4moe", |h| experts(h).scale = 1.52),
        ("glm4moe", |h| experts(h).groups = (2, 1)),
        ("deepseek2", |h| experts(h).normalise = true),
        ("deepseek2", |h| h.half_split = true),
        ("deepseek2", |h| h.attention_scale *= 1.02),
        ("deepseek2_groups", |h| experts(h).groups = (1, 1)),
        ("deepseek2_larger", |h| experts(h).groups = (1, 1)),
        ("deepseek2_larger", |h| experts(h).normalise = false),
        // as if keys and queries were not stretched with the positions
        ("deepseek2_larger", |h| h.attention_scale = (1.0 / 56f64.sqrt()) as f32),
        ("deepseek2_larger", |h| {
            if let RopeScaling::Yarn { magnitude, .. } = &mut h.rope_scaling {
                *magnitude = 1.02;
            }
        }),
        ("gptoss", |h| experts(h).limit = 8.0),
        // over all and not divided; divided it is the same
        ("gptoss", |h| {
            experts(h).chosen = false;
            experts(h).normalise = false;
        }),
        ("gptoss", |h| h.window_layers.iter_mut().for_each(|w| *w = !*w)),
        ("gptoss", |h| {
            if let RopeScaling::Yarn { beta_slow, .. } = &mut h.rope_scaling {
                *beta_slow = 1.05;
            }
        }),
    ];
    for (name, change) in cases {
        let r = recorded(name);
        let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
        let c = open(&path);
        let mut h = hyper(&c);
        change(&mut h);
        let found = logits_of(&c, &h, &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
        let found: Vec<Vec<f32>> = found.into_iter().step_by(r.every).collect();
        let (worst, ..) = distance(&r.logits, &found);
        println!("{name}: worst KL {worst:.2e}");
        assert!(worst > 1e-7, "{name}: {worst:e}");
    }
}

#[test]
fn the_comparison_sees_sinks_and_biases_of_gpt_oss() {
    let r = recorded("gptoss");
    // a sink so low weighs nothing
    for (part, value) in [
        (".self_attn.sinks", -1e4f32),
        (".self_attn.o_proj.bias", 0.0),
        (".mlp.router.bias", 0.0),
        (".mlp.experts.gate_up_proj_bias", 0.0),
        (".mlp.experts.down_proj_bias", 0.0),
    ] {
        let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
        let set = set_in_directory(&path, part, value);
        assert_eq!(set, 4, "{part}: one tensor of each layer");
        let found = logits(&open(&path), &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
        let found: Vec<Vec<f32>> = found.into_iter().step_by(r.every).collect();
        let (worst, ..) = distance(&r.logits, &found);
        println!("{part}: worst KL {worst:.2e}");
        assert!(worst > 1e-7, "{part}: {worst:e}");
    }
}

/// [`set_floats`] of every file of a directory.
pub(super) fn set_in_directory(path: &Path, part: &str, value: f32) -> usize {
    let files = std::fs::read_dir(path).expect("a directory").map(|e| e.expect("an entry").path());
    files.filter(|f| f.extension().is_some_and(|e| e == "safetensors")).map(|f| set_floats(&f, part, value)).sum()
}

/// Sets every element of the F32 tensors whose names end in `part`; how many tensors those are.
fn set_floats(file: &Path, part: &str, value: f32) -> usize {
    let mut bytes = std::fs::read(file).expect("a file");
    let head = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + head]).expect("a header");
    let mut set = 0;
    for (name, tensor) in json.as_object().expect("tensors") {
        if name.ends_with(part) {
            assert_eq!(tensor["dtype"], "F32", "{name}");
            let at = |i: usize| 8 + head + tensor["data_offsets"][i].as_u64().expect("an offset") as usize;
            bytes[at(0)..at(1)].chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
            set += 1;
        }
    }
    std::fs::write(file, bytes).expect("written");
    set
}

/// Rows of a step of tokens of a mixture do not depend on which tokens are computed with them.
#[test]
fn tokens_of_a_mixture_have_the_same_bits_in_every_batch() {
    for args in [
        "--experts 5 --used 2",
        "--arch glm4moe --layers 3 --experts 6 --used 3 --expert-ffn 40 --shared 40 --dense 1",
        DEEPSEEK,
    ] {
        let (_dir, path) = model(&format!("{SMALL} --format hf {args}"));
        let (c, ids) = (open(&path), ids(40));
        let h = hyper(&c);
        let with = |ubatch: usize, max_binding: Option<u64>| {
            let mut device =
                CpuDevice::new(CpuOptions { max_binding, ..CpuOptions::default() }).expect("threads start");
            let mut o = options(64, 1, CacheType::F32);
            o.plan.ubatch = ubatch;
            let mut rows: Vec<u32> = Vec::new();
            pollster::block_on(async {
                let mut s = Session::new(&mut device, &c, &h, o, |_| {}).await?;
                s.feed(&ids, Want::From(0), |_, l| {
                    rows.extend(l.iter().map(|v| v.to_bits()));
                    Ok(())
                })
                .await
            })
            .unwrap_or_else(|e| panic!("{e:#}"));
            rows
        };
        let whole = with(40, None);
        for ubatch in [1, 3, 17] {
            assert_eq!(with(ubatch, None), whole, "{args}: {ubatch} at once");
        }
        // a limit that cuts the experts of a layer into several buffers
        assert_eq!(with(8, Some(80 << 10)), whole, "{args}: in parts");
    }
}

#[test]
fn starcoder2_agrees_with_transformers_and_past_its_window() {
    agrees("starcoder2");
    agrees("starcoder2_window");
}

#[test]
fn stablelm_agrees_with_transformers() {
    agrees("stablelm");
}

#[test]
fn stablelm_with_norms_of_each_head_and_side_by_side_agrees_with_transformers() {
    agrees("stablelm_larger");
}

#[test]
fn cohere2_agrees_with_transformers_past_its_window_without_which_layers_are_not_rotated() {
    agrees("cohere2");
}

#[test]
fn command_r_agrees_with_transformers_with_norms_of_each_head_too() {
    agrees("command_r");
    agrees("command_r_larger");
}

#[test]
fn phi2_agrees_with_transformers_with_heads_of_80() {
    agrees("phi2");
}

#[test]
fn gpt2_agrees_with_transformers() {
    agrees("gpt2");
}

#[test]
fn falcon_agrees_with_transformers_with_one_norm_and_with_two() {
    agrees("falcon");
    agrees("falcon_larger");
}

#[test]
fn the_comparison_sees_layers_rotated_otherwise_and_another_window_or_scale() {
    type Change = fn(&mut Hyper);
    let cases: [(&str, Change); 18] = [
        ("smollm3", |h| h.rotations[3] = Rotation::Main),
        ("olmo3", |h| h.rotations[0] = Rotation::Main),
        ("exaone4_window", |h| h.rotations[3] = Rotation::Main),
        ("gemma3", |h| h.rotations[5] = Rotation::Local),
        ("gemma3", |h| h.window = h.window.map(|w| w + 1)),
        ("gemma3", |h| h.embedding_scale = 8.5),
        ("granite", |h| h.residual_scale = 0.71),
        ("starcoder2_window", |h| h.window = h.window.map(|w| w + 1)),
        ("stablelm", |h| h.n_rot = 8),
        ("cohere2", |h| h.rotations[3] = Rotation::Main),
        ("command_r", |h| h.logit_divisor *= 1.02),
        ("phi2", |h| h.n_rot = 34),
        ("gemma2", |h| h.attention_softcap = 0.0),
        ("gemma2", |h| h.attention_softcap = 20.2),
        ("gemma2", |h| h.logit_softcap = 0.0),
        ("gemma2", |h| h.logit_softcap = 7.01),
        ("gemma2", |h| h.window_layers = vec![false, true, false, true]),
        ("gemma2", |h| h.window = h.window.map(|w| w - 1)),
    ];
    for (name, change) in cases {
        let r = recorded(name);
        let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
        let c = open(&path);
        let mut h = hyper(&c);
        change(&mut h);
        let found = logits_of(&c, &h, &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
        let found: Vec<Vec<f32>> = found.into_iter().step_by(r.every).collect();
        let (worst, _, diff) = distance(&r.logits, &found);
        println!("{name}: worst KL {worst:.2e}, largest difference {diff:.2e}");
        assert!(worst > 1e-7, "{name}: {worst:e}");
    }
}

#[test]
fn the_comparison_sees_the_wrong_set_of_longrope_factors() {
    let Recorded { args, tokens: n, logits: expected, .. } = recorded("phi3_short");
    let (_dir, path) = model(&format!("{SMALL} --format hf {args}"));
    // a session of more positions takes the long factors
    let found = logits(&open(&path), &ids(n), n + 1).unwrap_or_else(|e| panic!("{e:#}"));
    let found: Vec<Vec<f32>> = found.into_iter().step_by(4).collect();
    let (worst, _, diff) = distance(&expected, &found);
    assert!(worst > 1e-4 && diff > 1e-1, "{worst} {diff}");
}

#[test]
fn layers_that_guess_at_further_tokens_are_passed_over() {
    use isobit::internals::formats::meta::Value;
    let args = format!("{SMALL} --arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 40 --shared 40 --dense 1");
    let (_a, gguf) = model(&args);
    let (_b, hf) = model(&format!("{args} --format hf"));
    let (mut gguf, mut hf) = (open(&gguf), open(&hf));
    gguf.meta.entries.push(("glm4moe.nextn_predict_layers".into(), Value::U32(1)));
    hf.config.as_mut().expect("a directory has one")["num_hidden_layers"] = 2.into();
    let [a, b] = [&gguf, &hf].map(|c| logits(c, &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")));
    assert_eq!(a, b);
    gguf.meta.entries.pop();
    assert_ne!(logits(&gguf, &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")), a);
    // which no other family has
    let (_dir, path) = model(&format!("{SMALL} --arch qwen3"));
    let mut c = open(&path);
    c.meta.entries.push(("qwen3.nextn_predict_layers".into(), Value::U32(1)));
    let error = Hyper::read(&c).expect_err("must be refused").to_string();
    assert!(error.contains("qwen3.nextn_predict_layers is 1, expected 0"), "{error}");
}

#[test]
fn experts_of_the_large_deepseek_v2_are_in_groups_though_its_file_says_nothing_of_them() {
    use isobit::internals::formats::meta::Value;
    let (_dir, path) = model(&format!("{SMALL} --arch deepseek2 --experts 6 --expert-ffn 40 --shared 40"));
    let mut c = open(&path);
    let count = c.meta.entries.iter_mut().find(|(key, _)| key == "deepseek2.expert_count").expect("there");
    count.1 = Value::U32(160);
    c.meta.entries.retain(|(key, _)| !key.contains("expert_group"));
    let experts = hyper(&c).experts.expect("a mixture");
    assert_eq!((experts.groups, experts.sigmoid), ((8, 3), false));
}

#[test]
fn positions_that_were_not_learned_are_refused() {
    let (_dir, path) = model(&format!("{SMALL} --arch gpt2 --kv-heads 4 --ctx 100"));
    let c = open(&path);
    let build = |n| isobit::internals::models::build(&c, &hyper(&c), &options(n, 1, CacheType::F16).plan);
    let error = build(101).expect_err("there are 100").to_string();
    assert!(error.contains("a context of 101: the model has learned 100 positions"), "{error}");
    build(100).expect("they are there");
    // a session's chunks are whole, and what lies behind the last position is no number rather than nothing
    let ids = ids(101);
    assert_eq!(logits(&c, &ids[..100], 100).expect("they run").len(), 100);
    let error = logits(&c, &ids, 100).expect_err("position 100 is not learned").to_string();
    assert!(error.contains("position 100"), "{error}");
}

/// A small model of latent attention, whose keys are made of a vector of its own.
const DEEPSEEK: &str = "--arch deepseek2 --larger --layers 3 --latent 24,48,16,24,20 --experts 8 --used 2 --expert-ffn 40 \
                        --shared 40 --dense 1 --rope yarn --original-ctx 64";

/// The one line that running a model ends with.
pub(super) fn refused(path: &Path) -> String {
    let run = logits(&open(path), &ids(8), 64).map(|rows| rows.len());
    let error = format!("{:#}", run.expect_err("must be refused"));
    assert!(error.lines().count() == 1, "{error}");
    error
}

/// What opening and running a directory whose config.json was changed says.
fn config_error(args: &str, change: impl Fn(&mut serde_json::Value)) -> String {
    let (_dir, path) = model(&format!("{SMALL} --format hf {args}"));
    let file = path.join("config.json");
    let mut v: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    change(&mut v);
    std::fs::write(&file, v.to_string()).expect("writes");
    refused(&path)
}

#[test]
fn configs_that_make_no_model_are_refused_by_name() {
    type Change = fn(&mut serde_json::Value);
    let long = "--arch phi3 --rope longrope";
    let moe = "--arch qwen3moe --experts 5 --used 2 --expert-ffn 40";
    let glm = "--arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 40 --shared 40 --dense 1";
    let lite = "--arch deepseek2 --experts 6 --expert-ffn 40 --shared 40";
    let cases: [(&str, Change, &str); 60] = [
        ("--arch phi3", |c| c["model_type"] = "phi3small".into(), "model_type \"phi3small\" is not supported"),
        ("--arch phi3", |c| c["num_key_value_heads"] = 3.into(), "4 heads cannot share 3 key-value heads"),
        ("--arch phi3", |c| c["num_key_value_heads"] = 4.into(), "self_attn.qkv_proj.weight has shape [64, 128]"),
        ("--arch phi3", |c| c["intermediate_size"] = 95.into(), "mlp.gate_up_proj.weight has shape [64, 192]"),
        ("--arch phi3", |c| c["partial_rotary_factor"] = 1.5.into(), "partial_rotary_factor is 1.5"),
        ("--arch phi3", |c| c["partial_rotary_factor"] = 0.2.into(), "3 rotated dimensions do not fit"),
        (
            "--arch phi3",
            |c| c["tie_word_embeddings"] = "maybe".into(),
            "tie_word_embeddings: wrong type: expected true or false",
        ),
        (long, |c| c["rope_scaling"]["long_factor"] = serde_json::json!([1.0, 2.0]), "2 long factors for 8 rotated"),
        (long, |c| c["rope_scaling"]["short_factor"][3] = 0.into(), "short factor 3 is 0"),
        (
            long,
            |c| c["rope_scaling"]["short_factor"][3] = "x".into(),
            "short_factor: wrong type: expected a list of numbers",
        ),
        (long, |c| c["rope_scaling"]["attention_factor"] = (-1).into(), "factor on cos and sin is -1"),
        (long, |c| c["original_max_position_embeddings"] = 0.into(), "the original context is 0"),
        (long, |c| drop(c.as_object_mut().unwrap().remove("original_max_position_embeddings")), "longrope needs"),
        ("--arch qwen2", |c| c["rope_scaling"] = serde_json::json!({"type": "longrope"}), "longrope is not supported"),
        ("--arch qwen3", |c| c["model_type"] = "llama".into(), "_norm.weight has no place in a llama model"),
        ("--arch qwen2", |c| c["model_type"] = "qwen3".into(), "has shape [64, 64], the config asks for [64, 512]"),
        ("--arch qwen3", |c| c["model_type"] = "qwen2".into(), "self_attn.q_proj.bias is missing"),
        ("--arch qwen3", |c| c["head_dim"] = 0.into(), "the head dimension is 0"),
        ("--arch qwen2 --tied", |c| c["tie_word_embeddings"] = false.into(), "lm_head.weight is missing"),
        ("--arch smollm3", |c| c["no_rope_layers"] = serde_json::json!([1]), "1 layers are said to be rotated or not"),
        ("--arch smollm3", |c| c["no_rope_layer_interval"] = 0.into(), "no_rope_layer_interval is 0"),
        ("--arch olmo2", |c| c["model_type"] = "llama".into(), "input_layernorm.weight is missing"),
        ("--arch glm4", |c| c["partial_rotary_factor"] = 1.into(), "partial_rotary_factor is 1.0, expected 0.5"),
        ("--arch gemma3", |c| c["attn_logit_softcapping"] = 30.into(), "attn_logit_softcapping of a gemma3 is 30.0"),
        ("--arch gemma3", |c| c["final_logit_softcapping"] = (-3).into(), "the cap of logits is -3.0"),
        ("--arch gemma2", |c| c["attn_logit_softcapping"] = 1e9.into(), "the cap of scores is 1000000000.0"),
        ("--arch gemma2", |c| c["use_bidirectional_attention"] = true.into(), "use_bidirectional_attention = true"),
        ("--arch gemma3", |c| c["query_pre_attn_scalar"] = 0.into(), "query_pre_attn_scalar is 0"),
        ("--arch gemma3", |c| c["model_type"] = "gemma2".into(), "_norm.weight has no place in a gemma2 model"),
        ("--arch gemma3", |c| c["model_type"] = "gemma".into(), "model_type \"gemma\" is not supported"),
        ("--arch granite", |c| c["residual_multiplier"] = 0.into(), "the residual scale is 0.0"),
        (moe, |c| c["decoder_sparse_step"] = 2.into(), "decoder_sparse_step = 2 is not supported"),
        (moe, |c| c["mlp_only_layers"] = serde_json::json!([1]), "mlp_only_layers: layers without experts"),
        (moe, |c| c["num_experts"] = 6.into(), "mlp.gate.weight has shape [64, 5], the config asks for [64, 6]"),
        (moe, |c| c["num_experts"] = 513.into(), "513 experts, expected 1 to 512"),
        (moe, |c| c["num_experts_per_tok"] = 6.into(), "6 of 5 experts, expected 1 to all"),
        (moe, |c| drop(c.as_object_mut().unwrap().remove("moe_intermediate_size")), "moe_intermediate_size is missing"),
        (glm, |c| c["n_group"] = 4.into(), "4 groups of 6 experts"),
        (glm, |c| c["routed_scaling_factor"] = 0.into(), "the scale of experts' weights is 0.0"),
        (glm, |c| c["first_k_dense_replace"] = 2.into(), "layers.1.mlp.gate_proj.weight is missing"),
        (
            "--arch gpt2 --kv-heads 4",
            |c| c["scale_attn_by_inverse_layer_idx"] = true.into(),
            "scale_attn_by_inverse_layer_idx = true",
        ),
        ("--arch falcon --kv-heads 1", |c| c["alibi"] = true.into(), "alibi = true is not supported"),
        ("--arch falcon --kv-heads 1", |c| c["parallel_attn"] = false.into(), "parallel_attn = false"),
        ("--arch phi2", |c| c["qk_layernorm"] = true.into(), "qk_layernorm = true is not supported"),
        ("--arch cohere2", |c| c["sliding_window"] = serde_json::Value::Null, "sliding_window is null"),
        (lite, |c| c["topk_method"] = "noaux_tc".into(), "topk_method = noaux_tc is not supported"),
        (
            lite,
            |c| {
                c["topk_method"] = "group_limited_greedy".into();
                (c["n_group"], c["topk_group"]) = (4.into(), 2.into());
            },
            "4 groups of 6 experts",
        ),
        (lite, |c| c["norm_topk_prob"] = true.into(), "norm_topk_prob = true is not supported"),
        (lite, |c| c["moe_layer_freq"] = 2.into(), "moe_layer_freq = 2 is not supported"),
        (lite, |c| c["num_key_value_heads"] = 2.into(), "num_key_value_heads is 2, expected 4"),
        (lite, |c| c["kv_lora_rank"] = 600.into(), "the rank of keys and values is 600, expected 1..=576"),
        (lite, |c| c["kv_lora_rank"] = 50.into(), "kv_a_proj_with_mqa.weight has shape [64, 64]"),
        (lite, |c| c["v_head_dim"] = 21.into(), "self_attn.k_b_proj.weight is missing"),
        (lite, |c| c["attention_bias"] = true.into(), "attention_bias = true is not supported"),
        (
            lite,
            |c| c["rope_scaling"] = serde_json::json!({"type": "linear", "factor": 2}),
            "of type linear is not supported",
        ),
        (DEEPSEEK, |c| c["rope_scaling"]["mscale"] = 1.into(), "mscale 1.0 and mscale_all_dim 0.8"),
        (DEEPSEEK, |c| c["scoring_func"] = "softmax".into(), "scoring_func = softmax is not supported"),
        (DEEPSEEK, |c| c["rope_interleave"] = false.into(), "rope_interleave = false is not supported"),
        ("--arch starcoder2", |c| c["hidden_act"] = "gelu".into(), "hidden_act gelu is not supported"),
        ("--arch starcoder2", |c| c["use_bias"] = false.into(), "has no place in a starcoder2 model"),
    ];
    for (args, change, expected) in cases {
        let error = config_error(args, change);
        assert!(error.contains("model"), "the file is named: {error}");
        assert!(error.contains(expected), "{expected:?} in {error:?}");
    }
}

/// What a GGUF file says in which one text was replaced by another of the same length.
fn gguf_error(args: &str, from: &str, to: &str) -> String {
    assert_eq!(from.len(), to.len());
    let (_dir, path) = model(&format!("{SMALL} {args}"));
    let mut bytes = std::fs::read(&path).expect("there");
    let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).expect("the text is in the file");
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    std::fs::write(&path, bytes).expect("writes");
    refused(&path)
}

#[test]
fn gguf_metadata_that_make_no_model_are_refused_by_name() {
    let long = "--arch phi3 --rope longrope";
    for (args, from, to, expected) in [
        (
            "--arch phi3",
            "phi3",
            "phi9",
            "architecture phi9 is not supported (supported: llama, phi3, qwen2, qwen3, chatglm, smollm3, olmo2, exaone4, glm4, \
             gemma2, gemma3, gemma-embedding, modern-bert, gemma3n, gemma4, granite, qwen2moe, qwen3moe, granitemoe, \
             glm4moe, gpt-oss, starcoder2, stablelm, cohere2, command-r, phi2, gpt2, falcon, qwen35, qwen35moe, qwen3next, lfm2, \
             lfm2moe, mamba2, deepseek2, bert, nomic-bert)",
        ),
        ("--arch phi3", "phi3.block_count", "phi3.bloc__count", "phi3.block_count is missing"),
        ("--arch phi3", "blk.1.attn_qkv", "blk.1.attn_qkw", "tensor blk.1.attn_qkv.weight is missing"),
        ("--arch chatglm", "rope.dimension_count", "rope.dimension_kount", "chatglm.rope.dimension_count is missing"),
        ("--arch chatglm", "chatglm.context_length", "chatglm.context__ength", "chatglm.context_length is missing"),
        ("--arch chatglm", "blk.1.attn_qkv.bias", "blk.1.attn_qkv.bies", "attn_qkv.bies has no place in a chatglm"),
        ("--arch chatglm", "blk.1.attn_qkv.weight", "blk.1.attn_qkw.weight", "tensor blk.1.attn_qkv.weight is missing"),
        (long, "rope_factors_long", "rope_factors_lone", "tensor rope_factors_long.weight is missing"),
        (long, "rope_factors_short", "rope_factors_shore", "tensor rope_factors_short.weight is missing"),
        ("--arch qwen2", "blk.1.attn_k.bias", "blk.1.attn_k.bies", "tensor blk.1.attn_k.bias is missing"),
        ("--arch glm4", "blk.0.post_ffw_norm", "blk.0.post_ffw_morm", "tensor blk.0.post_ffw_norm.weight is missing"),
        ("--arch qwen3", "blk.0.attn_q_norm", "blk.0.attn_q_morm", "tensor blk.0.attn_q_norm.weight is missing"),
        ("--experts 5", "blk.1.ffn_up_exps.weight", "blk.1.ffn_up_exps.scales", "ffn_up_exps.weight is missing"),
        ("--experts 5", "llama.expert_used_count", "llama.expert_uses_count", "llama.expert_used_count is missing"),
        ("--experts 5", "llama.expert_count", "llama.expert_kount", "tensor blk.0.ffn_gate.weight is missing"),
        ("--arch glm4moe --experts 5", "glm4moe.expert_count", "glm4moe.expert_kount", "expert_count is missing, or 0"),
        (
            DEEPSEEK,
            "attention.key_length_mla",
            "attention.key_length_mlb",
            "key_length_mla is missing, and no attn_kv_b of an old conversion fits the other sizes",
        ),
        (DEEPSEEK, "yarn_log_multiplier", "yarn_log_multipliex", "yarn_log_multiplier is missing"),
        (DEEPSEEK, "attention.kv_lora_rank", "attention.kv_lora_rang", "deepseek2.attention.kv_lora_rank is missing"),
        (DEEPSEEK, "blk.1.attn_v_b.weight", "blk.1.attn_v_c.weight", "tensor blk.1.attn_v_b.weight is missing"),
        ("--arch stablelm", "rope.dimension_count", "rope.dimension_kount", "stablelm.rope.dimension_count is missing"),
        ("--arch stablelm", "blk.1.attn_norm.bias", "blk.1.attn_norm.bies", "tensor blk.1.attn_norm.bias is missing"),
        ("--arch gpt2 --kv-heads 4", "position_embd", "position_embx", "tensor position_embd.weight is missing"),
        ("--arch phi2", "blk.1.ffn_down.bias", "blk.1.ffn_down.bies", "blk.1.ffn_down.bies has no place in a phi2"),
        ("--arch qwen2 --rope yarn", "\u{4}\0\0\0\0\0\0\0yarn", "\u{4}\0\0\0\0\0\0\0yawn", "rope.scaling.type is yawn"),
    ] {
        let error = gguf_error(args, from, to);
        assert!(error.contains(expected), "{expected:?} in {error:?}");
    }
}

#[test]
fn a_step_of_more_heads_than_a_norm_takes_is_refused() {
    let (_dir, path) = model(&format!("{SMALL} --arch qwen3"));
    let c = open(&path);
    let h = hyper(&c);
    let mut o = options(65536, 1, CacheType::F16).plan;
    o.ubatch = 65535;
    o.max_out = 1;
    let error = isobit::internals::models::build(&c, &h, &o).expect_err("too many rows").to_string();
    assert!(error.contains("compute 16383 at once or fewer"), "{error}");
    o.ubatch = 16383;
    isobit::internals::models::build(&c, &h, &o).expect("fits");
}

#[test]
fn hostile_hyperparameters_give_a_plan_or_one_line_and_never_a_panic() {
    use isobit::internals::formats::meta::Value;
    let options = options(64, 1, CacheType::F16).plan;
    let tried = |c: &Container, what: &str| -> bool {
        let made = Hyper::read(c).and_then(|h| {
            isobit::internals::models::build(c, &h, &options)?;
            let mut words = Vec::new();
            isobit::internals::models::rope_table(c, &h, 64)?.words(60, 4, &mut words);
            assert_eq!(words.len(), 4 * h.table_width(), "{what}");
            assert!(words.iter().all(|w| f32::from_bits(*w).is_finite()), "{what}");
            Ok(())
        });
        if let Err(e) = &made {
            let line = format!("{e:#}");
            assert!(line.lines().count() == 1 && line.len() < 500, "{what}: {line}");
        }
        made.is_err()
    };
    let big = [0, 1, 2, 3, 255, 257, 4096, 1 << 31, u64::MAX];
    let real = [0.0, -1.0, 1e-300, 0.5, 1.0, 1e30, 1e300];
    let (mut runs, mut refusals) = (0, 0);
    for args in [
        "--arch llama --rope yarn",
        "--arch phi3 --rope longrope",
        "--arch qwen2 --tied",
        "--arch qwen3",
        "--arch chatglm",
        "--arch smollm3",
        "--arch exaone4 --window 20",
        "--arch olmo2 --window 20 --rope yarn",
        "--arch glm4",
        "--arch gemma2 --window 20",
        "--arch gemma3 --window 20",
        "--arch gemma3n --window 20 --layers 6 --uneven 32,2,3,2,2,24,0",
        "--arch gemma4 --window 20 --layers 6 --uneven 32,2,3,2,2,24,0",
        "--arch gemma4 --window 20 --experts 5 --expert-ffn 40 --uneven 32,2,2,0,1,0,1",
        "--arch granite",
        "--arch qwen2moe --experts 5 --expert-ffn 40 --shared 40",
        "--arch granitemoe --experts 5",
        "--arch glm4moe --experts 6 --expert-ffn 40 --shared 40 --dense 1",
        "--arch gpt-oss --experts 6 --window 20 --rope yarn",
        "--arch starcoder2",
        "--arch stablelm --larger",
        "--arch cohere2 --window 20",
        "--arch phi2 --dim 160 --heads 2 --kv-heads 2",
        "--arch gpt2 --kv-heads 4",
        "--arch falcon --larger --heads 8",
        "--arch lfm2moe --layers 3 --experts 6 --expert-ffn 40 --dense 1",
        "--arch mamba2 --head-dim 16 --delta-heads 8",
        DEEPSEEK,
    ] {
        let (_dir, path) = model(&format!("{SMALL} --format hf {args}"));
        let mut c = open(&path);
        let config = c.config.clone().expect("a directory has one");
        let mut hostile: Vec<serde_json::Value> = big.iter().map(|v| (*v).into()).collect();
        hostile.extend(real.map(serde_json::Value::from));
        hostile.extend(
            ["x", "[]", "[-1, 0, 1e300]", "{}", "true", "false", "null", "-7"]
                .map(|t| serde_json::from_str(t).unwrap_or_else(|_| t.into())),
        );
        let own = config.as_object().expect("an object").keys().cloned();
        let scaling =
            config["rope_scaling"].as_object().into_iter().flatten().map(|(k, _)| format!("rope_scaling/{k}"));
        let windows = ["sliding_window", "use_sliding_window", "layer_types", "max_window_layers"];
        let others =
            ["head_dim", "partial_rotary_factor", "rope_parameters", "no_rope_layers", "no_rope_layer_interval"]
                .into_iter()
                .chain(["sliding_window_pattern", "query_pre_attn_scalar", "final_logit_softcapping"])
                .chain(windows);
        for key in own.chain(scaling).chain(others.map(String::from)) {
            for value in &hostile {
                let mut changed = config.clone();
                match key.split_once('/') {
                    Some((outer, inner)) => changed[outer][inner] = value.clone(),
                    None => changed[&key] = value.clone(),
                }
                c.config = Some(changed);
                runs += 1;
                refusals += usize::from(tried(&c, &format!("{args}: {key} = {value}")));
            }
        }
        let (_dir, path) = model(&format!("{SMALL} {args}"));
        let mut c = open(&path);
        let mut hostile: Vec<Value> = big.iter().map(|v| Value::U64(*v)).collect();
        hostile.extend(real.map(Value::F64));
        hostile.extend([f64::NAN, f64::INFINITY].map(Value::F64));
        hostile.extend([Value::Str("x".into()), Value::I32(-1), Value::Bool(true), Value::Array(vec![])]);
        for i in 0..c.meta.entries.len() {
            let (key, kept) = c.meta.entries[i].clone();
            if key.starts_with("tokenizer.") {
                continue;
            }
            for value in &hostile {
                c.meta.entries[i].1 = value.clone();
                runs += 1;
                refusals += usize::from(tried(&c, &format!("{args}: {key} = {value:?}")));
            }
            c.meta.entries[i].1 = kept;
        }
    }
    println!("{runs} runs, {refusals} refused");
    assert!(runs > 3000 && refusals * 4 > runs, "{runs} runs, {refusals} refused");
}

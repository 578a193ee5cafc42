//! Architectures: logits against Hugging Face transformers, equal digests of both file forms and on every device, and
//! one clear line for metadata that make no model.
//!
//! The checkpoints are synthetic, written by `examples/synth_model.rs` when a test runs; `tests/data/arch` holds what
//! transformers makes of the same ones.

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
fn logits_of(c: &Container, h: &Hyper, ids: &[u32], n_ctx: usize) -> anyhow::Result<Vec<Vec<f32>>> {
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
fn gpt_oss_agrees_with_transformers() {
    agrees("gptoss");
}

#[test]
fn the_comparison_sees_experts_weighted_or_chosen_otherwise() {
    fn experts(h: &mut Hyper) -> &mut Experts {
        h.experts.as_mut().expect("a mixture")
    }
    type Change = fn(&mut Hyper);
    let cases: [(&str, Change); 10] = [
        ("mixtral", |h| experts(h).normalise = false),
        ("qwen2moe", |h| experts(h).normalise = true),
        ("qwen3moe", |h| experts(h).used = 2),
        ("granitemoe_shared", |h| h.residual_scale = 0.71),
        ("glm4moe", |h| experts(h).scale = 1.52),
        ("glm4moe", |h| experts(h).groups = (2, 1)),
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
    for args in
        ["--experts 5 --used 2", "--arch glm4moe --layers 3 --experts 6 --used 3 --expert-ffn 40 --shared 40 --dense 1"]
    {
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
fn both_file_forms_of_the_same_weights_give_the_same_bits() {
    for args in [
        "--arch phi3",
        "--arch phi3 --rope longrope --original-ctx 100",
        "--arch qwen2 --tied",
        "--arch qwen2 --rope yarn",
        "--arch qwen3 --head-dim 32",
        "--arch chatglm",
        "--arch olmo2 --head-dim 24",
        "--arch olmo2 --layers 5 --window 20 --rope yarn --original-ctx 64",
        "--arch exaone4 --tied",
        "--arch exaone4 --layers 5 --window 20",
        "--arch glm4 --head-dim 24",
        "--arch gemma2 --tied --layers 4 --window 20 --dim 72 --head-dim 32",
        "--arch gemma3 --tied --layers 7 --window 20 --dim 72 --head-dim 32 --rope linear",
        "--arch qwen2moe --experts 6 --used 3 --expert-ffn 40 --shared 72",
        "--arch qwen3moe --experts 5 --used 2 --expert-ffn 40",
        "--arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 40 --shared 80 --dense 1",
        "--arch gpt-oss --layers 3 --window 20 --experts 6 --used 3 --rope yarn --original-ctx 64",
        "--arch starcoder2 --tied --window 20",
        "--arch stablelm --rope yarn --original-ctx 64",
        "--arch stablelm --larger",
        "--arch cohere2 --tied --layers 5 --window 20",
        "--arch command-r --tied --larger",
        "--arch phi2 --dim 160 --heads 2 --kv-heads 2",
        "--arch gpt2 --tied --kv-heads 4",
        "--arch falcon --tied --kv-heads 1",
        "--arch falcon --tied --larger --heads 8",
    ] {
        let (_a, gguf) = model(&format!("{SMALL} {args}"));
        let (_b, hf) = model(&format!("{SMALL} {args} --format hf --shards 3"));
        for n_ctx in [64, 128] {
            let [a, b] = [&gguf, &hf].map(|p| logits(&open(p), &ids(40), n_ctx).unwrap_or_else(|e| panic!("{e:#}")));
            assert!(
                a.iter().flatten().map(|v| v.to_bits()).eq(b.iter().flatten().map(|v| v.to_bits())),
                "{args}, context {n_ctx}"
            );
        }
    }
}

#[test]
fn both_file_forms_of_a_llama_agree_though_their_heads_are_in_another_order() {
    for args in [
        "--arch llama",
        "--arch smollm3 --layers 5",
        "--arch granite --head-dim 32",
        "--experts 5 --used 2",
        "--arch granitemoe --experts 5 --used 3 --shared 56",
    ] {
        let (_a, gguf) = model(&format!("{SMALL} {args}"));
        let (_b, hf) = model(&format!("{SMALL} {args} --format hf"));
        let [a, b] = [&gguf, &hf].map(|p| logits(&open(p), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")));
        let (worst, flips, diff) = distance(&a, &b);
        assert!(worst < 1e-9 && flips == 0 && diff < 1e-4, "{args}: {worst} {flips} {diff}");
    }
}

/// A directory whose config.json was changed, and the GGUF file that `isobit quantize` makes of it.
fn directory_and_file(args: &str, change: &dyn Fn(&mut serde_json::Value)) -> (TempDir, [PathBuf; 2]) {
    let (dir, hf) = model(&format!("{SMALL} --format hf {args}"));
    let file = hf.join("config.json");
    let mut v: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    change(&mut v);
    std::fs::write(&file, v.to_string()).expect("writes");
    let gguf = dir.path().join("made.gguf");
    let made = program::isobit(["quantize"]).args([&hf, &gguf]).arg("f32").output().expect("it starts");
    assert!(made.status.success(), "{args}: {}", String::from_utf8_lossy(&made.stderr));
    (dir, [hf, gguf])
}

#[test]
fn a_directory_and_the_file_quantize_makes_of_it_give_the_same_bits() {
    use serde_json::json;
    type Change<'a> = &'a dyn Fn(&mut serde_json::Value);
    let drop_key = |c: &mut serde_json::Value, key: &str| drop(c.as_object_mut().expect("an object").remove(key));
    let yarn = "--arch qwen2 --rope yarn";
    let long = "--arch phi3 --rope longrope --original-ctx 100";
    let gemma = "--arch gemma3 --tied --layers 7 --window 20 --dim 72 --head-dim 32";
    let glm = "--arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 40 --shared 80 --dense 1";
    let gemma2 = "--arch gemma2 --tied --layers 4 --window 20 --dim 72 --head-dim 32";
    let cases: [(&str, Change); 58] = [
        ("--arch qwen2 --rope llama3", &|_| {}),
        ("--arch qwen2", &|c| c["rope_scaling"] = json!({"type": "linear", "factor": 2.3})),
        (yarn, &|_| {}),
        (yarn, &|c| c["rope_scaling"]["beta_fast"] = 20.1.into()),
        (yarn, &|c| c["rope_scaling"]["beta_slow"] = 1.7.into()),
        (yarn, &|c| c["rope_scaling"]["attention_factor"] = 1.3.into()),
        (yarn, &|c| {
            (c["rope_scaling"]["mscale"], c["rope_scaling"]["mscale_all_dim"]) = (0.7.into(), 0.9.into());
        }),
        (yarn, &|c| drop_key(&mut c["rope_scaling"], "factor")),
        (yarn, &|c| {
            (c["rope_scaling"]["factor"], c["original_max_position_embeddings"]) = (3.7.into(), 32.into());
        }),
        (long, &|_| {}),
        (long, &|c| c["rope_scaling"]["attention_factor"] = 1.27.into()),
        (long, &|c| c["rope_scaling"]["factor"] = 3.3.into()),
        (long, &|c| c["rope_scaling"]["type"] = "yarn".into()),
        (long, &|c| c["rope_scaling"]["type"] = "su".into()),
        (long, &|c| c["rope_scaling"]["original_max_position_embeddings"] = 60.into()),
        ("--arch phi3 --rotary 0.5", &|_| {}),
        ("--arch phi3 --rotary 0.5", &|c| {
            c["partial_rotary_factor"] = serde_json::Value::Null;
            c["rope_parameters"] = json!({"rope_theta": 10000.0, "partial_rotary_factor": 0.5});
        }),
        ("--arch phi3", &|c| drop_key(c, "rms_norm_eps")),
        ("--arch phi3", &|c| c["sliding_window"] = 128.into()),
        ("--arch qwen2", &|c| c["sliding_window"] = 32.into()),
        // shorter than what is read
        ("--arch phi3", &|c| c["sliding_window"] = 20.into()),
        ("--arch qwen2", &|c| {
            (c["sliding_window"], c["use_sliding_window"]) = (20.into(), true.into());
            c["max_window_layers"] = 1.into();
        }),
        ("--arch qwen3 --head-dim 128", &|c| drop_key(c, "head_dim")),
        ("--arch qwen3", &|c| c["rope_theta"] = 12345.678.into()),
        ("--arch olmo2 --head-dim 24", &|_| {}),
        ("--arch olmo2 --layers 5 --window 20 --rope yarn --original-ctx 64", &|_| {}),
        ("--arch olmo2 --layers 2 --window 20", &|c| c["layer_types"] = json!(["full_attention", "sliding_attention"])),
        ("--arch exaone4 --rope llama3", &|_| {}),
        ("--arch exaone4 --layers 5 --window 20", &|_| {}),
        ("--arch exaone4 --layers 3 --window 20", &|c| c["sliding_window_pattern"] = "LG".into()),
        ("--arch glm4 --head-dim 24", &|_| {}),
        ("--arch glm4", &|c| drop_key(c, "attention_bias")),
        (gemma, &|_| {}),
        (gemma, &|c| {
            drop_key(c, "rope_theta");
            c["rope_scaling"] = json!({"rope_type": "linear", "factor": 8.0});
        }),
        (gemma, &|c| {
            c["rope_parameters"] = json!({"full_attention": {"rope_type": "default", "rope_theta": 1.1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 12345.6}});
        }),
        (gemma, &|c| c["sliding_window_pattern"] = 3.into()),
        ("--arch qwen2moe --experts 6 --used 3 --expert-ffn 40 --shared 72", &|_| {}),
        ("--arch qwen3moe --experts 5 --used 2 --expert-ffn 40", &|_| {}),
        ("--arch gpt-oss --layers 3 --window 20 --experts 6 --used 3 --rope yarn --original-ctx 64", &|_| {}),
        (glm, &|_| {}),
        (glm, &|c| c["routed_scaling_factor"] = 2.25.into()),
        (glm, &|c| c["norm_topk_prob"] = false.into()),
        (glm, &|c| (c["n_group"], c["topk_group"]) = (3.into(), 2.into())),
        // the last layer guesses at further tokens: it is not computed
        (glm, &|c| c["num_hidden_layers"] = 2.into()),
        ("--arch starcoder2 --tied --window 20", &|_| {}),
        ("--arch stablelm", &|_| {}),
        ("--arch stablelm --larger", &|_| {}),
        ("--arch cohere2 --tied --layers 5 --window 20", &|_| {}),
        ("--arch command-r --tied --larger", &|c| c["logit_scale"] = 0.8333333333333334.into()),
        ("--arch command-r --tied", &|c| drop_key(c, "logit_scale")),
        ("--arch phi2 --dim 160 --heads 2 --kv-heads 2", &|_| {}),
        ("--arch gpt2 --tied --kv-heads 4 --ffn 256", &|c| drop_key(c, "n_inner")),
        ("--arch falcon --tied --kv-heads 1", &|c| c["num_kv_heads"] = 4.into()),
        ("--arch falcon --tied --larger --heads 8", &|_| {}),
        (gemma, &|c| c["final_logit_softcapping"] = 4.into()),
        (gemma2, &|_| {}),
        (gemma2, &|c| {
            c["attn_logit_softcapping"] = serde_json::Value::Null;
            drop_key(c, "final_logit_softcapping");
        }),
        (gemma2, &|c| c["layer_types"] = json!(vec!["full_attention"; 4])),
    ];
    for (i, (args, change)) in cases.into_iter().enumerate() {
        let (_dir, paths) = directory_and_file(args, change);
        let [a, b] = paths.each_ref().map(|p| hyper(&open(p)));
        assert_eq!((a.window, a.n_rot, a.head_dim, a.eps), (b.window, b.n_rot, b.head_dim, b.eps), "case {i}: {args}");
        // a model without a window need not say which layers have none
        let layers = |h: &Hyper| if h.window.is_some() { h.window_layers.clone() } else { Vec::new() };
        assert_eq!(layers(&a), layers(&b), "case {i}: {args}");
        assert_eq!((a.attention_softcap, a.logit_softcap), (b.attention_softcap, b.logit_softcap), "case {i}: {args}");
        for n_ctx in [48, 112] {
            let [a, b] =
                paths.each_ref().map(|p| logits(&open(p), &ids(40), n_ctx).unwrap_or_else(|e| panic!("{e:#}")));
            let same = a.iter().flatten().map(|v| v.to_bits()).eq(b.iter().flatten().map(|v| v.to_bits()));
            assert!(same, "case {i}: {args}, context {n_ctx}");
        }
    }
    // what the directory does not run is not converted either
    let (dir, hf) = model(&format!("{SMALL} --format hf {yarn}"));
    let changes: [(Change, &str); 3] = [
        (&|c| c["rope_scaling"]["truncate"] = false.into(), "truncate"),
        (&|c| c["hidden_act"] = "gelu".into(), "hidden_act"),
        (&|c| c["partial_rotary_factor"] = 0.5.into(), "partial_rotary_factor"),
    ];
    let kept = std::fs::read(hf.join("config.json")).expect("there");
    for (change, key) in changes {
        let mut v: serde_json::Value = serde_json::from_slice(&kept).expect("json");
        change(&mut v);
        std::fs::write(hf.join("config.json"), v.to_string()).expect("writes");
        let made = program::isobit(["quantize"]).args([&hf, &dir.path().join("x.gguf")]).output().expect("it starts");
        let error = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.code() == Some(2) && error.contains(key), "{error}");
    }
}

#[test]
fn a_llama_directory_and_the_file_quantize_makes_of_it_rotate_by_the_same_table() {
    for args in [
        "--arch llama --rope llama3",
        "--arch llama --rope yarn",
        "--arch smollm3 --layers 5 --rope yarn",
        "--arch granite --head-dim 32",
        "--experts 5 --used 2",
        "--arch granitemoe --experts 5 --used 3",
        "--arch granitemoe --experts 5 --used 2 --shared 56",
    ] {
        let (_dir, paths) = directory_and_file(args, &|_| {});
        let words = paths.each_ref().map(|p| {
            let (c, mut words) = (open(p), Vec::new());
            isobit::internals::models::rope_table(&c, &hyper(&c), 256).expect("a table").words(0, 256, &mut words);
            words
        });
        assert_eq!(words[0], words[1], "{args}");
        let [a, b] = paths.each_ref().map(|p| logits(&open(p), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")));
        let (worst, flips, diff) = distance(&a, &b);
        assert!(worst < 1e-9 && flips == 0 && diff < 1e-4, "{args}: {worst} {flips} {diff}");
    }
}

#[test]
fn both_file_forms_tokenise_alike() {
    let texts = [
        "<|user|>\n the other tree <|end|>\n<|assistant|>\nthe rest",
        "<|im_start|>user\nThere's a line 2024.\r\n\r\n  then<|im_end|>\n",
        "these threads  and the rest, ähm 漢字 \u{1f600}",
    ];
    let known = isobit::internals::formats::synthetic::Arch::ALL;
    for arch in known.map(|a| a.name()) {
        let args =
            format!("--preset tiny --arch {arch} --vocab 3000 --dim 64 --heads 2 --kv-heads 2 --ffn 64 --type f32");
        let (_a, gguf) = model(&args);
        let (_b, hf) = model(&format!("{args} --format hf"));
        let (gguf, hf) = (open(&gguf), open(&hf));
        let a = Tokenizer::from_gguf(&gguf.meta).unwrap_or_else(|e| panic!("{arch}: {e:#}"));
        let json = hf.tokenizer_json.as_deref().expect("the directory has one");
        let b = Tokenizer::from_tokenizer_json(json, hf.tokenizer_config.as_ref(), None, hf.config.as_ref())
            .unwrap_or_else(|e| panic!("{arch}: {e:#}"));
        assert_eq!(a.eos().first(), b.eos().first(), "{arch}");
        let first = |t: &Tokenizer| if t.adds_bos() { t.start().to_vec() } else { vec![] };
        assert_eq!(first(&a), first(&b), "{arch}");
        assert_eq!(a.adds_bos(), b.adds_bos(), "{arch}");
        for text in texts {
            let ids = a.encode(text, a.adds_bos(), true).expect("encodes");
            assert_eq!(ids, b.encode(text, b.adds_bos(), true).expect("encodes"), "{arch}: {text:?}");
            assert!(ids.len() < text.len(), "{arch}: merges are used");
        }
    }
}

fn cpu(level: Option<Level>, max_binding: Option<u64>) -> Box<dyn Device> {
    Box::new(CpuDevice::new(CpuOptions { level, threads: 0, max_binding }).expect("threads start"))
}

/// The scalar twins, every SIMD level and every adapter, over the whole script.
pub(super) fn same_words_everywhere(args: &str, digits: usize, cache: CacheType, max_binding: Option<u64>) -> Report {
    let (_dir, path) = model(args);
    same_words_of(&path, args, digits, cache, max_binding)
}

/// The same of a file, called `args` where something is wrong.
pub(super) fn same_words_of(
    path: &Path,
    args: &str,
    digits: usize,
    cache: CacheType,
    max_binding: Option<u64>,
) -> Report {
    let (c, mut o) = (open(path), options(144, digits, cache));
    (o.plan.ubatch, o.plan.max_out) = (16, 1);
    let h = hyper(&c);
    let mut devices = vec![cpu(Some(Level::detect()), max_binding), cpu(None, max_binding)];
    devices.extend(Level::available().into_iter().map(|l| cpu(Some(l), max_binding)));
    devices.extend(common::boxed_gpus(max_binding));
    let tok = Tokenizer::from_gguf(&c.meta).unwrap_or_else(|e| panic!("{e:#}"));
    let script = Script { prompt: prompt(Some(&tok), h.vocab, 40), generate: 4, batches: vec![0, 3] };
    let r = pollster::block_on(verify(&mut devices, &c, &h, o, &script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
    println!("{args}: {} devices, {} commands, {} words, digest {}", devices.len(), r.commands, r.words, r.digest);
    assert_eq!(r.mismatches, 0, "{args}: {:?}", r.first);
    assert!(r.ok() && r.words > 0, "{args}: {:?} against {}", r.digests, r.digest);
    // the recording as the model wrote it, on the twins
    let mut plain = [cpu(None, max_binding)];
    o.fuse = Fuse::Off;
    let p = pollster::block_on(verify(&mut plain, &c, &h, o, &script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(p.digest, r.digest, "{args}: plain against fused");
    r
}

#[test]
fn phi3_has_the_same_words_on_every_device() {
    let whole = same_words_everywhere("--preset phi3-tiny", 1, CacheType::F16, None);
    // a limit that cuts the fused matrices, whose parts do not begin at whole row blocks of their tensor
    let split = same_words_everywhere("--preset phi3-tiny", 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    assert!(whole.commands < split.commands);
    same_words_everywhere("--preset phi3-tiny --type f16 --head-dim 96 --rotary 0.75", 1, CacheType::Q8_0, None);
}

#[test]
fn qwen2_has_the_same_words_on_every_device() {
    same_words_everywhere("--preset qwen2-tiny", 1, CacheType::TQ3_1, None);
    same_words_everywhere("--preset qwen2-tiny --type f16", 1, CacheType::F16, None);
}

#[test]
fn qwen3_has_the_same_words_on_every_device() {
    same_words_everywhere("--preset qwen3-tiny --outliers", 2, CacheType::Q8_0R, None);
    same_words_everywhere("--preset qwen3-tiny --type f16", 1, CacheType::F16, None);
}

#[test]
fn chatglm_has_the_same_words_on_every_device() {
    let whole = same_words_everywhere("--preset chatglm-tiny", 1, CacheType::TQ3_1, None);
    // a limit that cuts the fused matrices, whose parts do not begin at whole row blocks of their tensor
    let split = same_words_everywhere("--preset chatglm-tiny", 1, CacheType::TQ3_1, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere("--preset chatglm-tiny --type f16", 1, CacheType::F16, None);
    same_words_everywhere("--preset chatglm-tiny --type q8_0 --heads 8 --head-dim 32", 2, CacheType::Q8_0, None);
    same_words_everywhere("--preset chatglm-tiny --type q4_1 --tied", 1, CacheType::Q8_0R, None);
}

#[test]
fn the_architectures_with_norms_behind_have_the_same_words_on_every_device() {
    same_words_everywhere("--preset tiny --arch olmo2 --layers 5 --window 20", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch exaone4 --layers 5 --window 20 --type q8_0", 2, CacheType::Q8_0, None);
    same_words_everywhere("--preset tiny --arch glm4 --layers 2", 1, CacheType::TQ3_1, None);
}

#[test]
fn gemma3_has_the_same_words_on_every_device() {
    let gemma = "--preset tiny --arch gemma3 --tied --layers 7 --window 20 --head-dim 32 --dim 288 --ffn 320";
    let whole = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, None);
    let split = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere(&format!("{gemma} --type f16"), 1, CacheType::Q8_0R, None);
}

#[test]
fn gemma2_has_the_same_words_on_every_device() {
    let gemma = "--preset tiny --arch gemma2 --tied --layers 4 --window 20 --head-dim 32 --dim 288 --ffn 320";
    let whole = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, None);
    let split = same_words_everywhere(&format!("{gemma} --type q8_0"), 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere(&format!("{gemma} --type f16"), 2, CacheType::Q8_0, None);
    same_words_everywhere(&format!("{gemma} --type f16"), 1, CacheType::TQ3_1, None);
}

/// The same directory as that of a model of texts and images: the text's part of config.json apart, and so named in the
/// weights; `style` is how the names begin.
fn with_images(dir: &Path, style: &str) {
    let file = dir.join("config.json");
    let mut text: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    // what a larger Gemma 3 leaves to transformers' defaults
    for key in ["rms_norm_eps", "rope_theta", "rope_local_base_freq", "hidden_activation", "tie_word_embeddings"] {
        text.as_object_mut().expect("an object").remove(key);
    }
    let eos = text["eos_token_id"].clone();
    let whole = serde_json::json!({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "eos_token_id": eos, "vision_config": {"model_type": "siglip_vision_model"}, "text_config": text});
    std::fs::write(&file, whole.to_string()).expect("writes");
    let file = dir.join("model.safetensors");
    let bytes = std::fs::read(&file).expect("there");
    let (head, data) = bytes[8..].split_at(u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize);
    let head: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(head).expect("json");
    let mut renamed = serde_json::Map::new();
    for (name, t) in head {
        let own = name.strip_prefix("model.").map(|rest| format!("{style}{rest}"));
        renamed.insert(own.unwrap_or(name), t);
    }
    let end = data.len();
    let image = serde_json::json!({"dtype": "F32", "shape": [2], "data_offsets": [end, end + 8]});
    renamed.insert("vision_tower.vision_model.post_layernorm.bias".into(), image);
    let head = serde_json::to_vec(&renamed).expect("json");
    let mut out = (head.len() as u64).to_le_bytes().to_vec();
    out.extend(head);
    out.extend(data);
    out.extend([0; 8]);
    std::fs::write(&file, out).expect("writes");
}

#[test]
fn the_text_of_a_model_of_texts_and_images_runs_as_the_text_alone() {
    let args = format!(
        "{SMALL} --format hf --shards 1 --arch gemma3 --tied --layers 7 --window 20 --dim 72 --head-dim 32 --rope linear"
    );
    let (_a, alone) = model(&args);
    let file = alone.join("config.json");
    let mut c: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    c["rms_norm_eps"] = 1e-6.into();
    std::fs::write(&file, c.to_string()).expect("writes");
    let want = logits(&open(&alone), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}"));
    for style in ["language_model.model.", "model.language_model."] {
        let (dir, path) = model(&args);
        with_images(&path, style);
        let found = logits(&open(&path), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(want == found, "{style}");
        // and so does the file made of it
        let gguf = dir.path().join("made.gguf");
        let made = program::isobit(["quantize"]).args([&path, &gguf]).arg("f32").output().expect("it starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert!(want == logits(&open(&gguf), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")), "{style}");
    }
}

#[test]
fn smollm3_and_granite_have_the_same_words_on_every_device() {
    same_words_everywhere("--preset tiny --arch smollm3 --layers 5", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch granite", 1, CacheType::Q8_0, None);
}

#[test]
fn mixtures_have_the_same_words_on_every_device() {
    let mixtral = "--preset tiny --experts 5 --used 2";
    let whole = same_words_everywhere(mixtral, 1, CacheType::F16, None);
    let split = same_words_everywhere(mixtral, 1, CacheType::F16, Some(200 << 10));
    assert_eq!(whole.digest, split.digest);
    assert!(whole.commands < split.commands);
    let qwen2 = "--preset tiny --arch qwen2moe --experts 6 --used 3 --expert-ffn 96 --shared 160";
    same_words_everywhere(&format!("{qwen2} --type q8_0"), 2, CacheType::Q8_0, None);
    let qwen3 = "--preset tiny --arch qwen3moe --experts 6 --used 3 --expert-ffn 100 --type f16";
    same_words_everywhere(qwen3, 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch granitemoe --experts 5 --used 3", 1, CacheType::Q8_0, None);
    let glm = "--preset tiny --arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 96 --shared 96 --dense 1";
    same_words_everywhere(&format!("{glm} --type q5_0"), 1, CacheType::TQ3_1, None);
    let oss = "--preset tiny --arch gpt-oss --layers 3 --window 70 --experts 6 --used 3 --expert-ffn 96 --rope yarn";
    same_words_everywhere(&format!("{oss} --type q8_0"), 1, CacheType::F16, None);
    same_words_everywhere(oss, 1, CacheType::TQ3_1, Some(200 << 10));
}

/// Which experts every token chose in the first layer, where all rows of its router are alike.
#[test]
fn of_experts_that_are_alike_the_first_are_chosen_on_every_device() {
    let (_dir, path) = model(&format!("{SMALL} --experts 5 --used 3"));
    let mut bytes = std::fs::read(&path).expect("there");
    let c = open(&path);
    let t = c.tensor("blk.0.ffn_gate_inp.weight").expect("there").clone();
    let (at, row) = (t.offset as usize, t.bytes as usize / 5);
    // of rows 1 to 4, which are alike, three are chosen, or two behind row 0
    for i in 2..5 {
        bytes.copy_within(at + row..at + 2 * row, at + i * row);
    }
    std::fs::write(&path, bytes).expect("writes");
    let (c, mut o) = (open(&path), options(64, 1, CacheType::F32));
    (o.plan.ubatch, o.plan.max_out) = (16, 1);
    let h = hyper(&c);
    let mut devices = vec![cpu(None, None)];
    devices.extend(Level::available().into_iter().map(|l| cpu(Some(l), None)));
    devices.extend(common::boxed_gpus(None));
    for device in &mut devices {
        let chosen = pollster::block_on(async {
            let mut s = Session::new(device.as_mut(), &c, &h, o, |_| {}).await?;
            let step = s.prepare(&ids(16), 0).clone();
            s.device().begin(&step).await?;
            let router = s.commands().iter().position(|c| c.op == Op::Router).expect("a router");
            for i in 0..=router {
                s.device().run_one(i).await?;
            }
            let ids = s.commands()[router].outputs()[0];
            s.device().read(ids).await
        });
        let chosen = chosen.unwrap_or_else(|e| panic!("{e:#}"));
        let name = device.info().name;
        for own in chosen[..48].chunks(3) {
            assert!([[1, 2, 3], [0, 1, 2]].contains(&[own[0], own[1], own[2]]), "{name}: {own:?}");
        }
    }
}

#[test]
fn architectures_with_layer_norms_have_the_same_words_on_every_device() {
    same_words_everywhere("--preset tiny --arch starcoder2 --window 20", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch stablelm --larger --type q8_0", 2, CacheType::Q8_0, None);
    same_words_everywhere("--preset tiny --arch cohere2 --tied --layers 5 --window 20", 1, CacheType::TQ3_1, None);
    same_words_everywhere("--preset tiny --arch command-r --larger --type f16", 1, CacheType::Q8_0R, None);
    let phi = "--preset tiny --arch phi2 --dim 320 --heads 4 --kv-heads 4";
    let whole = same_words_everywhere(phi, 1, CacheType::F16, None);
    let split = same_words_everywhere(phi, 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere("--preset tiny --arch gpt2 --tied --kv-heads 4", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch falcon --tied --kv-heads 1", 1, CacheType::F16, None);
    same_words_everywhere("--preset tiny --arch falcon --larger --heads 8 --type q4_1", 1, CacheType::F16, None);
}

#[test]
fn types_of_cache_that_do_not_fit_heads_of_80_are_refused_by_name() {
    let (_dir, path) = model(&format!("{SMALL} --arch phi2 --dim 160 --heads 2 --kv-heads 2"));
    let c = open(&path);
    for ty in [CacheType::Q8_0, CacheType::Q4_0R, CacheType::TQ3_1] {
        let error =
            isobit::internals::models::build(&c, &hyper(&c), &options(64, 1, ty).plan).expect_err("80 is not 32 n");
        assert!(error.to_string().contains("blocks of 32 do not divide a head of 80"), "{error}");
    }
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
    let cases: [(&str, Change, &str); 47] = [
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
        ("--arch gemma3", |c| c["use_bidirectional_attention"] = true.into(), "use_bidirectional_attention = true"),
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
             gemma2, gemma3, granite, qwen2moe, qwen3moe, granitemoe, glm4moe, gpt-oss, starcoder2, stablelm, \
             cohere2, command-r, phi2, gpt2, falcon, qwen35, qwen35moe, qwen3next, bert, nomic-bert)",
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

//! Models that remember states, gated delta nets, short convolutions or state spaces: logits against Hugging Face transformers,
//! planted errors (of short convolutions in `lfm2`, of state spaces in `mamba2`), equal words everywhere and in every batch, and what a recurrent
//! state refuses.
//!
//! The checkpoints are synthetic; `tests/data/arch` holds what transformers makes of the same ones, in float64.

use crate::arch::{agrees, distance, hyper, ids, logits, open, recorded, same_words_everywhere, set_in_directory};
use crate::checkpoint::{SMALL, model};
use crate::common::{boxed_gpus, cpu, levels};
use crate::family::quantised;
use crate::program;
use futures::executor::block_on;
use futures::future::LocalBoxFuture;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::gguf_write::{self, Entry};
use isobit::internals::formats::meta::Value;
use isobit::internals::formats::{Container, Tensor};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Delta, Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::ops::strands::FRESH;
use isobit::internals::record::{BufId, Device, DeviceInfo, Op, Plan, Role, Step, WeightSource};
use isobit::internals::simd::Level;
use std::path::{Path, PathBuf};

/// Gated delta nets of every form: three value heads to a key head; as many of both, with an attention layer among five;
/// experts.
const NETS: [&str; 4] = [
    "--arch qwen35 --layers 4 --head-dim 32 --delta-keys 2 --delta-heads 6",
    "--arch qwen35 --layers 5 --tied --head-dim 64 --delta-keys 3 --delta-heads 3",
    "--arch qwen35moe --layers 4 --head-dim 32 --experts 6 --used 3 --expert-ffn 40 --shared 72",
    "--arch qwen3next --layers 4 --head-dim 32 --experts 6 --used 2 --expert-ffn 40 --shared 56 --delta-heads 6",
];

/// All that remember states: these, short convolutions, dense and of experts, and state spaces, in one group and in three,
/// with more elements than go at once.
const ARGS: [&str; 8] = [
    NETS[0],
    NETS[1],
    NETS[2],
    NETS[3],
    "--arch lfm2 --layers 5 --tied",
    "--arch lfm2moe --layers 4 --experts 6 --used 2 --expert-ffn 40 --dense 1",
    "--arch mamba2 --head-dim 16 --delta-heads 8 --delta-keys 1",
    "--arch mamba2 --layers 3 --tied --dim 72 --head-dim 24 --delta-heads 6 --delta-keys 3 --delta-size 144",
];

#[test]
fn qwen35_agrees_with_transformers() {
    agrees("qwen35");
    agrees("qwen35_even");
}

#[test]
fn qwen35moe_agrees_with_transformers() {
    agrees("qwen35moe");
}

#[test]
fn qwen3next_agrees_with_transformers() {
    agrees("qwen3next");
}

/// How far logits are from the recorded ones.
pub(super) fn divergence(name: &str, found: Vec<Vec<f32>>) -> f64 {
    let r = recorded(name);
    let found: Vec<Vec<f32>> = found.into_iter().step_by(r.every).collect();
    distance(&r.logits, &found).0
}

#[test]
fn the_comparison_sees_heads_that_go_by_another_key_and_heads_rotated_further() {
    fn delta(h: &mut Hyper) -> &mut Delta {
        h.delta.as_mut().expect("a hybrid")
    }
    type Change = fn(&mut Hyper);
    let cases: [(&str, Change); 4] = [
        ("qwen35", |h| delta(h).tiled = false),
        ("qwen35moe", |h| delta(h).tiled = false),
        ("qwen3next", |h| delta(h).tiled = true),
        ("qwen35", |h| h.n_rot = 16),
    ];
    for (name, change) in cases {
        let r = recorded(name);
        let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
        let c = open(&path);
        let mut h = hyper(&c);
        change(&mut h);
        let worst = divergence(name, logits_as(&c, &h, &ids(r.tokens), |_| {}, |_| {}));
        println!("{name}: worst KL {worst:.2e}");
        assert!(worst > 1e-7, "{name}: {worst:e}");
    }
}

#[test]
fn the_comparison_sees_every_tensor_of_a_recurrent_layer() {
    for (part, value) in [
        (".linear_attn.dt_bias", 0.0f32),
        (".linear_attn.A_log", -1.0),
        (".linear_attn.norm.weight", 1.0),
        (".linear_attn.conv1d.weight", 0.25),
        (".linear_attn.in_proj_b.weight", 0.0),
        (".linear_attn.in_proj_a.weight", 0.0),
        (".linear_attn.in_proj_z.weight", 0.01),
        (".self_attn.q_norm.weight", 0.0),
    ] {
        let r = recorded("qwen35");
        let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
        let set = set_in_directory(&path, part, value);
        assert_eq!(set, if part.starts_with(".self") { 1 } else { 3 }, "{part}: one tensor of each layer");
        let found = logits(&open(&path), &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
        let worst = divergence("qwen35", found);
        println!("{part}: worst KL {worst:.2e}");
        assert!(worst > 1e-7, "{part}: {worst:e}");
    }
}

/// Logits of every position on a device whose plan and steps are changed.
pub(super) fn logits_as(
    c: &Container,
    h: &Hyper,
    ids: &[u32],
    change: impl FnMut(&mut Plan),
    step: impl FnMut(&mut Step),
) -> Vec<Vec<f32>> {
    let device = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let mut device = Altered { device, change, step };
    let mut rows = Vec::new();
    block_on(async {
        let mut s = Session::new(&mut device, c, h, options(ids.len(), 48, Fuse::Off), |_| {}).await?;
        let each = |_: usize, l: &[f32]| {
            rows.push(l.to_vec());
            Ok(())
        };
        s.feed_any(ids, Want::From(0), each).await
    })
    .unwrap_or_else(|e| panic!("{e:#}"));
    rows
}

fn options(n_ctx: usize, ubatch: usize, fuse: Fuse) -> SessionOptions {
    let (k_type, v_type) = (CacheType::F32, CacheType::F32);
    let plan = PlanOptions { n_ctx, ubatch, max_out: n_ctx, k_type, v_type, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse }
}

#[test]
fn the_comparison_sees_a_missing_gate_a_norm_over_the_mean_and_a_state_that_is_lost() {
    type Change = fn(&mut Plan);
    let cases: [(&str, Change); 3] = [
        ("attention without its gate", |p| p.recording.commands.retain(|c| c.op != Op::SigmoidGate)),
        // halfway to what a norm over the mean leaves, with which states explode
        ("keys longer than 1", |p| {
            let constants = p.buffers.iter_mut().filter(|b| matches!(b.role, Role::Constant(_)));
            constants.for_each(|b| b.role = Role::Constant(0.4));
        }),
        ("a gated norm without its gate", |p| {
            for c in p.recording.commands.iter_mut().filter(|c| c.label == "ssm_gated") {
                c.binds[0] = c.binds[1];
            }
        }),
    ];
    let r = recorded("qwen35");
    let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
    let (c, ids) = (open(&path), ids(r.tokens));
    let h = hyper(&c);
    let right = divergence("qwen35", logits_as(&c, &h, &ids, |_| {}, |_| {}));
    assert!(right < 1e-9, "{right:e}");
    for (what, change) in cases {
        let worst = divergence("qwen35", logits_as(&c, &h, &ids, change, |_| {}));
        println!("{what}: worst KL {worst:.2e}");
        assert!(worst.is_nan() || worst > 1e-7, "{what}: {worst:e}");
    }
    let mut strands = None;
    let mut steps = 0;
    let lost = logits_as(&c, &h, &ids, |p| strands = p.strands, |s| steps += usize::from(s.pos > 0));
    assert!(steps == 1 && divergence("qwen35", lost) < 1e-9);
    let anew = |s: &mut Step| {
        let words = s.inputs.iter_mut().find(|(id, _)| Some(*id) == strands).expect("it has them");
        words.1[2] = FRESH;
    };
    let worst = divergence("qwen35", logits_as(&c, &h, &ids, |_| {}, anew));
    println!("every step begins anew: worst KL {worst:.2e}");
    assert!(worst > 1e-7, "{worst:e}");
}

/// A device that is given another plan, and other steps.
struct Altered<P, S> {
    device: CpuDevice,
    change: P,
    step: S,
}

impl<P: FnMut(&mut Plan), S: FnMut(&mut Step)> Device for Altered<P, S> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn load<'a>(
        &'a mut self,
        mut plan: Plan,
        weights: &'a mut dyn WeightSource,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        (self.change)(&mut plan);
        self.device.load(plan, weights)
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        let mut step = step.clone();
        (self.step)(&mut step);
        Box::pin(async move { self.device.run(&step).await })
    }

    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.device.begin(step)
    }

    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        self.device.run_one(command)
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.device.read(buffer)
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.device.write(buffer, words)
    }
}

#[test]
fn both_file_forms_and_what_quantize_makes_of_a_directory_give_the_same_bits() {
    for args in ARGS {
        let (_a, gguf) = model(&format!("{SMALL} {args}"));
        let (dir, hf) = model(&format!("{SMALL} {args} --format hf --shards 3"));
        let made = dir.path().join("made.gguf");
        let done = program::isobit(["quantize"]).args([&hf, &made]).arg("f32").output().expect("it starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let [a, b, c] = [&gguf, &hf, &made].map(|p| {
            let rows = logits(&open(p), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}"));
            rows.iter().flatten().map(|v| v.to_bits()).collect::<Vec<_>>()
        });
        assert!(a == b, "{args}: the directory");
        assert!(a == c, "{args}: the file made of it");
        // tensor by tensor the file that llama.cpp's converter would make (`.ci/llama` lays both beside each other)
        let (of_generator, of_directory) = (open(&gguf), open(&made));
        let mut names: Vec<&str> = of_directory.tensors.iter().map(|t| &t.name[..]).collect();
        let mut expected: Vec<&str> = of_generator.tensors.iter().map(|t| &t.name[..]).collect();
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "{args}");
        for t in &of_generator.tensors {
            let other = of_directory.tensor(&t.name).expect("there");
            assert_eq!((&t.shape, t.bytes), (&other.shape, other.bytes), "{args}: {}", t.name);
            let [mut x, mut y] = [0, 0].map(|_| vec![0; t.bytes as usize]);
            of_generator.read(t, 0, &mut x).expect("its bytes");
            of_directory.read(other, 0, &mut y).expect("its bytes");
            assert!(x == y, "{args}: {}", t.name);
        }
    }
}

/// The first files of Qwen3-Next had one tensor of queries, keys, values and gate, as a directory has.
#[test]
fn a_file_with_one_projection_for_all_runs_the_same() {
    let args = NETS[3];
    let (_a, gguf) = model(&format!("{SMALL} {args}"));
    let plain = logits(&open(&gguf), &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
    let c = open(&gguf);
    let (keys, each, size) = (2, 3 * 32, 32);
    let mut tensors: Vec<(Entry, Vec<u8>)> = Vec::new();
    for t in c.tensors.iter().filter(|t| !t.name.contains(".attn_gate.")) {
        let bytes = |t: &Tensor| {
            let mut bytes = vec![0; t.bytes as usize];
            c.read(t, 0, &mut bytes).expect("its bytes");
            bytes
        };
        let (mut entry, mut data) = (Entry { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() }, bytes(t));
        if let Some(layer) = t.name.strip_suffix(".attn_qkv.weight") {
            let z = bytes(c.tensor(&format!("{layer}.attn_gate.weight")).expect("beside it"));
            let row = 4 * t.shape[0] as usize;
            let rows = |from: &[u8], first: usize, n: usize| from[first * row..(first + n) * row].to_vec();
            let group = |k: usize| {
                let parts = [(&data, k * size, size), (&data, (keys + k) * size, size)];
                let values = [(&data, 2 * keys * size + k * each, each), (&z, k * each, each)];
                parts.into_iter().chain(values).flat_map(|(from, first, n)| rows(from, first, n)).collect::<Vec<u8>>()
            };
            let all: Vec<u8> = (0..keys).flat_map(group).collect();
            entry = Entry {
                name: format!("{layer}.ssm_in.weight"),
                shape: vec![t.shape[0], (all.len() / row) as u64],
                ..entry
            };
            data = all;
        }
        tensors.push((entry, data));
    }
    let entries: Vec<Entry> = tensors.iter().map(|(e, _)| e.clone()).collect();
    let head = gguf_write::head("the file", &c.meta, &entries).expect("a head");
    let mut bytes = head.bytes;
    bytes.resize(head.file_len as usize, 0);
    for ((_, data), at) in tensors.iter().zip(&head.offsets) {
        bytes[*at as usize..][..data.len()].copy_from_slice(data);
    }
    let made = gguf.with_file_name("joined.gguf");
    std::fs::write(&made, bytes).expect("written");
    let found = logits(&open(&made), &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
    let [a, b] = [&plain, &found].map(|l| l.iter().flatten().map(|v| v.to_bits()).collect::<Vec<_>>());
    assert!(a == b);
}

#[test]
fn a_directory_with_images_and_guesses_at_further_tokens_runs_as_its_text() {
    use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
    for (args, whole) in [(NETS[0], "qwen3_5"), (NETS[2], "qwen3_5_moe")] {
        let (_dir, path) = model(&format!("{SMALL} --format hf --shards 1 {args}"));
        let text = logits(&open(&path), &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
        let file = path.join("model.safetensors");
        let bytes = std::fs::read(&file).expect("one file");
        let held = SafeTensors::deserialize(&bytes).expect("safetensors");
        let more = [0u8; 64];
        let of_images = |name: &str| {
            let view = TensorView::new(Dtype::F32, vec![4, 4], &more).expect("16 floats");
            (name.to_string(), view)
        };
        let renamed = |name: &str| match name.strip_prefix("model.") {
            Some(rest) => format!("model.language_model.{rest}"),
            None => name.to_string(),
        };
        let mut list: Vec<(String, TensorView)> = held.tensors().into_iter().map(|(n, t)| (renamed(&n), t)).collect();
        list.extend(
            ["mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight", "model.visual.patch_embed.proj.weight"].map(of_images),
        );
        std::fs::write(&file, serialize(list, None).expect("serialises")).expect("writes");
        let config = path.join("config.json");
        let of_text: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).expect("there")).expect("json");
        let both = serde_json::json!({"model_type": whole, "vision_config": {}, "text_config": of_text});
        std::fs::write(&config, both.to_string()).expect("writes");
        let found = logits(&open(&path), &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
        assert!(text.iter().flatten().map(|v| v.to_bits()).eq(found.iter().flatten().map(|v| v.to_bits())), "{args}");
    }
}

/// A GGUF file as llama.cpp's converter makes it of a checkpoint with a layer that guesses (`conversion/qwen.py` of v0.5.0):
/// that layer is counted and stands in the list of recurrent layers; then `change` has its way with the metadata.
fn with_a_layer_that_guesses(path: &Path, layers: usize, change: impl FnOnce(&mut Vec<(String, Value)>)) -> PathBuf {
    let c = open(path);
    let mut meta = c.meta.clone();
    let arch = c.meta.str("general.architecture").expect("there").to_string();
    let key = |k: &str| format!("{arch}.{k}");
    meta.entries.retain(|(k, _)| *k != key("block_count"));
    let recurrent = (1..=layers + 1).map(|l| Value::Bool(l % 4 != 0 && l <= layers)).collect();
    meta.entries.extend([
        (key("block_count"), Value::U32(layers as u32 + 1)),
        (key("nextn_predict_layers"), Value::U32(1)),
        (key("attention.recurrent_layers"), Value::Array(recurrent)),
    ]);
    change(&mut meta.entries);
    let mut tensors: Vec<(String, &Tensor)> = c.tensors.iter().map(|t| (t.name.clone(), t)).collect();
    let behind = |rest: &str| format!("blk.{layers}.{rest}");
    tensors.extend(c.tensors.iter().filter_map(|t| Some((behind(t.name.strip_prefix("blk.3.")?), t))));
    let norm = c.tensor("output_norm.weight").expect("there");
    tensors.extend(
        ["eh_proj", "enorm", "hnorm", "shared_head_norm"].map(|n| (behind(&format!("nextn.{n}.weight")), norm)),
    );
    let entry = |(name, t): &(String, &Tensor)| Entry { name: name.clone(), dtype: t.dtype, shape: t.shape.clone() };
    let head = gguf_write::head("the file", &meta, &tensors.iter().map(entry).collect::<Vec<_>>()).expect("a head");
    let mut bytes = head.bytes;
    bytes.resize(head.file_len as usize, 0);
    for ((_, t), at) in tensors.iter().zip(&head.offsets) {
        c.read(t, 0, &mut bytes[*at as usize..(at + t.bytes) as usize]).expect("its bytes");
    }
    let made = path.with_file_name("guesses.gguf");
    std::fs::write(&made, bytes).expect("written");
    made
}

#[test]
fn a_file_with_a_layer_that_guesses_runs_as_without_it() {
    type Entries = Vec<(String, Value)>;
    let integers = |list: &mut Entries| {
        let (_, v) = list.iter_mut().find(|(k, _)| k.ends_with(".recurrent_layers")).expect("there");
        let Value::Array(bools) = v else { panic!("bools") };
        *v = Value::I32Array(bools.iter().map(|b| i32::from(*b == Value::Bool(true))).collect());
    };
    let unlisted = |list: &mut Entries| list.retain(|(k, _)| !k.ends_with(".recurrent_layers"));
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Entries));
    let changes: [Change<'_>; 3] = [("bools", &|_| {}), ("integers", &integers), ("an interval alone", &unlisted)];
    for (args, layers) in NETS.into_iter().zip([4, 5, 4, 4]) {
        let (_dir, path) = model(&format!("{SMALL} {args}"));
        let plain = logits(&open(&path), &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
        for (what, change) in changes {
            let made = with_a_layer_that_guesses(&path, layers, change);
            let found = logits(&open(&made), &ids(20), 64).unwrap_or_else(|e| panic!("{args}, {what}: {e:#}"));
            let [a, b] = [&plain, &found].map(|l| l.iter().flatten().map(|v| v.to_bits()).collect::<Vec<_>>());
            assert!(a == b, "{args}, {what}");
        }
    }
}

#[test]
fn lists_of_a_file_that_fit_no_model_are_refused_by_name() {
    let (_dir, path) = model(&format!("{SMALL} {}", NETS[0]));
    for (key, value, expected) in [
        (
            "attention.recurrent_layers",
            Value::Array(vec![Value::Bool(true); 3]),
            "3 layers are said to be recurrent or not",
        ),
        (
            "attention.recurrent_layers",
            Value::F32Array(vec![1.0; 5]),
            "is of type array of f32, expected an array of bool",
        ),
        ("attention.recurrent_layers", Value::U32(4), "expected an array of bool"),
        // of four rotated pairs the last belongs to the first section again
        ("rope.dimension_sections", Value::I32Array(vec![1, 1, 1, 0]), "no section has rotated pair 3"),
        ("rope.dimension_sections", Value::U32Array(vec![2]), "no section has rotated pair 1"),
        ("rope.dimension_sections", Value::F32Array(vec![2.0; 4]), "is of type array of f32, expected an array of i32"),
    ] {
        let made = with_a_layer_that_guesses(&path, 4, |list| {
            list.retain(|(k, _)| !k.ends_with(key));
            list.push((format!("qwen35.{key}"), value));
        });
        let error = Hyper::read(&open(&made)).expect_err(key);
        assert!(format!("{error:#}").contains(expected), "{key}: {error:#}");
    }
}

#[test]
fn a_file_is_quantised_but_for_its_convolutions() {
    let (dir, path) = model(&format!("{SMALL} {}", NETS[0]));
    let made = dir.path().join("made.gguf");
    let c = quantised(&path, &made, "q8_0");
    for (name, dtype) in [
        ("blk.0.ssm_conv1d.weight", "F32"),
        ("blk.0.ssm_a", "F32"),
        ("blk.0.ssm_dt.bias", "F32"),
        ("blk.0.attn_qkv.weight", "Q8_0"),
        ("blk.0.ssm_out.weight", "Q8_0"),
        ("blk.3.attn_q.weight", "Q8_0"),
    ] {
        assert_eq!(c.tensor(name).expect(name).dtype.name(), dtype, "{name}");
    }
    let [a, b] = [&path, &made].map(|p| logits(&open(p), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")));
    let (worst, ..) = distance(&a, &b);
    println!("Q8_0: worst KL {worst:.2e}");
    assert!(worst < 0.05, "{worst}");
}

#[test]
fn files_that_are_no_models_are_refused_by_name() {
    let (_dir, path) = model(&format!("{SMALL} --format hf {}", NETS[0]));
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path.join("config.json")).expect("there")).expect("json");
    for (key, value, expected) in [
        ("linear_conv_kernel_dim", 3.into(), "linear_conv_kernel_dim = 3"),
        ("linear_value_head_dim", 64.into(), "value heads of 64"),
        ("linear_num_key_heads", 4.into(), "6 heads of values cannot share 4 heads of keys"),
        ("linear_key_head_dim", 0.into(), "heads of 0"),
        ("layer_types", serde_json::json!(["linear_attention", "other"]), "layer_types has \"other\""),
        ("layer_types", serde_json::json!(["linear_attention"]), "1 layers are said to be recurrent or not"),
        ("attention_bias", true.into(), "attention_bias = true"),
        ("head_dim", 24.into(), "heads of 24"),
    ] {
        let mut config = kept.clone();
        config[key] = value;
        if key == "linear_key_head_dim" {
            config["linear_value_head_dim"] = 0.into();
        }
        std::fs::write(path.join("config.json"), config.to_string()).expect("writes");
        let error = Hyper::read(&open(&path)).expect_err(key);
        assert!(format!("{error:#}").contains(expected), "{key}: {error:#}");
    }
}

/// How tokens are cut into steps changes no bit, nor does a limit that cuts matrices, some of whose rows lie apart.
#[test]
fn prompts_in_uneven_pieces_and_single_tokens_have_the_same_bits() {
    for args in ARGS {
        let (_dir, path) = model(&format!("{SMALL} --format hf {args}"));
        let (c, ids) = (open(&path), ids(70));
        let h = hyper(&c);
        let with = |pieces: &[usize], level: Option<Level>, max_binding: Option<u64>, fuse: Fuse| {
            let device = CpuOptions { level, max_binding, threads: 3 };
            let mut device = CpuDevice::new(device).expect("threads start");
            let mut rows: Vec<u32> = Vec::new();
            block_on(async {
                let ubatch = pieces.iter().copied().max().unwrap_or(1);
                let mut s = Session::new(&mut device, &c, &h, options(128, ubatch, fuse), |_| {}).await?;
                // a sequence before leaves nothing behind
                s.feed(&[7, 8, 9], Want::Last, |_, _| Ok(())).await?;
                s.reset();
                let mut rest = &ids[..];
                for n in pieces.iter().cycle() {
                    let (piece, later) = rest.split_at((*n).min(rest.len()));
                    rest = later;
                    if piece.is_empty() {
                        break;
                    }
                    let each = |_: usize, l: &[f32]| {
                        rows.extend(l.iter().map(|v| v.to_bits()));
                        Ok(())
                    };
                    s.feed(piece, Want::From(0), each).await?;
                }
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{e:#}"));
            rows
        };
        let whole = with(&[70], None, None, Fuse::Off);
        for pieces in [&[1][..], &[3, 1, 17, 2], &[64, 5]] {
            assert_eq!(with(pieces, Some(Level::detect()), None, Fuse::On), whole, "{args}: {pieces:?}");
        }
        // three slots of a state must fit
        let limit = if args.contains("--delta-size 144") { 256 } else { 75 };
        assert_eq!(with(&[11], Some(Level::detect()), Some(limit << 10), Fuse::On), whole, "{args}: in parts");
    }
}

#[test]
fn every_device_has_the_same_words() {
    for args in ARGS {
        same_words_everywhere(&format!("{SMALL} {args}"), 1, CacheType::F16, None);
    }
    same_words_everywhere("--preset tiny --arch qwen35 --layers 4 --head-dim 64 --type q8_0", 2, CacheType::Q8_0, None);
    same_words_everywhere("--preset tiny --arch qwen35 --layers 4 --head-dim 64", 1, CacheType::TQ3_1, None);
    same_words_everywhere("--preset tiny --arch lfm2 --layers 3", 1, CacheType::TQ3_1, None);
    same_words_everywhere("--preset tiny --arch mamba2 --head-dim 64 --delta-heads 8", 2, CacheType::C8, None);
}

/// A step that was begun ahead and thrown away leaves the states that were before it.
#[test]
fn a_step_in_vain_changes_nothing_that_follows() {
    let (_dir, path) = model(&format!("{SMALL} {}", NETS[0]));
    let c = open(&path);
    let h = hyper(&c);
    let cpus = levels().into_iter().map(|l| Box::new(cpu(Some(l), 0)) as Box<dyn Device>);
    for mut device in cpus.chain(boxed_gpus(None)) {
        let name = device.info().name;
        let rows = block_on(async {
            let mut s = Session::new(device.as_mut(), &c, &h, options(64, 16, Fuse::On), |_| {}).await?;
            let (mut rows, mut best): (Vec<Vec<u32>>, _) = (vec![], vec![]);
            for in_vain in 0..5 {
                s.reset();
                s.feed(&[5, 9], Want::Last, |_, _| Ok(())).await?;
                s.start(&[2], 1).await?;
                if in_vain > 0 && s.ahead() > 1 {
                    s.follow().await?;
                }
                s.best(&mut best).await?;
                s.settle().await?;
                if in_vain > 1 {
                    s.start(&[77], 1).await?;
                }
                if in_vain > 2 && s.ahead() > 1 {
                    s.follow().await?;
                }
                s.settle().await?;
                let mut row = vec![];
                let each = |_: usize, l: &[f32]| {
                    row.extend(l.iter().map(|v| v.to_bits()));
                    Ok(())
                };
                s.feed(&[11, 12], Want::From(0), each).await?;
                rows.push(row);
            }
            anyhow::Ok(rows)
        })
        .unwrap_or_else(|e| panic!("{e:#}"));
        assert!(rows.iter().all(|r| *r == rows[0]), "{name}");
    }
}

/// Whatever is prompt, and however often a test is run, it ends with the logits that follow its tokens: a recurrent model
/// cannot be told to go on from a position, as `bench` once did before every token.
#[test]
fn tests_of_bench_end_with_the_logits_that_follow_their_tokens() {
    let (_dir, path) = model(&format!("{SMALL} {}", NETS[0]));
    let rows = |more: &[&str]| -> Vec<serde_json::Value> {
        let ran = program::isobit(["bench", "--device", "cpu", "--no-limits", "-r", "2", "-o", "json"])
            .args(more)
            .arg(&path)
            .output()
            .expect("it starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        serde_json::from_slice(&ran.stdout).expect("rows")
    };
    // 11 tokens in six ways: as a prompt, in pieces, token by token, in part generated, and behind some that were there
    let mut all = rows(&["-p", "11", "-n", "11", "-pg", "6,5"]);
    all.extend(rows(&["-p", "11", "-n", "0", "-b", "4", "-ub", "3"]));
    all.extend(rows(&["-p", "4", "-n", "4", "-d", "7"]));
    let ends: std::collections::BTreeSet<&str> =
        all.iter().map(|r| r["last_logits"].as_str().expect("a digest")).collect();
    assert_eq!((all.len(), ends.len()), (6, 1), "{all:#?}");
}

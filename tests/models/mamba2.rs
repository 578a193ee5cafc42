//! Mamba-2, all of whose layers are state spaces: logits against Hugging Face transformers, planted errors, a plan without
//! attention, and what a file may say of it. That words are equal everywhere and in every batch `hybrid` sees to, for all
//! that remember states.

use crate::arch::{agrees, hyper, ids, logits, open, recorded};
use crate::checkpoint::{SMALL, model};
use crate::family::{Change, configs_are_refused, has_tensors, numbers_are_refused, quantised, sees, with_config};
use crate::hybrid::{divergence, logits_as};
use crate::program;
use isobit::internals::formats::meta::Value;
use isobit::internals::models::{Hyper, PlanOptions, build};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::ops::strands::FRESH;
use isobit::internals::record::{Args, Op, Plan, Role};

/// A small model in two groups.
const GROUPS: &str = "--arch mamba2 --layers 3 --head-dim 16 --delta-heads 8 --delta-keys 2";

#[test]
fn mamba2_agrees_with_transformers() {
    agrees("mamba2");
}

#[test]
fn mamba2_of_several_groups_agrees_with_transformers() {
    agrees("mamba2_groups");
}

#[test]
fn mamba2_whose_steps_have_a_bound_agrees_with_transformers() {
    agrees("mamba2_steps");
}

#[test]
fn the_comparison_sees_every_tensor_of_a_layer() {
    for name in ["mamba2", "mamba2_groups"] {
        for (part, value, count) in [
            (".mixer.in_proj.weight", 0.01f32, 3),
            (".mixer.conv1d.weight", 0.3, 3),
            (".mixer.conv1d.bias", 0.0, 3),
            (".mixer.dt_bias", 0.0, 3),
            (".mixer.A_log", -1.0, 3),
            (".mixer.D", 1.0, 3),
            (".mixer.norm.weight", 1.0, 3),
            (".mixer.out_proj.weight", 0.0, 3),
            (".0.norm.weight", 1.0, 1),
            ("backbone.norm_f.weight", 1.0, 1),
        ] {
            sees(name, part, value, count);
        }
    }
}

#[test]
fn the_comparison_sees_groups_that_are_one_a_norm_or_gate_left_out_and_a_state_that_is_lost() {
    fn change_args(p: &mut Plan, change: impl Fn(&mut Args)) {
        p.recording.commands.iter_mut().for_each(|c| change(&mut c.args));
    }
    fn without(p: &mut Plan, label: &str) {
        let before = p.recording.commands.len();
        p.recording.commands.retain(|c| c.label != label);
        assert!(p.recording.commands.len() < before, "{label} is there");
    }
    type Change = fn(&mut Plan);
    let cases: [(&str, Change); 5] = [
        ("the first group's B for all heads", |p| {
            change_args(p, |args| {
                if let Args::SsmScan(p) = args {
                    p.groups = 1;
                }
            });
        }),
        ("no weights of the norm", |p| without(p, "ssm_norm_weights")),
        ("no gate", |p| {
            for c in p.recording.commands.iter_mut().filter(|c| c.label == "ssm_gated") {
                c.binds[0] = c.binds[1];
            }
        }),
        // of what the recurrence gives, in the place of what goes through the gate
        ("the gate behind the norm", |p| {
            for c in p.recording.commands.iter_mut().filter(|c| c.label == "ssm_norm") {
                c.binds[0] -= 1;
            }
        }),
        ("greater steps", |p| {
            change_args(p, |args| {
                if let Args::SsmDiscretize(p) = args {
                    p.least = 1.0;
                }
            });
        }),
    ];
    let name = "mamba2_groups";
    let r = recorded(name);
    let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
    let (c, ids, mut strands) = (open(&path), ids(r.tokens), None);
    let h = hyper(&c);
    for (what, change) in cases {
        let worst = divergence(name, logits_as(&c, &h, &ids, change, |_| {}));
        println!("{what}: worst KL {worst:.2e}");
        assert!(worst.is_nan() || worst > 1e-7, "{what}: {worst:e}");
    }
    let right = divergence(name, logits_as(&c, &h, &ids, |p| strands = p.strands, |_| {}));
    assert!(strands.is_some() && right < 1e-9, "{right:e}");
    // every step, the second one too, begins with nothing before it
    let lost = logits_as(
        &c,
        &h,
        &ids,
        |_| {},
        |s| {
            let words = s.inputs.iter_mut().find(|(id, _)| Some(*id) == strands).expect("it has them");
            words.1[2] = FRESH;
        },
    );
    let worst = divergence(name, lost);
    println!("every step begins anew: worst KL {worst:.2e}");
    assert!(worst > 1e-7, "{worst:e}");
}

#[test]
fn a_model_without_attention_has_no_cache_and_takes_any_type_of_it() {
    let (_dir, path) = model(&format!("{SMALL} {GROUPS}"));
    let (c, positions) = (open(&path), 1 << 20);
    let h = hyper(&c);
    assert!(!h.has_attention());
    assert_eq!(h.cache_bytes(CacheType::F16, CacheType::F16), Some(0));
    for ty in CacheType::ALL {
        let o = PlanOptions { n_ctx: positions, ubatch: 32, k_type: ty, v_type: ty, ..PlanOptions::default() };
        let built = build(&c, &h, &o).unwrap_or_else(|e| panic!("{}: {e:#}", ty.name()));
        let words = |role: &Role| built.plan.buffers.iter().filter(|b| b.role == *role).map(|b| b.words).sum::<usize>();
        assert_eq!((words(&Role::Cache), words(&Role::Recent), built.cache_words), (0, 0, 0), "{}", ty.name());
        // three slots of a session
        assert_eq!(words(&Role::State) * 4, 3 * h.state_bytes(), "{}", ty.name());
        // of 128 channels, states of 32, and 3 tokens of a convolution over 256
        assert_eq!(h.state_bytes(), 3 * 4 * (128 * 32 + 3 * 256));
        let ops: Vec<Op> = built.plan.recording.commands.iter().map(|c| c.op).collect();
        assert!(ops.iter().filter(|op| **op == Op::SsmScan).count() == 3);
        assert!(
            !ops.iter()
                .any(|op| matches!(op, Op::Attention(..) | Op::Rope | Op::CacheWriteK(_) | Op::RopeCacheWrite(..)))
        );
    }
}

#[test]
fn programs_run_a_model_without_attention() {
    let (dir, path) = model(&format!("{SMALL} {GROUPS}"));
    let ran = |command: &str, more: &[&str]| {
        let done = program::isobit([command]).args(more).arg(&path).output().expect("it starts");
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        (done.status.success(), out.to_string(), err.to_string())
    };
    let (good, out, err) = ran("inspect", &[]);
    assert!(good, "{err}");
    for line in [
        "[gguf] layers=3 dim=64 vocab=262 context=256\n",
        "[gguf] recurrent: 3 of 3 layers, state spaces, 8 heads of 16 in 2 groups, states of 32\n",
        "[gguf] cache: none, a state of 58368 bytes for each sequence and checkpoint\n",
    ] {
        assert!(out.contains(line), "{line:?} in {out}");
    }
    assert!(!out.contains("rope") && !out.contains("heads=1"), "{out}");
    let (good, out, err) = ran("inspect", &["--json"]);
    assert!(good, "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).expect("json");
    assert_eq!((&json["cache_bytes_per_token"]["f16"], &json["recent_bytes"]), (&0.into(), &serde_json::Value::Null));
    let (good, _, err) = ran("verify", &["--devices", "cpu", "--batches"]);
    assert!(good, "{err}");
    let one = ["--device", "cpu", "-n", "5", "-p", "so it is", "-m"];
    let (good, out, err) = ran("run", &one);
    assert!(good && !out.is_empty(), "{err}");
    let kept = dir.path().join("kept");
    let kept = kept.to_str().expect("a name");
    let (good, _, err) = ran("run", &[&["--prompt-cache", kept], &one[..]].concat());
    assert!(!good && err.lines().count() == 1 && err.contains("recurrent"), "{err}");
    for synthetic in ["mamba2-tiny", "mamba2-tiny:q8_0"] {
        let done = program::isobit(["bench", "--device", "cpu", "--no-limits", "-r", "1", "-p", "9", "-n", "3"])
            .args(["--synthetic", synthetic, "-o", "json"])
            .output()
            .expect("it starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let rows: serde_json::Value = serde_json::from_slice(&done.stdout).expect("rows");
        assert_eq!(rows.as_array().map(Vec::len), Some(2), "{rows}");
    }
}

#[test]
fn a_file_is_quantised_but_for_its_convolutions_and_norms() {
    let (dir, path) = model(&format!("{SMALL} {GROUPS}"));
    let made = dir.path().join("made.gguf");
    let c = quantised(&path, &made, "q8_0");
    has_tensors(
        &c,
        &[
            ("blk.0.ssm_conv1d.weight", "F32", &[4, 256]),
            ("blk.0.ssm_conv1d.bias", "F32", &[256]),
            ("blk.0.ssm_in.weight", "Q8_0", &[64, 392]),
            ("blk.1.ssm_a", "F32", &[1, 8]),
            ("blk.1.ssm_d", "F32", &[1, 8]),
            ("blk.1.ssm_dt.bias", "F32", &[8]),
            ("blk.2.ssm_norm.weight", "F32", &[64, 2]),
            ("blk.2.ssm_out.weight", "Q8_0", &[128, 64]),
        ],
    );
    logits(&c, &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
}

#[test]
fn numbers_of_a_file_that_make_no_model_are_refused_by_name() {
    let (_dir, path) = model(&format!("{SMALL} {GROUPS}"));
    numbers_are_refused(
        &path,
        "mamba2",
        [
            ("ssm.conv_kernel", Value::U32(3), "mamba2.ssm.conv_kernel is 3, which is not supported (supported: 4)"),
            (
                "ssm.conv_kernel",
                Value::Str("x".into()),
                "mamba2.ssm.conv_kernel is of type string, expected a whole number",
            ),
            (
                "ssm.inner_size",
                Value::U32(130),
                "mamba2.ssm.inner_size is 130, expected whole heads, of which there are 8",
            ),
            ("ssm.inner_size", Value::U32(256), "tensor blk.0.ssm_in.weight has shape [64, 392]"),
            ("ssm.time_step_rank", Value::U32(0), "expected whole heads, of which there are 0"),
            (
                "ssm.state_size",
                Value::U32(24),
                "a state of 24 is not supported (supported: multiples of 16, 1024 at most)",
            ),
            ("ssm.state_size", Value::U32(2048), "a state of 2048 is not supported"),
            ("ssm.group_count", Value::U32(3), "8 heads cannot make 3 groups evenly"),
            ("ssm.group_count", Value::U32(0), "8 heads cannot make 0 groups evenly"),
            ("block_count", Value::U32(1025), "the number of layers is 1025"),
            ("block_count", Value::U32(4), "tensor blk.3.attn_norm.weight is missing"),
        ],
    );
    for key in ["ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count"] {
        let mut c = open(&path);
        c.meta.entries.retain(|(k, _)| *k != format!("mamba2.{key}"));
        let error = format!("{:#}", Hyper::read(&c).expect_err(key));
        assert!(error.contains(&format!("mamba2.{key} is missing")), "{error}");
    }
}

#[test]
fn configs_that_make_no_model_are_refused_by_name_and_bounds_of_steps_are_read() {
    let (dir, path) = model(&format!("{SMALL} --format hf {GROUPS}"));
    let read = |change: &dyn Fn(&mut serde_json::Value)| with_config(&path, change);
    let refused: [(Change, &str); 9] = [
        (|c| c["conv_kernel"] = 3.into(), "conv_kernel = 3 is not supported (supported: 4)"),
        (|c| c["use_bias"] = true.into(), "use_bias = true is not supported"),
        (|c| c["rms_norm"] = false.into(), "rms_norm = false is not supported"),
        (|c| c["hidden_act"] = "gelu".into(), "hidden_act gelu is not supported"),
        (|c| c["expand"] = 3.into(), "8 heads of 16 are not 3 times hidden_size, which is 64"),
        (|c| c["n_groups"] = 3.into(), "8 heads cannot make 3 groups evenly"),
        (|c| c["time_step_limit"] = serde_json::json!([0.1]), "time_step_limit: expected two numbers"),
        (|c| c["time_step_limit"] = serde_json::json!([0.1, 0.1]), "time_step_limit: expected two numbers"),
        (|c| c["time_step_limit"] = serde_json::json!([-0.1, "x"]), "time_step_limit: expected two numbers"),
    ];
    configs_are_refused(&path, &refused);
    let steps = |h: anyhow::Result<Hyper>| h.unwrap_or_else(|e| panic!("{e:#}")).ssm.expect("it has them").steps;
    assert_eq!(steps(read(&|_| {})), [0.0, f32::MAX]);
    assert_eq!(steps(read(&|c| c["time_step_limit"] = serde_json::json!([0.001, 1e30]))), [0.001, f32::MAX]);
    // as Python writes it, which is no JSON
    let text = std::fs::read_to_string(path.join("config.json")).expect("there");
    let config: serde_json::Value = serde_json::from_str(&text).expect("json");
    let mut plain = config.clone();
    plain["time_step_limit"] = serde_json::json!([0.0, "LIMIT"]);
    std::fs::write(path.join("config.json"), plain.to_string().replace("\"LIMIT\"", "Infinity")).expect("written");
    assert_eq!(steps(Hyper::read(&open(&path))), [0.0, f32::MAX]);
    // a GGUF file has no key for a bound, and gets none
    let mut bounded = config;
    bounded["time_step_limit"] = serde_json::json!([0.0, 0.5]);
    std::fs::write(path.join("config.json"), bounded.to_string()).expect("written");
    let made = dir.path().join("made.gguf");
    let done = program::isobit(["quantize"]).args([&path, &made]).arg("f32").output().expect("it starts");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && error.contains("time_step_limit is 0.0 to 0.5"), "{error}");
    assert!(!made.exists());
}

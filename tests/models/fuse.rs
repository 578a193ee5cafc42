//! Fused recordings: the same logits as the plain ones in every split, few enough commands, and no rewrite where it
//! would not be safe.

use crate::checkpoint::synth;
use crate::common;
use isobit::internals::blocks::BlockType;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::{FEW_TOKENS, Fuse, fuse};
use isobit::internals::generate::verify::{Script, digest_of, prompt};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{self, Hyper, PlanOptions};
use isobit::internals::ops::act_quantize::ActQuantizeParams;
use isobit::internals::ops::add::AddParams;
use isobit::internals::ops::cache::CacheType;
use isobit::internals::ops::linear::LinearParams;
use isobit::internals::ops::rms_norm::RmsNormParams;
use isobit::internals::record::{
    Args, BufDecl, Change, Command, Device, Op, Part, Piece, Plan, Recording, Role, Rows, Step,
};
use isobit::internals::simd::Level;
use std::path::{Path, PathBuf};

const DECODE: Step =
    Step { n_tokens: 1, pos: 5, scattered: None, out_first: 0, n_out: 1, select: 0, follow: None, inputs: vec![] };

fn open(path: &Path) -> Container {
    Container::open(path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

fn embedded() -> Container {
    open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf"))
}

fn synthetic(dir: &tempfile::TempDir, args: &[&str]) -> Container {
    let path: PathBuf = dir.path().join(format!("{}.gguf", args.join("").replace('-', "")));
    let out = ["synth", "--out", path.to_str().expect("UTF-8")];
    synth::generate(&[&out, args].concat()).expect("the model is written");
    open(&path)
}

fn options(cache: (CacheType, CacheType), digits: usize, fuse: Fuse) -> SessionOptions {
    let (k_type, v_type) = cache;
    let plan = PlanOptions { n_ctx: 128, ubatch: 32, digits, k_type, v_type, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse }
}

const F16: (CacheType, CacheType) = (CacheType::F16, CacheType::F16);

/// The plan of a model, fused.
fn fused(c: &Container) -> Plan {
    let h = Hyper::read(c).expect("hyperparameters");
    let mut plan = models::build(c, &h, &options(F16, 1, Fuse::On).plan).expect("builds").plan;
    fuse(&mut plan, Fuse::On, usize::MAX / 8);
    plan
}

/// Commands each layer runs in a step.
fn per_layer(plan: &Plan, step: &Step) -> Vec<Vec<&'static str>> {
    let layers = plan.recording.commands.iter().filter_map(|c| c.layer).max().map_or(0, |l| l + 1);
    let of = |l| plan.recording.commands.iter().filter(move |c| c.layer == Some(l) && c.args_for(step).is_some());
    (0..layers).map(|l| of(l).map(|c| c.op.stem()).collect()).collect()
}

#[test]
fn a_decode_layer_of_a_q4_k_m_model_is_eight_commands() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for c in [embedded(), synthetic(&dir, &["--preset", "tiny"])] {
        let plan = fused(&c);
        let layers = per_layer(&plan, &DECODE);
        println!("{layers:#?}");
        assert!(layers.iter().all(|l| l.len() <= 8), "{layers:?}");
        assert!(layers.iter().flatten().any(|s| *s == "q4k_q6k_matvec"), "the mix has Q6_K values in some layers");
        let many = Step { n_tokens: FEW_TOKENS + 1, ..DECODE };
        assert!(per_layer(&plan, &many).iter().all(|l| l.len() <= 9));
    }
}

#[test]
fn biases_of_queries_keys_and_values_are_one_command() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layers = per_layer(&fused(&synthetic(&dir, &["--preset", "qwen2-tiny"])), &DECODE);
    println!("{layers:#?}");
    assert!(layers.iter().all(|l| l.len() == 9 && l.iter().filter(|s| **s == "add_bias").count() == 1));
}

#[test]
fn a_chatglm_layer_whose_biases_are_parts_of_one_tensor_is_nine_commands() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for args in [&[][..], &["--head-dim", "128"], &["--type", "q8_0"]] {
        let plan = fused(&synthetic(&dir, &[&["--preset", "chatglm-tiny"], args].concat()));
        let layers = per_layer(&plan, &DECODE);
        println!("{layers:#?}");
        assert!(layers.iter().all(|l| l.len() == 9 && l.iter().filter(|s| **s == "add_bias").count() == 1));
        let many = Step { n_tokens: FEW_TOKENS + 1, ..DECODE };
        assert!(per_layer(&plan, &many).iter().all(|l| l.len() == 10));
    }
}

#[test]
fn norms_of_queries_and_keys_are_one_command() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for args in [&["--preset", "qwen3-tiny"][..], &["--preset", "qwen3-tiny", "--type", "q8_0"]] {
        let c = synthetic(&dir, args);
        let layers = per_layer(&fused(&c), &DECODE);
        println!("{layers:#?}");
        for l in &layers {
            let of = |part: &str| l.iter().filter(|s| s.contains(part)).count();
            // linears of q, k and v, the norms, then rotations and cache
            assert_eq!((of("head_norms"), of("rms_norm"), of("rope_cache_write")), (1, 0, 1), "{l:?}");
            assert_eq!(
                l.iter().position(|s| *s == "head_norms").expect("it is there") + 1,
                l.iter().position(|s| *s == "rope_cache_write").expect("so is this")
            );
            assert!(l.len() <= 9, "{l:?}");
        }
        same_logits(&c, F16, 1, None);
        same_logits(&c, (CacheType::Q8_0R, CacheType::TQ3_1), 1, None);
    }
}

#[test]
fn gate_and_up_of_experts_are_one_matrix_and_their_sum_joins_the_residual() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let moe = ["--preset", "tiny", "--arch", "qwen3moe", "--experts", "6", "--used", "2", "--expert-ffn", "96"];
    let c = synthetic(&dir, &moe);
    let h = Hyper::read(&c).expect("hyperparameters");
    let plain = models::build(&c, &h, &options(F16, 1, Fuse::Off).plan).expect("builds").plan;
    let plan = fused(&c);
    let layers = per_layer(&plan, &DECODE);
    println!("{layers:#?}");
    let of = |layers: &[Vec<&str>], part: &str| -> Vec<usize> {
        layers.iter().map(|l| l.iter().filter(|s| s.contains(part)).count()).collect()
    };
    assert_eq!(of(&per_layer(&plain, &DECODE), "_expert"), [3, 3]);
    assert_eq!((of(&layers, "_expert"), of(&layers, "swiglu")), (vec![2, 2], vec![1, 1]));
    assert_eq!((of(&layers, "add"), of(&layers, "expert_combine")), (vec![0, 0], vec![1, 1]));
    assert!(layers.iter().all(|l| l.len() <= 15), "{layers:#?}");
    // an expert's rows of gate, then its rows of up, then the next expert
    let both = plan.buffers.iter().find(|b| b.name.contains("gate") && b.role.pieces().len() == 12);
    let pieces = both.expect("six experts, two pieces each").role.pieces();
    for (i, piece) in pieces.iter().enumerate() {
        let Part::Rows { row0, rows, .. } = piece.part else { panic!("{piece:?}") };
        assert_eq!((row0, rows, piece.tensor), (i / 2 * 96, 96, pieces[i % 2].tensor), "{i}");
    }
    assert_ne!(pieces[0].tensor, pieces[1].tensor);
    // where no buffer may hold both, each stays
    let mut small = models::build(&c, &h, &options(F16, 1, Fuse::On).plan).expect("builds").plan;
    let one = plain.buffers.iter().find(|b| b.name.contains("ffn_gate_exps")).expect("gate of all experts").words;
    fuse(&mut small, Fuse::On, 2 * one - 1);
    assert_eq!(of(&per_layer(&small, &DECODE), "_expert"), [3, 3]);
    same_logits(&c, F16, 1, None);
}

#[test]
fn no_buffer_is_left_that_nobody_uses_and_every_tensor_is_loaded_once() {
    let c = embedded();
    let h = Hyper::read(&c).expect("hyperparameters");
    let plain = models::build(&c, &h, &options(F16, 1, Fuse::Off).plan).expect("builds").plan;
    let plan = fused(&c);
    let used = |id: usize| Some(id) == plan.logits || plan.recording.commands.iter().any(|c| c.binds.contains(&id));
    for (id, b) in plan.buffers.iter().enumerate() {
        assert!(used(id) || b.role == Role::Input, "{} is not used", b.name);
    }
    let rows = |plan: &Plan| {
        let mut list: Vec<Piece> = plan.buffers.iter().flat_map(|b| b.role.pieces()).copied().collect();
        list.sort();
        list
    };
    assert_eq!(rows(&plain), rows(&plan));
}

/// Digests of a script in pieces on a device.
fn digests(device: &mut dyn Device, c: &Container, o: SessionOptions, pieces: &[usize]) -> Vec<String> {
    let h = Hyper::read(c).expect("hyperparameters");
    let script = Script { prompt: prompt(None, h.vocab, 23), generate: 6, batches: vec![] };
    pollster::block_on(async {
        let mut s = Session::new(device, c, &h, o, |_| {}).await?;
        let mut list = Vec::new();
        for &n in pieces {
            s.reset();
            list.push(digest_of(&mut s, &script, n).await?);
        }
        anyhow::Ok(list)
    })
    .unwrap_or_else(|e| panic!("{e:#}"))
}

fn cpu(level: Option<Level>, max_binding: Option<u64>) -> CpuDevice {
    CpuDevice::new(CpuOptions { level, threads: 2, max_binding }).expect("threads start")
}

/// The plain recording on the twins against the fused one everywhere.
fn same_logits(c: &Container, cache: (CacheType, CacheType), digits: usize, max_binding: Option<u64>) {
    let plain = digests(&mut cpu(None, None), c, options(cache, digits, Fuse::Off), &[0]);
    let pieces = [0, 1, FEW_TOKENS, FEW_TOKENS + 1];
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(cpu(None, max_binding))];
    for level in common::levels() {
        devices.push(Box::new(cpu(Some(level), max_binding)));
    }
    if max_binding.is_none() {
        devices.extend(common::boxed_gpus(None));
    }
    for device in &mut devices {
        let name = device.info().name;
        for (fuse, pieces) in [(Fuse::On, &pieces[..]), (Fuse::Wide, &[1]), (Fuse::Off, &[1])] {
            let found = digests(device.as_mut(), c, options(cache, digits, fuse), pieces);
            assert!(found.iter().all(|d| *d == plain[0]), "{name}, {fuse:?}: {found:?}, plain {}", plain[0]);
        }
    }
    println!("{} devices: {}", devices.len(), plain[0]);
}

#[test]
fn fused_and_plain_recordings_give_the_same_logits() {
    same_logits(&embedded(), F16, 1, None);
}

#[test]
fn fused_and_plain_recordings_agree_with_two_digits_and_rotated_caches() {
    same_logits(&embedded(), (CacheType::Q4_0R, CacheType::TQ3_1), 2, None);
}

#[test]
fn fused_and_plain_recordings_agree_where_matrices_and_cache_are_split() {
    // 96 KiB: nothing can be stacked, the cache lies in pages
    same_logits(&embedded(), (CacheType::F16, CacheType::Q8_0), 1, Some(96 << 10));
}

#[test]
fn fused_and_plain_recordings_agree_for_other_weight_types_and_odd_shapes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for args in [
        ["--preset", "tiny", "--type", "q8_0"],
        ["--preset", "tiny", "--type", "q5_k"],
        ["--preset", "tiny", "--type", "q6_k"],
        ["--preset", "tiny", "--type", "f16"],
        ["--preset", "odd", "--type", "q4_0"],
        ["--preset", "odd", "--type", "bf16"],
        ["--preset", "qwen2-tiny", "--type", "q4_k_m"],
        ["--preset", "phi3-tiny", "--type", "q4_k_m"],
        ["--preset", "chatglm-tiny", "--type", "q4_k_m"],
        ["--preset", "chatglm-tiny", "--type", "q4_0"],
    ] {
        println!("{args:?}");
        same_logits(&synthetic(&dir, &args), F16, 1, None);
    }
}

#[test]
fn the_statistics_of_a_device_count_the_commands_of_a_token() {
    let c = embedded();
    let h = Hyper::read(&c).expect("hyperparameters");
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(cpu(Some(Level::detect()), None))];
    devices.extend(common::boxed_gpus(None));
    for mut device in devices {
        let name = device.info().name;
        let mut s = pollster::block_on(Session::new(device.as_mut(), &c, &h, options(F16, 1, Fuse::On), |_| {}))
            .unwrap_or_else(|e| panic!("{name}: {e:#}"));
        s.device().take_stats();
        for id in [1, 2, 3] {
            pollster::block_on(s.feed(&[id], Want::Last, |_, _| Ok(()))).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        }
        let stats = s.device().take_stats();
        // outside the layers: embed, select, norm_quantize, logits
        assert_eq!((stats.steps, stats.commands), (3, 3 * (8 * h.layers as u64 + 4)), "{name}");
    }
}

// ---- rewrites that must not happen ----

fn buffer(name: &str, words: usize, role: Role) -> BufDecl {
    BufDecl { name: name.into(), words, role }
}

fn command(op: Op, args: Args, binds: Vec<usize>) -> Command {
    Command { op, args, binds, rows: Rows::Tokens, layer: Some(0), label: op.stem().into() }
}

const DIM: usize = 256;

fn norm(x: usize, w: usize, y: usize) -> Command {
    let p = RmsNormParams { n_tokens: 0, dim: DIM as u32, inv_n: 1.0 / DIM as f32, eps: 1e-5 };
    command(Op::RmsNorm, Args::RmsNorm(p), vec![x, w, y])
}

fn quantize(x: usize, act: usize) -> Command {
    command(
        Op::ActQuantize,
        Args::ActQuantize(ActQuantizeParams { n_tokens: 0, k: DIM as u32, digits: 1 }),
        vec![x, act],
    )
}

fn linear(w: usize, act: usize, y: usize, rows: usize, stride: usize, offset: usize) -> Command {
    let p = LinearParams {
        n_tokens: 0,
        k: DIM as u32,
        rows: rows as u32,
        digits: 1,
        y_stride: stride as u32,
        y_offset: offset as u32,
        residual: 0,
    };
    command(Op::Matvec(BlockType::Q8_0), Args::Linear(p), vec![w, act, y])
}

fn add(y: usize, x: usize) -> Command {
    command(Op::Add, Args::Add(AddParams { n_tokens: 0, dim: DIM as u32 }), vec![y, x])
}

/// A plan over: 0 x, 1 norm weights, 2 normed, 3 act, 4 and 5 matrices, 6 y, 7 other, 8 logits.
fn stems(commands: Vec<Command>, limit: usize) -> Vec<&'static str> {
    let weight = |tensor, part| Role::Weight(vec![Piece { tensor, part }]);
    let matrix = Part::Rows { t: BlockType::Q8_0, packed: BlockType::Q8_0, k: DIM, row0: 0, rows: DIM };
    let buffers = vec![
        buffer("x", DIM, Role::Scratch),
        buffer("norm", DIM, weight(0, Part::Vector { first: 0, len: DIM, change: Change::None })),
        buffer("normed", DIM, Role::Scratch),
        buffer("act", 37 * 2, Role::Scratch),
        buffer("a", 2 * 34 * DIM, weight(1, matrix)),
        buffer("b", 2 * 34 * DIM, weight(2, matrix)),
        buffer("y", 2 * DIM, Role::Scratch),
        buffer("other", DIM, Role::Scratch),
        buffer("logits", DIM, Role::Scratch),
    ];
    let mut plan =
        Plan { buffers, recording: Recording { commands }, logits: Some(8), max_tokens: 1, ..Plan::default() };
    fuse(&mut plan, Fuse::On, limit);
    plan.recording.commands.iter().map(|c| c.op.stem()).collect()
}

const NO_LIMIT: usize = usize::MAX / 8;

#[test]
fn a_norm_is_fused_unless_somebody_else_reads_it() {
    let run = || vec![norm(0, 1, 2), quantize(2, 3)];
    assert_eq!(stems(run(), NO_LIMIT), ["norm_quantize"]);
    // later in the step, and at the start of the next step
    for (at, reader) in [(2, add(2, 7)), (0, add(2, 7))] {
        let mut list = run();
        list.insert(at, reader);
        assert_eq!(stems(list, NO_LIMIT).len(), 3, "a reader at {at}");
    }
    // a reader after it was written anew does no harm
    let mut list = run();
    list.extend([norm(7, 1, 2), add(2, 7)]);
    assert_eq!(stems(list, NO_LIMIT), ["norm_quantize", "rms_norm", "add"]);
    // the logits are read by the host
    assert_eq!(stems(vec![norm(0, 1, 8), quantize(8, 3)], NO_LIMIT).len(), 2);
    // another row length
    let mut list = run();
    if let Args::ActQuantize(p) = &mut list[1].args {
        p.k = 128;
    }
    assert_eq!(stems(list, NO_LIMIT).len(), 2);
    // other tokens, and another command in between
    let mut list = run();
    list[1].rows = Rows::Outputs;
    assert_eq!(stems(list, NO_LIMIT).len(), 2);
    let mut list = run();
    list.insert(1, add(0, 7));
    assert_eq!(stems(list, NO_LIMIT).len(), 3);
}

#[test]
fn an_add_joins_the_linear_before_it_unless_its_input_is_wanted() {
    assert_eq!(stems(vec![linear(4, 3, 6, 256, 256, 0), add(6, 0)], NO_LIMIT), ["q8_0_matvec"]);
    // both parts of a split matrix
    let parts = vec![linear(4, 3, 6, 192, 256, 0), linear(5, 3, 6, 64, 256, 192), add(6, 0)];
    assert_eq!(stems(parts, 0), ["q8_0_matvec", "q8_0_matvec"]);
    // half of y is left as it was
    assert_eq!(stems(vec![linear(5, 3, 6, 64, 256, 192), add(6, 0)], NO_LIMIT).len(), 2);
    // y is read again
    assert_eq!(stems(vec![linear(4, 3, 6, 256, 256, 0), add(6, 0), add(6, 7)], NO_LIMIT).len(), 3);
    // the linear reads what it would add to
    assert_eq!(stems(vec![linear(4, 0, 6, 256, 256, 0), add(6, 0)], NO_LIMIT).len(), 2);
}

#[test]
fn linears_are_stacked_only_when_rows_adjoin_and_the_weights_fit_and_are_used_once() {
    let pair = |first: usize, second: usize, rows: usize| {
        vec![linear(first, 3, 6, rows, 512, 0), linear(second, 3, 6, 256, 512, rows)]
    };
    assert_eq!(stems(pair(4, 5, 256), NO_LIMIT).len(), 1);
    assert_eq!(stems(pair(4, 5, 256), 4 * 34 * DIM).len(), 1, "just fits");
    assert_eq!(stems(pair(4, 5, 256), 4 * 34 * DIM - 1).len(), 2, "one word too many");
    assert_eq!(stems(pair(4, 4, 256), NO_LIMIT).len(), 2, "one matrix twice");
    assert_eq!(stems(pair(4, 5, 250), NO_LIMIT).len(), 2, "no whole row blocks");
    let mut list = pair(4, 5, 256);
    list.push(linear(5, 3, 7, 256, 256, 0));
    assert_eq!(stems(list, NO_LIMIT).len(), 3, "used once more");
    let mut list = pair(4, 5, 256);
    list[1].binds[1] = 2;
    assert_eq!(stems(list, NO_LIMIT).len(), 2, "other activations");
    let mut list = pair(4, 5, 256);
    list[1].layer = Some(1);
    assert_eq!(stems(list, NO_LIMIT).len(), 2, "another layer");
}

//! One model, many devices, the same words: golden digests, models of awkward shape, and proof that a difference is found.

#[path = "hostile/overflow.rs"]
mod overflow;

use crate::checkpoint::synth;
use crate::common;
use crate::common::whole::taking;
use futures::future::LocalBoxFuture;
use isobit::internals::cpu::choice::Way;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::synthetic::Synthetic;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::verify::{PROMPT_TOKENS, Report, Script, prompt, verify, verify_paged};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions, Recent};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::{Best, BufId, Device, DeviceInfo, Plan, Step, WeightSource};
use isobit::internals::simd::{Fetch, Kernel, Level};
use std::path::{Path, PathBuf};

fn root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn open(path: &Path) -> Container {
    Container::open(path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

fn embedded() -> Container {
    open(&root("assets/tiny-stories-Q4_K_M.gguf"))
}

fn options(n_ctx: usize, digits: usize, k_type: CacheType, v_type: CacheType) -> SessionOptions {
    let plan = PlanOptions { n_ctx, ubatch: 64, digits, k_type, v_type, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

fn cpu(level: Option<Level>, threads: usize) -> Box<dyn Device> {
    Box::new(CpuDevice::new(CpuOptions { level, threads, max_binding: None }).expect("threads start"))
}

fn run(devices: &mut [Box<dyn Device>], c: &Container, o: SessionOptions, script: &Script) -> Report {
    let h = Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"));
    pollster::block_on(verify(devices, c, &h, o, script, || {})).unwrap_or_else(|e| panic!("{e:#}"))
}

fn script(c: &Container, len: usize, generate: usize, batches: &[usize]) -> Script {
    let h = Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"));
    let tok = Tokenizer::from_gguf(&c.meta).ok();
    Script { prompt: prompt(tok.as_ref(), h.vocab, len), generate, batches: batches.to_vec() }
}

fn assert_same(r: &Report) {
    assert_eq!(r.mismatches, 0, "{:?}", r.first);
    assert!(r.ok(), "{:?} against {}", r.digests, r.digest);
    assert!(r.words > 0 && r.commands > 0);
}

fn golden(keys: CacheType, values: CacheType, recent: Recent, batches: &[usize]) {
    let c = embedded();
    let mut devices = vec![cpu(Some(Level::detect()), 0), cpu(None, 1)];
    devices.extend(Level::available().into_iter().map(|l| cpu(Some(l), 3)));
    devices.extend(common::boxed_gpus(None));
    let mut o = options(128, 1, keys, values);
    o.plan.recent = recent;
    let r = run(&mut devices, &c, o, &script(&c, 64, 64, batches));
    println!(
        "{}: {} commands, {} words, {} devices, digest {}",
        recent.title(keys, values),
        r.commands,
        r.words,
        devices.len(),
        r.digest
    );
    assert_same(&r);
    assert_eq!(
        r.digest,
        common::golden::digest(keys, values, recent),
        "the golden digest of {}",
        recent.title(keys, values)
    );
}

/// The twins, and the CPU in every way it may choose for few tokens and for many.
fn ways() -> Vec<Box<dyn Device>> {
    let mut devices = vec![cpu(None, 1)];
    for level in Level::available() {
        for (once, kib, threads) in [(true, 6, 1), (false, 12, 2), (true, 24, 3), (false, 48, 5)] {
            let way = Way { kernel: Kernel { level, fetch: Fetch { once, ahead: kib << 10 } }, threads };
            let other = Way { kernel: Kernel::from(Level::Portable), threads: 2 };
            for (few, many) in [(way, other), (other, way)] {
                let mut d = CpuDevice::new(CpuOptions { threads: 2, ..CpuOptions::default() }).expect("threads start");
                d.run_as(few, many);
                devices.push(Box::new(d));
            }
        }
    }
    devices
}

#[test]
fn every_way_the_cpu_may_choose_gives_the_golden_digest() {
    let (c, types) = (embedded(), (CacheType::F16, CacheType::F16));
    let r = run(&mut ways(), &c, options(128, 1, types.0, types.1), &script(&c, 64, 64, &[3, 64]));
    assert_same(&r);
    assert_eq!(r.digest, common::golden::digest(types.0, types.1, Recent::Off));
}

#[test]
fn no_way_to_run_changes_a_bit_of_other_weights() {
    for model in ["llama-tiny:q4_k_m", "llama-tiny:q8_0", "qwen2-tiny:q5_1", "llama-tiny:f16"] {
        let c = Synthetic::parse(model).expect("a model's name").container().expect("a model");
        let r = run(&mut ways(), &c, options(128, 1, CacheType::F16, CacheType::F16), &script(&c, 9, 2, &[9]));
        assert_same(&r);
    }
}

#[test]
fn every_device_gives_the_golden_digest_with_an_f32_cache() {
    golden(CacheType::F32, CacheType::F32, Recent::Off, &[]);
}

#[test]
fn every_device_and_batch_split_gives_the_golden_digest_with_an_f16_cache() {
    golden(CacheType::F16, CacheType::F16, Recent::Off, &[0, 1, 3, 7, 64]);
}

#[test]
fn every_device_gives_the_golden_digest_with_a_q8_0_cache() {
    golden(CacheType::Q8_0, CacheType::Q8_0, Recent::Off, &[7]);
}

#[test]
fn every_device_gives_the_golden_digest_with_a_q4_0_cache() {
    golden(CacheType::Q4_0, CacheType::Q4_0, Recent::Off, &[7]);
}

#[test]
fn every_device_and_batch_split_gives_the_golden_digest_with_published_tq3_0_keys() {
    golden(CacheType::TQ3_0, CacheType::F16, Recent::Off, &[0, 7]);
}

#[test]
fn every_device_and_batch_split_gives_the_golden_digest_with_a_tq3_1_cache() {
    golden(CacheType::TQ3_1, CacheType::TQ3_1, Recent::Off, taking(&[0, 7][..], &[0, 1, 3, 7, 64]));
}

#[test]
fn every_device_and_batch_split_gives_the_golden_digest_with_rotated_keys_and_tq3_1_values() {
    golden(CacheType::Q4_0R, CacheType::TQ3_1, Recent::Off, &[0, 7]);
}

#[test]
fn every_device_gives_the_golden_digest_with_a_rotated_q8_0_cache() {
    golden(CacheType::Q8_0R, CacheType::Q8_0R, Recent::Off, &[7]);
}

#[test]
fn every_device_and_batch_split_gives_the_golden_digest_with_tq3_1_and_an_f16_copy_of_recent_positions() {
    assert!(Recent::Auto.applies(CacheType::TQ3_1, CacheType::TQ3_1));
    golden(CacheType::TQ3_1, CacheType::TQ3_1, Recent::On, &[0, 1, 3, 7, 64]);
}

#[test]
fn every_device_gives_the_golden_digest_with_rotated_keys_and_an_f16_copy_of_recent_positions() {
    golden(CacheType::Q4_0R, CacheType::TQ3_1, Recent::On, &[7]);
}

#[test]
fn every_device_gives_the_golden_digest_with_q4_0_and_an_f16_copy_of_recent_positions() {
    assert!(!Recent::Auto.applies(CacheType::Q4_0, CacheType::Q4_0));
    golden(CacheType::Q4_0, CacheType::Q4_0, Recent::On, &[7]);
}

#[test]
fn an_f16_copy_of_an_f16_cache_changes_no_bit_and_one_of_a_tq3_1_cache_does_not_depend_on_pages_or_the_ring() {
    let c = embedded();
    let h = Hyper::read(&c).expect("hyperparameters");
    let digest = |types: (CacheType, CacheType), recent, ubatch, max_binding| {
        let level = Some(Level::detect());
        let mut d = CpuDevice::new(CpuOptions { level, threads: 0, max_binding }).expect("threads start");
        let mut o = options(512, 1, types.0, types.1);
        (o.plan.recent, o.plan.ubatch) = (recent, ubatch);
        let mut s = pollster::block_on(Session::new(&mut d, &c, &h, o, |_| {})).expect("loads");
        pollster::block_on(isobit::internals::generate::verify::digest_of(&mut s, &script(&c, 300, 8, &[]), 0))
            .expect("runs")
    };
    let f16 = (CacheType::F16, CacheType::F16);
    assert_eq!(digest(f16, Recent::On, 64, None), digest(f16, Recent::Off, 64, None));
    let tq3 = (CacheType::TQ3_1, CacheType::TQ3_1);
    let whole = digest(tq3, Recent::Auto, 512, None);
    // rings of 64, 128 and 576 positions; pages of 64 and a few more
    assert_eq!(digest(tq3, Recent::Auto, 1, None), whole);
    assert_eq!(digest(tq3, Recent::Auto, 30, Some(96 << 10)), whole);
    assert_ne!(digest(tq3, Recent::Off, 512, None), whole);
}

#[test]
fn sixteen_bit_activations_and_mixed_caches_agree_too() {
    let c = embedded();
    let mut devices = vec![cpu(Some(Level::detect()), 0), cpu(None, 1)];
    devices.extend(common::boxed_gpus(None));
    let r = run(&mut devices, &c, options(64, 2, CacheType::Q8_0, CacheType::F16), &script(&c, 24, 8, &[5]));
    assert_same(&r);
}

#[test]
fn the_other_weight_types_agree() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for ty in ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q5_k", "q6_k"] {
        let path = dir.path().join(format!("{ty}.gguf"));
        synth::generate(&["synth", "--out", path.to_str().expect("UTF-8"), "--preset", "tiny", "--type", ty])
            .expect("the model is written");
        let c = open(&path);
        let mut devices = vec![cpu(None, 1), cpu(Some(Level::detect()), 0)];
        devices.extend(common::boxed_gpus(None));
        let r = run(&mut devices, &c, options(64, 1, CacheType::F16, CacheType::F16), &script(&c, 12, 4, &[5]));
        println!("{ty}: {} words, digest {}", r.words, r.digest);
        assert_same(&r);
    }
}

/// Types that no file holds: their models are generated.
#[test]
fn types_made_of_several_tensors_agree() {
    for (ty, digits) in [("w8a16", 1), ("w8a16", 2), ("w4a16", 1), ("w4a16", 2)] {
        let c = Synthetic::parse(&format!("qwen2-896:{ty}")).unwrap().container().unwrap();
        let matrix = c.tensor("blk.0.ffn_down.weight").unwrap();
        assert_eq!((matrix.dtype.name(), &matrix.shape[..]), (&ty.to_uppercase()[..], &[1024, 896][..]));
        let mut devices = vec![cpu(None, 1), cpu(Some(Level::detect()), 0)];
        devices.extend(common::boxed_gpus(None));
        let r = run(&mut devices, &c, options(64, digits, CacheType::F16, CacheType::F16), &script(&c, 12, 4, &[5]));
        println!("{ty}: {} words, digest {}", r.words, r.digest);
        assert_same(&r);
    }
}

#[test]
fn rows_that_are_no_multiple_of_128_agree() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // those of q4_k_m and q5_k become Q5_0, Q5_1 and Q8_0
    for ty in ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m", "q5_k"] {
        let path = dir.path().join(format!("{ty}.gguf"));
        synth::generate(&["synth", "--out", path.to_str().expect("UTF-8"), "--preset", "odd", "--type", ty])
            .expect("the model is written");
        let c = open(&path);
        let mut devices = vec![cpu(None, 1), cpu(Some(Level::detect()), 0)];
        devices.extend(common::boxed_gpus(None));
        let r = run(&mut devices, &c, options(64, 2, CacheType::F16, CacheType::F32), &script(&c, 12, 4, &[5]));
        assert_same(&r);
    }
}

#[test]
fn a_qwen2_whose_rows_no_k_quant_fits_gives_the_golden_digest_on_every_device_and_batch_split() {
    let c = Synthetic::parse("qwen2-896:q4_k_m").unwrap().container().unwrap();
    let types = ["token_embd", "blk.0.attn_q", "blk.1.attn_v", "blk.0.ffn_gate", "blk.0.ffn_down", "blk.1.ffn_down"]
        .map(|n| c.tensor(&format!("{n}.weight")).unwrap().dtype.name());
    assert_eq!(types, ["Q8_0", "Q5_0", "Q8_0", "Q5_0", "Q4_K", "Q6_K"]);
    let mut devices: Vec<_> = Level::available().into_iter().map(|l| cpu(Some(l), 0)).collect();
    devices.push(cpu(None, 2));
    devices.extend(common::boxed_gpus(None));
    let r = run(&mut devices, &c, options(64, 1, CacheType::F16, CacheType::F16), &script(&c, 24, 8, &[0, 1, 5]));
    println!("{} words, {} devices, digest {}", r.words, devices.len(), r.digest);
    assert_same(&r);
    assert_eq!(r.digest, "e7aff2b6d6a30dbbe0ceedaf74cb084082bb64df75f675dbd01b3b6aba06b8ec");
}

#[test]
fn the_small_files_of_other_writers_agree() {
    for name in [
        "tiny-llama-f32-align64.gguf",
        "tiny-llama-f32-align64-v2.gguf",
        "tiny-llama-kquant-v3.gguf",
        "tiny-split-00001-of-00003.gguf",
    ] {
        let c = open(&root("tests/data/gguf").join(name));
        let mut devices = vec![cpu(None, 1), cpu(Some(Level::detect()), 0)];
        devices.extend(common::boxed_gpus(None));
        let r = run(&mut devices, &c, options(64, 1, CacheType::F16, CacheType::F16), &script(&c, 16, 8, &[1, 7]));
        println!("{name}: {} words, digest {}", r.words, r.digest);
        assert_same(&r);
    }
}

#[test]
fn a_model_of_157_million_parameters_with_rows_beyond_the_binding_limit_agrees() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("big.gguf");
    synth::generate(&["synth", "--out", path.to_str().expect("UTF-8"), "--preset", "100m", "--type", "q8_0"])
        .expect("the model is written");
    let c = open(&path);
    assert!(c.tensor("token_embd.weight").expect("there").bytes > 128 << 20);
    let mut devices = vec![cpu(Some(Level::detect()), 0)];
    devices.extend(common::boxed_gpus(Some(128 << 20)));
    if devices.len() == 1 {
        // still a comparison: a split plan on another level
        let small = CpuOptions { level: Some(Level::Portable), threads: 1, max_binding: Some(128 << 20) };
        devices.push(Box::new(CpuDevice::new(small).expect("threads start")));
    }
    let r = run(&mut devices, &c, options(64, 1, CacheType::F16, CacheType::F16), &script(&c, 24, 3, &[7]));
    println!("157 M: {} commands, {} words, digest {}", r.commands, r.words, r.digest);
    assert_same(&r);
}

#[test]
fn splitting_weights_and_cache_into_many_parts_changes_no_bit() {
    let c = embedded();
    let h = Hyper::read(&c).expect("hyperparameters");
    let o = options(512, 1, CacheType::F16, CacheType::Q8_0);
    let script = script(&c, 200, 8, &[]);
    let whole = {
        let mut d = cpu(Some(Level::detect()), 0);
        let mut s = pollster::block_on(Session::new(d.as_mut(), &c, &h, o, |_| {})).expect("loads");
        assert_eq!(s.commands().iter().filter(|c| c.label == "attention").count(), 4);
        pollster::block_on(isobit::internals::generate::verify::digest_of(&mut s, &script, 0)).expect("runs")
    };
    // 96 KiB: the embedding in 5 parts and more, the cache in pages of a few hundred positions
    let limit = 96 << 10;
    let small = |level| {
        Box::new(CpuDevice::new(CpuOptions { level, threads: 0, max_binding: Some(limit) }).expect("threads start"))
            as Box<dyn Device>
    };
    let mut devices = vec![small(Some(Level::detect())), small(None)];
    devices.extend(common::boxed_gpus(Some(limit)));
    let mut split = o;
    split.plan.ubatch = 16;
    let mut r = run(&mut devices, &c, split, &Script { batches: vec![0, 7], ..script });
    println!("split: {} commands, {} words", r.commands, r.words);
    assert_same(&r);
    assert_eq!(r.digest, whole, "the digest must not depend on how buffers are split");
    r.digest.clear();
    assert!(!r.ok());
}

/// Flips one bit of one word after one command, once.
struct Faulty {
    inner: Box<dyn Device>,
    command: usize,
    armed: bool,
    outputs: Vec<Vec<BufId>>,
    /// of the step under way
    pos: usize,
}

impl Device for Faulty {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "faulty".into(), ..self.inner.info() }
    }
    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.outputs = plan.recording.commands.iter().map(|c| c.outputs().to_vec()).collect();
        self.inner.load(plan, weights)
    }
    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        self.inner.run(step)
    }
    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.pos = step.pos;
        self.inner.begin(step)
    }
    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            self.inner.run_one(command).await?;
            if command == self.command && self.armed && self.pos > 0 {
                self.armed = false;
                let target = *self.outputs[command].last().expect("a command writes something");
                let mut words = self.inner.read(target).await?;
                words[5] ^= 1;
                self.inner.write(target, &words).await?;
            }
            Ok(())
        })
    }
    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.inner.read(buffer)
    }
    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.write(buffer, words)
    }
}

#[test]
fn one_flipped_bit_is_found_and_located() {
    let c = embedded();
    for command in [3usize, 14, 37] {
        let mut devices = vec![
            cpu(Some(Level::detect()), 0),
            Box::new(Faulty { inner: cpu(None, 1), command, armed: true, outputs: vec![], pos: 0 }) as Box<dyn Device>,
        ];
        let r = run(&mut devices, &c, options(64, 1, CacheType::F16, CacheType::F16), &script(&c, 16, 2, &[]));
        assert!(r.mismatches >= 1 && !r.ok());
        let first = r.first.expect("the first mismatch is reported");
        assert_eq!((first.device.as_str(), first.word, first.pos), ("faulty", 5, 16), "{first:?}");
        assert_eq!(first.expected ^ first.found, 1);
    }
}

#[test]
fn a_flipped_bit_in_the_first_word_compared_is_found_even_when_it_heals() {
    // a fault in the last command of a step is overwritten by the next one: it must be seen at once
    let c = embedded();
    let h = Hyper::read(&c).expect("hyperparameters");
    let last = {
        let mut d = cpu(Some(Level::detect()), 0);
        let s = pollster::block_on(Session::new(
            d.as_mut(),
            &c,
            &h,
            options(64, 1, CacheType::F16, CacheType::F16),
            |_| {},
        ))
        .expect("loads");
        s.commands().len() - 1
    };
    let mut devices = vec![
        cpu(Some(Level::detect()), 0),
        Box::new(Faulty { inner: cpu(Some(Level::detect()), 0), command: last, armed: true, outputs: vec![], pos: 0 })
            as Box<dyn Device>,
    ];
    let r = run(&mut devices, &c, options(64, 1, CacheType::F16, CacheType::F16), &script(&c, 16, 3, &[]));
    assert_eq!(r.mismatches, 1);
    assert_eq!(r.first.expect("reported").buffer, "selected");
}

#[test]
fn a_context_longer_than_one_chunk_and_page_gives_the_same_text_in_any_batch() {
    let c = embedded();
    let h = Hyper::read(&c).expect("hyperparameters");
    let tok = Tokenizer::from_gguf(&c.meta).expect("tokeniser");
    let ids = prompt(Some(&tok), h.vocab, 300);
    let mut digests = Vec::new();
    for (ubatch, max_binding) in [(512, None), (1, None), (13, Some(64 << 10)), (64, Some(96 << 10))] {
        let mut d = CpuDevice::new(CpuOptions { max_binding, ..CpuOptions::default() }).expect("threads start");
        let mut o = options(320, 1, CacheType::Q4_0, CacheType::F16);
        o.plan.ubatch = if max_binding.is_some() { ubatch.min(16) } else { ubatch };
        let mut logits = Vec::new();
        pollster::block_on(async {
            let mut s = Session::new(&mut d, &c, &h, o, |_| {}).await?;
            s.feed(&ids, Want::Last, |_, l| {
                logits = l.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
                Ok(())
            })
            .await
        })
        .unwrap_or_else(|e| panic!("{e:#}"));
        digests.push(logits);
    }
    assert!(digests.windows(2).all(|w| w[0] == w[1]));
}

/// Where a [`Planted`] device goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Where {
    /// the logits that a whole step hands back
    Logits,
    /// the last entry that a whole step selects
    Selection,
    /// these bits in word 7 of the first buffer called so, once some position is reached, in the walk
    Word(&'static str, u32),
    /// all logits, in the walk
    AllLogits(u32),
}

/// A device with a fault that the others may share.
struct Planted {
    inner: Box<dyn Device>,
    fault: Where,
    outputs: Vec<BufId>,
    plan: Plan,
    /// of the step under way
    pos: usize,
    n_out: usize,
}

fn planted(fault: Where) -> Box<dyn Device> {
    let inner = cpu(Some(Level::detect()), 2);
    Box::new(Planted { inner, fault, outputs: vec![], plan: Plan::default(), pos: 0, n_out: 0 })
}

impl Device for Planted {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.outputs = plan.recording.commands.iter().map(|c| *c.outputs().last().expect("writes something")).collect();
        self.plan = plan.clone();
        self.inner.load(plan, weights)
    }
    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        Box::pin(async move {
            let mut logits = self.inner.run(step).await?;
            if let (Where::Logits, Some(l)) = (self.fault, logits.last_mut()) {
                *l = f32::from_bits(l.to_bits() ^ 1);
            }
            Ok(logits)
        })
    }
    fn ahead(&self) -> usize {
        self.inner.ahead()
    }
    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.submit(step)
    }
    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            self.inner.collect(best).await?;
            if let (Where::Selection, Some(b)) = (self.fault, best.last_mut()) {
                b.logit = f32::from_bits(b.logit.to_bits() ^ 1);
            }
            Ok(())
        })
    }
    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        (self.pos, self.n_out) = (step.pos, step.n_out);
        self.inner.begin(step)
    }
    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            self.inner.run_one(command).await?;
            let written = self.outputs[command];
            let name = &self.plan.buffers[written].name;
            let logits = Some(written) == self.plan.logits && self.n_out > 0;
            let mut words = self.inner.read(written).await?;
            match self.fault {
                Where::Word(buffer, bits) if name == buffer && self.pos > 0 => words[7] = bits,
                // the walk's error is about logits
                Where::Word(_, bits) if logits => words[3] = bits,
                Where::AllLogits(bits) if logits => words.fill(bits),
                _ => return Ok(()),
            }
            self.inner.write(written, &words).await
        })
    }
    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.inner.read(buffer)
    }
    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.write(buffer, words)
    }
}

fn f16_options(n_ctx: usize) -> SessionOptions {
    options(n_ctx, 1, CacheType::F16, CacheType::F16)
}

fn refused(fault: Where) -> String {
    let c = embedded();
    let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
    let (mut devices, script) = (vec![planted(fault), planted(fault)], script(&c, 30, 2, &[]));
    let run = verify(&mut devices, &c, &h, f16_options(64), &script, || {});
    format!("{:#}", pollster::block_on(run).expect_err("there is nothing to compare"))
}

#[test]
fn logits_that_hold_nan_on_every_device_are_an_error_with_the_position_and_the_first_operation() {
    let sentence = "the logits of position 29 hold NaN: the model's activations overflowed";
    // the residual stream, at the first step after the first; attention's output in blocks, of which only scales count
    let text = refused(Where::Word("x", 0xffc0_0001));
    assert!(text.starts_with(sentence), "{text}");
    assert!(text.contains("is of embed embed_q6k, position 24: buffer x word 7, ffc00001 (NaN)"), "{text}");
    let text = refused(Where::AllLogits(0x7fc0_0000));
    assert!(text.starts_with(sentence) && text.contains("buffer logits word 0"), "{text}");
    let text = refused(Where::AllLogits(0xff80_0000));
    assert!(text.starts_with("the logits of position 29 hold -inf: the model's activations overflowed"), "{text}");
}

#[test]
fn logits_that_are_all_zero_on_every_device_are_an_error_with_the_position() {
    for zero in [0, 0x8000_0000] {
        let text = refused(Where::AllLogits(zero));
        assert!(text.starts_with("the logits of position 29 are all zero"), "{text}");
    }
}

#[test]
fn nan_on_one_device_alone_is_a_difference() {
    let c = embedded();
    let mut devices = vec![planted(Where::AllLogits(0x7fc0_0000)), cpu(Some(Level::detect()), 0)];
    let r = run(&mut devices, &c, f16_options(64), &script(&c, 30, 2, &[0]));
    let first = r.first.as_ref().expect("reported");
    assert!(!r.ok() && (first.buffer.as_str(), first.expected) == ("logits", 0x7fc0_0000), "{first:?}");
}

#[test]
fn a_fault_in_whole_steps_only_is_found_though_every_command_agrees() {
    let c = embedded();
    for (fault, logits, selections) in [(Where::Logits, true, false), (Where::Selection, false, true)] {
        let mut devices = vec![cpu(Some(Level::detect()), 0), planted(fault)];
        let r = run(&mut devices, &c, f16_options(64), &script(&c, 30, 2, &[0]));
        assert_eq!((r.mismatches, r.ok()), (0, false), "{fault:?}");
        assert_eq!(r.differs, logits.then_some(29), "{fault:?}");
        let of_the_second: Vec<_> = r.selections.iter().map(|s| s.differs).collect();
        assert_eq!(of_the_second, [None, selections.then_some(29)], "{fault:?}");
        assert_eq!(r.digests.iter().map(|d| d.2 == r.digest).collect::<Vec<_>>(), [true, !logits], "{fault:?}");
    }
}

#[test]
fn a_walk_has_steps_of_each_kind_and_pages_change_nothing() {
    let c = embedded();
    let h = Hyper::read(&c).expect("hyperparameters");
    let script = script(&c, PROMPT_TOKENS, 8, &[0]);
    let mut o = f16_options(256);
    o.plan.ubatch = PROMPT_TOKENS;
    let of = |page| {
        let mut devices = vec![cpu(Some(Level::detect()), 0), cpu(Some(Level::Portable), 2)];
        let run = verify_paged(&mut devices, &c, &h, o, page, &script, || {});
        let r = pollster::block_on(run).unwrap_or_else(|e| panic!("{e:#}"));
        assert_same(&r);
        assert_eq!((r.covered.positions, r.selections.len()), (PROMPT_TOKENS + 8, 2));
        let has = |tokens: std::ops::RangeInclusive<usize>| r.covered.steps.keys().any(|n| tokens.contains(n));
        assert!([1..=1, 2..=4, 5..=15, 16..=64, 65..=512].map(has).iter().all(|&h| h), "{:?}", r.covered);
        (r.digest, r.covered.pages)
    };
    let (whole, pages) = of(usize::MAX);
    assert_eq!(pages, 1);
    // pages are whole chunks of 64
    assert_eq!([of(128), of(64), of(100)], [(whole.clone(), 2), (whole.clone(), 4), (whole, 4)]);
}

//! Types with codebooks, whose rows a CPU may have as codes in their place (`blocks::wide`): the same words either way, on
//! every device, and more memory only where there is some.

use crate::common;
use isobit::internals::blocks::BlockType;
use isobit::internals::blocks::wide::{Packing, Wide};
use isobit::internals::cpu::{Codebooks, CpuDevice, CpuOptions, Tuning};
use isobit::internals::formats::Container;
use isobit::internals::formats::synthetic::Synthetic;
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::verify::{Script, prompt, verify};
use isobit::internals::generate::{Session, SessionOptions};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::record::{Command, Device, Op};
use isobit::internals::simd::Level;
use isobit::internals::split::{Member, Split};
use pollster::block_on;

fn cpu(level: Level, codebooks: Codebooks) -> Box<dyn Device> {
    let mut device = CpuDevice::new(CpuOptions { level: Some(level), threads: 2, max_binding: None }).expect("threads");
    device.tune(Tuning { codebooks, ..Tuning::default() });
    Box::new(device)
}

fn options(digits: usize, memory: Option<u64>) -> SessionOptions {
    let plan = PlanOptions { n_ctx: 64, ubatch: 32, digits, ..PlanOptions::default() };
    SessionOptions { plan, memory, fuse: Fuse::On }
}

/// A synthetic model.
fn open(name: &str) -> (Container, Hyper) {
    let c = Synthetic::parse(name).expect("a shape").container().unwrap_or_else(|e| panic!("{e:#}"));
    let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
    (c, h)
}

/// Types of the matrices that commands have: of all, and of those of experts.
fn types(commands: &[Command]) -> (Vec<BlockType>, Vec<BlockType>) {
    let (mut all, mut experts) = (vec![], vec![]);
    for c in commands {
        match c.op {
            Op::Embed(t) | Op::Matvec(t) | Op::GateUp(t) => all.push(t),
            Op::ExpertMatvec(t) => {
                all.push(t);
                experts.push(t);
            }
            _ => {}
        }
    }
    (all, experts)
}

fn is_wide(t: &BlockType) -> bool {
    BlockType::WIDE.contains(t)
}

/// The types of the matrices as a session on the device has them.
fn loaded(device: &mut dyn Device, c: &Container, h: &Hyper, memory: Option<u64>) -> (Vec<BlockType>, Vec<BlockType>) {
    let session = block_on(Session::new(device, c, h, options(1, memory), |_| {})).unwrap_or_else(|e| panic!("{e:#}"));
    types(session.commands())
}

#[test]
fn codes_in_the_place_of_rows_give_the_words_of_rows_on_every_device() {
    let list = ["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"];
    for (i, ty) in list.into_iter().enumerate() {
        let (c, h) = open(&format!("llama-tiny:{ty}"));
        // the scalar twins are the first; they and adapters have rows
        let mut devices: Vec<Box<dyn Device>> = vec![Box::new(common::cpu(None, 2))];
        for level in Level::available() {
            devices.extend([Codebooks::Wide, Codebooks::Compact].map(|how| cpu(level, how)));
        }
        let (wide, _) = loaded(devices[1].as_mut(), &c, &h, None);
        assert!(wide.iter().filter(|t| is_wide(t)).count() >= 8, "{ty}: {wide:?}");
        let (compact, _) = loaded(devices[2].as_mut(), &c, &h, None);
        assert!(!compact.iter().any(is_wide), "{ty}: {compact:?}");
        devices.extend(common::boxed_gpus(None));
        let script = Script { prompt: prompt(None, h.vocab, 21), generate: 3, batches: vec![0, 2] };
        let report = block_on(verify(&mut devices, &c, &h, options(1 + i % 2, None), &script, || {}));
        let report = report.unwrap_or_else(|e| panic!("{e:#}"));
        println!("{ty}: {} commands, {} words, digest {}", report.commands, report.words, report.digest);
        assert_eq!(report.mismatches, 0, "{ty}: {:?}", report.first);
        assert!(report.ok() && report.words > 0, "{ty}: {:?}", report.digests);
    }
}

#[test]
fn experts_on_the_cpu_have_codes_where_the_layers_adapters_do_not() {
    let (c, h) = open("qwen3moe-tiny:iq2_xs");
    let level = Level::detect();
    // what it asks for without being told, but for CPUs that find rows in registers
    let how = if level.finds_rows_in_registers() { Codebooks::Wide } else { Codebooks::Auto };
    let member = |device| Member { device, memory: None };
    let adapter = || -> Box<dyn Device> { Box::new(common::cpu(None, 1)) };
    let script = Script { prompt: prompt(None, h.vocab, 9), generate: 2, batches: vec![0] };
    for n in [0, 1, usize::MAX] {
        let split = Split::new(vec![member(adapter())], None).unwrap_or_else(|e| panic!("{e}"));
        let mut split = split.with_experts(member(cpu(level, how)), n);
        let of_experts = Packing { layers: Wide::NONE, experts: Wide::only(BlockType::IQ2_XS), of_experts: n };
        assert_eq!(split.packing(Wide::only(BlockType::IQ2_XS)), of_experts);
        let (all, experts) = loaded(&mut split, &c, &h, None);
        // gate and up of the first layers, one matrix; rows of down are no whole blocks
        assert_eq!(all.iter().filter(|t| is_wide(t)).count(), n.min(2), "{all:?}");
        assert!(experts.iter().enumerate().all(|(i, t)| is_wide(t) == (i / 2 < n && i % 2 < 1)), "{experts:?}");
        let mut devices: Vec<Box<dyn Device>> = vec![adapter(), Box::new(split)];
        let report = block_on(verify(&mut devices, &c, &h, options(1, None), &script, || {}));
        let report = report.unwrap_or_else(|e| panic!("{e:#}"));
        assert_eq!(report.mismatches, 0, "experts of {n}: {:?}", report.first);
    }
    // of two with layers, what both would have
    let two = |how| Split::new(vec![member(cpu(level, how)), member(cpu(level, Codebooks::Wide))], None);
    let all = |how| two(how).unwrap_or_else(|e| panic!("{e}")).packing(Wide::ALL);
    assert_eq!(all(Codebooks::Wide), Packing::of_all(Wide::ALL));
    assert_eq!(all(Codebooks::Compact), Packing::of_all(Wide::NONE));
}

#[test]
fn where_memory_is_short_rows_stay_rows() {
    let (c, h) = open("llama-tiny:iq2_xxs");
    let mut device = cpu(Level::detect(), Codebooks::Wide);
    let bytes = |device: &mut dyn Device, memory| {
        let session = block_on(Session::new(device, &c, &h, options(1, memory), |_| {})).expect("there is room");
        let wide = types(session.commands()).0.iter().any(is_wide);
        (wide, session.built().plan.buffers.iter().map(|b| b.words as u64 * 4).sum::<u64>())
    };
    let (wide, codes) = bytes(device.as_mut(), None);
    assert!(wide);
    let (wide, rows) = bytes(device.as_mut(), Some(rows_alone(&c, &h)));
    assert!(!wide && rows < codes, "{rows} and {codes}");
    // a quarter is left to others
    assert!(bytes(device.as_mut(), Some(codes / 3 * 4 + 64)).0);
    assert!(!bytes(device.as_mut(), Some(codes / 3 * 4 - 64)).0);
    // and where a device says so itself
    let member = |device, memory| Member { device, memory };
    let split = |memory| Split::new(vec![member(cpu(Level::detect(), Codebooks::Wide), memory)], None).expect("one");
    assert!(bytes(&mut split(Some(codes)), None).0);
    assert!(!bytes(&mut split(Some(codes - 1)), None).0);
}

/// Bytes of the plan whose types with codebooks are packed as in the file.
fn rows_alone(c: &Container, h: &Hyper) -> u64 {
    let mut device = cpu(Level::detect(), Codebooks::Compact);
    let session = block_on(Session::new(device.as_mut(), c, h, options(1, None), |_| {})).expect("loads");
    session.built().plan.buffers.iter().map(|b| b.words as u64 * 4).sum()
}

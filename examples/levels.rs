//! SIMD levels against the twins over the whole case table, their encoders against the plain ones, and on the embedded
//! model against the golden digests: one program without a file or a GPU, so that it also runs where the tests cannot, under an emulator
//! of another CPU and as a WebAssembly module.
//!
//!     cargo run --release --example levels -- neon-dot,neon-i8mm
//!
//! The argument names the levels; without it, all that can run here are taken. Exits with 1 when one that was named
//! cannot run, or when a word or a digest differs.

#[path = "../tests/common/mod.rs"]
mod common;

use anyhow::{Context, ensure};
use common::golden::GOLDEN;
use common::rows::{awkward, quantised};
use common::{cpu, run, same};
use isobit::internals::blocks::BlockType;
use isobit::internals::cases;
use isobit::internals::formats::Container;
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::verify::{Script, digest_of, prompt};
use isobit::internals::generate::{Session, SessionOptions};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::record::Device;
use isobit::internals::simd::{Level, encode};
use std::borrow::Cow;
use std::process::ExitCode;

static MODEL: &[u8] = include_bytes!("../assets/tiny-stories-Q4_K_M.gguf");

/// Walks the case table; every word of every buffer must be the twins'.
fn case_table(levels: &[Level], threads: usize) -> anyhow::Result<()> {
    let mut devices: Vec<_> = levels.iter().map(|&level| cpu(Some(level), threads)).collect();
    let (mut count, mut words) = (0, 0);
    for op in cases::ops_of_cpus() {
        let list = cases::of(op);
        let expected = run(&mut cpu(None, 1), &list);
        let mut wrong = Vec::new();
        count += list.len();
        words += expected.iter().flatten().map(Vec::len).sum::<usize>();
        for (level, device) in levels.iter().zip(&mut devices) {
            let found = run(device, &list);
            for ((case, expected), found) in list.iter().zip(&expected).zip(&found) {
                wrong.extend(same(case, expected, found).err().map(|e| format!("{}: {e}", level.name())));
            }
        }
        ensure!(wrong.is_empty(), "{}: {} cases differ, the first: {}", op.title(), wrong.len(), wrong[0]);
        println!("{}: {} cases", op.title(), list.len());
    }
    println!("case table: {count} cases, {words} words, the twins' at every level");
    Ok(())
}

/// Encodes awkward rows in every type, and decodes every f16 and bf16: the bytes and bits of the plain code.
fn encoders(levels: &[Level]) -> anyhow::Result<()> {
    let x = awkward();
    let mut bytes = 0;
    for ty in quantised() {
        let mut want = vec![0; ty.row_bytes(x.len()).context("whole blocks")?];
        ty.encode_row(&x, &mut want);
        for level in levels {
            let mut found = vec![0xaa; want.len()];
            encode::encode_row(*level, ty, &x, &mut found);
            let differs = want.iter().zip(&found).position(|(a, b)| a != b);
            ensure!(differs.is_none(), "{}: encoding {}: byte {differs:?} differs", level.name(), ty.name());
        }
        bytes += want.len();
    }
    let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for ty in [BlockType::F16, BlockType::BF16] {
        let mut want = vec![0.0f32; 1 << 16];
        ty.decode_row(&patterns, &mut want);
        for level in levels {
            let mut found = vec![0.0f32; 1 << 16];
            let bad = encode::decode_floats(*level, ty, &patterns, &mut found);
            let same = want.iter().zip(&found).all(|(a, b)| a.to_bits() == b.to_bits());
            ensure!(same, "{}: decoding {}: a value differs", level.name(), ty.name());
            ensure!(bad == want.iter().position(|v| !v.is_finite()), "{}: the first bad element", level.name());
        }
    }
    println!(
        "encoders: {} types, {bytes} bytes, and every f16 and bf16, the plain code's at every level",
        quantised().count()
    );
    Ok(())
}

/// 64 tokens after the fixed prompt of 64, with every pair of cache types that has a golden digest.
async fn digests(level: Option<Level>, threads: usize) -> anyhow::Result<()> {
    let c = Container::from_bytes("<embedded>", Cow::Borrowed(MODEL))?;
    let h = Hyper::read(&c)?;
    let script = Script {
        prompt: prompt(Tokenizer::from_gguf(&c.meta).ok().as_ref(), h.vocab, 64),
        generate: 64,
        batches: vec![],
    };
    for (k_type, v_type, recent, expected) in GOLDEN {
        let plan = PlanOptions { n_ctx: 128, ubatch: 64, k_type, v_type, recent, ..PlanOptions::default() };
        let mut device = cpu(level, threads);
        let name = device.info().name;
        let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
        let mut session = Session::new(&mut device, &c, &h, options, |_| {}).await?;
        let digest = digest_of(&mut session, &script, 64).await?;
        let types = recent.title(k_type, v_type);
        ensure!(digest == expected, "{name}: {types} gives {digest}, not {expected}");
        println!("{name}: {types} {digest}");
    }
    Ok(())
}

fn check() -> anyhow::Result<()> {
    let available = Level::available();
    let names: Vec<&str> = available.iter().map(|l| l.name()).collect();
    println!("{} has {}", std::env::consts::ARCH, names.join(", "));
    let mut levels = Vec::new();
    for asked in std::env::args().nth(1).iter().flat_map(|a| a.split(',')) {
        let level = Level::parse(asked).filter(|l| l.is_available());
        levels.push(level.with_context(|| format!("level {asked} is missing here, there are {}", names.join(", ")))?);
    }
    if levels.is_empty() {
        levels = available;
    }
    // a WebAssembly module has no threads
    let threads = if cfg!(target_family = "wasm") { 1 } else { 3 };
    encoders(&levels)?;
    case_table(&levels, threads)?;
    for level in levels {
        futures::executor::block_on(digests(Some(level), threads))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("levels: {e:#}");
            ExitCode::FAILURE
        }
    }
}

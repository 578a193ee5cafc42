//! SIMD levels against the twins over the whole case table, and on the embedded model against
//! the golden digests: one program without a file or a GPU, so that it also runs where the tests cannot, under an emulator
//! of another CPU and as a WebAssembly module.
//!
//!     cargo run --release --example levels -- neon,neon-dot
//!
//! The argument names the levels; without it, all that can run here are taken. Exits with 1 when one that was named
//! cannot run, or when a word or a digest differs.

#[path = "../tests/common/mod.rs"]
mod common;

use anyhow::{Context, ensure};
use common::{cpu, run, same};
use isobit::cases;
use isobit::formats::Container;
use isobit::fuse::Fuse;
use isobit::generate::tokenizer::Tokenizer;
use isobit::generate::verify::{Script, digest_of, prompt};
use isobit::generate::{Session, SessionOptions};
use isobit::models::{Hyper, PlanOptions, Recent};
use isobit::ops::cache::CacheType;
use isobit::record::Device;
use isobit::simd::Level;
use std::borrow::Cow;
use std::process::ExitCode;

static MODEL: &[u8] = include_bytes!("../assets/tiny-stories-Q4_K_M.gguf");

/// Where the golden digests stand.
const GOLDEN: &str = include_str!("../tests/verify.rs");

/// Cache types with a golden digest, and whether a query's own chunk is read from its f16 copy.
const CACHES: [(CacheType, CacheType, Recent); 11] = [
    (CacheType::F32, CacheType::F32, Recent::Off),
    (CacheType::F16, CacheType::F16, Recent::Off),
    (CacheType::Q8_0, CacheType::Q8_0, Recent::Off),
    (CacheType::Q4_0, CacheType::Q4_0, Recent::Off),
    (CacheType::TQ3_0, CacheType::F16, Recent::Off),
    (CacheType::TQ3_1, CacheType::TQ3_1, Recent::Off),
    (CacheType::Q4_0R, CacheType::TQ3_1, Recent::Off),
    (CacheType::Q8_0R, CacheType::Q8_0R, Recent::Off),
    (CacheType::TQ3_1, CacheType::TQ3_1, Recent::On),
    (CacheType::Q4_0R, CacheType::TQ3_1, Recent::On),
    (CacheType::Q4_0, CacheType::Q4_0, Recent::On),
];

/// Whether the table of `tests/verify.rs` has this digest for these types.
fn is_golden((k, v, recent): (CacheType, CacheType, Recent), digest: &str) -> bool {
    let table: String = GOLDEN.split_whitespace().collect();
    let row = format!("(CacheType::{k:?},CacheType::{v:?},Recent::{recent:?},\"{digest}\"");
    digest.len() == 64 && table.contains(&row)
}

/// Walks the case table; every word of every buffer must be the twins'.
fn case_table(levels: &[Level], threads: usize) -> anyhow::Result<()> {
    let mut devices: Vec<_> = levels.iter().map(|&level| cpu(Some(level), threads)).collect();
    let (mut count, mut words) = (0, 0);
    for op in cases::ops() {
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

/// 64 tokens after the fixed prompt of 64, with every pair of cache types that has a golden digest.
async fn digests(level: Option<Level>, threads: usize) -> anyhow::Result<()> {
    let c = Container::from_bytes("<embedded>", Cow::Borrowed(MODEL))?;
    let h = Hyper::read(&c)?;
    let script = Script {
        prompt: prompt(Tokenizer::from_gguf(&c.meta).ok().as_ref(), h.vocab, 64),
        generate: 64,
        batches: vec![],
    };
    for (k_type, v_type, recent) in CACHES {
        let max_binding_words = usize::MAX / 8;
        let plan =
            PlanOptions { n_ctx: 128, ubatch: 64, max_out: 1, digits: 1, k_type, v_type, recent, max_binding_words };
        let mut device = cpu(level, threads);
        let name = device.info().name;
        let options = SessionOptions { plan, memory: None, fuse: Fuse::On };
        let mut session = Session::new(&mut device, &c, &h, options, |_| {}).await?;
        let digest = digest_of(&mut session, &script, 64).await?;
        let types = recent.title(k_type, v_type);
        ensure!(is_golden((k_type, v_type, recent), &digest), "{name}: {types} gives {digest}, not the golden digest");
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

//! A model keeps its logits on its way through a BUMP file: from GGUF, to GGUF, and out of the BUMP file itself.

use crate::program;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::generate::verify::{Script, digest_of, prompt};
use isobit::internals::generate::{Session, SessionOptions};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::simd::Level;
use std::path::Path;

/// Digest of the logits of a prompt and some tokens after it, on the CPU.
fn digest(path: &Path, level: Option<Level>) -> String {
    let c = Container::open(path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let h = Hyper::read(&c).expect("hyperparameters");
    let mut device = CpuDevice::new(CpuOptions { level, threads: 1, max_binding: None }).expect("threads start");
    let plan = PlanOptions { n_ctx: h.context, ubatch: 8, ..PlanOptions::default() };
    let options = SessionOptions { plan, memory: None, fuse: isobit::internals::fuse::Fuse::On };
    let script = Script { prompt: prompt(None, h.vocab, 13), generate: 8, batches: vec![] };
    let run = async {
        let mut s = Session::new(&mut device, &c, &h, options, |_| {}).await?;
        digest_of(&mut s, &script, 0).await
    };
    pollster::block_on(run).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()))
}

#[test]
fn logits_stay_the_same_from_gguf_to_bump_and_back() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gguf");
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for (name, forms) in [
        ("tiny-llama-kquant-v3.gguf", &["bump-v3", "bump-v4", "bump-v5"][..]),
        ("tiny-qwen2-q40-q80-v3.gguf", &["bump-v4", "bump-v5"]),
        ("tiny-llama-f32-align64.gguf", &["bump-v5"]),
    ] {
        let input = data.join(name);
        let origin = digest(&input, Some(Level::detect()));
        assert_eq!(origin, digest(&input, None), "{name}: the twins");
        for form in forms {
            let (bump, back) = (dir.path().join("m.bump"), dir.path().join("back.gguf"));
            for (from, to, more) in [(&input, &bump, &["--to", form][..]), (&bump, &back, &[])] {
                let paths = ["convert", from.to_str().unwrap(), to.to_str().unwrap()];
                let o = program::isobit([&paths[..], more].concat()).output().unwrap();
                assert!(o.status.success(), "{name} {form}: {}", String::from_utf8_lossy(&o.stderr));
            }
            assert_eq!(digest(&bump, Some(Level::detect())), origin, "{name} as {form}");
            assert_eq!(digest(&back, Some(Level::detect())), origin, "{name} back from {form}");
        }
        println!("{name}: {origin}");
        seen.push(origin);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "three models, three digests");
}

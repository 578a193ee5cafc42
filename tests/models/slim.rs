//! Models of msModelSlim's schemes, made of the small trained model: the same words on every device, whatever the batches, and
//! digests that must never change.

use crate::common;
use crate::program;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::SessionOptions;
use isobit::internals::generate::verify::{Script, prompt, verify};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::record::Device;
use isobit::internals::simd::Level;
use std::path::{Path, PathBuf};

/// The scheme's words on the command line, and the digest of the logits of 8 tokens after a prompt of 20.
const SCHEMES: [(&str, &str); 8] = [
    ("w8a16", "2aed23a6fc2fa9743eca3131538fc2d763f6a1d05b3eba71a4db7ea149a89403"),
    ("w8a16 --group 32", "129de3c4cbf3c224ff8a753b56b2c9cebd533165cbba229387a1f2cb55eec5dd"),
    ("w8a16 --group 128 --symmetric", "0cbb5beb617a7bb548587ca3e44f47741a922fc534d9dfb4037e54c7003da8ff"),
    ("w4a16 --group 32", "7f066212dc8ec19b630b0b77739db3975314af6444a1dc5abf836d0f8383a375"),
    ("w8a8-dynamic --smooth 0.5 --calibrate TEXT", "45fa4e6ee79e813080bc3f3ddb1d87a275e73dc63220d5e31dec0c0497b0f562"),
    ("w8a8 --calibrate TEXT", "77f714a8862dad5afcf261a78db214be931ef5c799693107df041428cd85abcf"),
    ("w8a8 --calibrate TEXT --smooth 0.5 --kv c8", "0b3bc7159066d01393015db2489b3118f1d8a1f55383d3eeac6370ff380708d1"),
    ("w4a8-dynamic", "cc82005cac014811c65c3de14868dee964df92bcbb836439b5871c15388ffe4a"),
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn quantized(dir: &Path, words: &str) -> PathBuf {
    let out = dir.join(words.replace([' ', '-', '.'], "_"));
    let (from, text) = (data("tiny/hf"), data("tiny/valid.txt"));
    let words = words.split(' ').map(|w| if w == "TEXT" { text.as_os_str().into() } else { w.into() });
    let args = ["quantize".into(), from.into_os_string(), out.clone().into_os_string()].into_iter().chain(words);
    let o = program::isobit(args).output().unwrap();
    assert!(o.status.success(), "{}: {}", out.display(), String::from_utf8_lossy(&o.stderr));
    out
}

#[test]
fn every_scheme_gives_its_golden_digest_on_every_device() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = vec![];
    for (words, golden) in SCHEMES {
        let c = Container::open(&quantized(dir.path(), words), LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
        let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{words}: {e:#}"));
        let cpu = |level, threads| -> Box<dyn Device> {
            Box::new(CpuDevice::new(CpuOptions { level, threads, max_binding: None }).expect("threads start"))
        };
        let mut devices = vec![cpu(None, 1)];
        devices.extend(Level::available().into_iter().map(|l| cpu(Some(l), 3)));
        devices.extend(common::boxed_gpus(None));
        let plan = PlanOptions { n_ctx: 128, ubatch: 64, ..PlanOptions::default() };
        let o = SessionOptions { plan, memory: None, fuse: Fuse::On };
        let script = Script { prompt: prompt(None, h.vocab, 20), generate: 8, batches: vec![7] };
        let r = pollster::block_on(verify(&mut devices, &c, &h, o, &script, || {}))
            .unwrap_or_else(|e| panic!("{words}: {e:#}"));
        assert_eq!(r.mismatches, 0, "{words}: {:?}", r.first);
        assert!(r.ok() && r.words > 0, "{words}: {:?} against {}", r.digests, r.digest);
        println!("{words}: {} commands, {} words, {} devices, digest {}", r.commands, r.words, devices.len(), r.digest);
        if r.digest != golden {
            wrong.push((words, r.digest));
        }
    }
    assert!(wrong.is_empty(), "golden digests: {wrong:#?}");
}

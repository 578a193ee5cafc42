//! What tests of a family of models ask of each: that a comparison sees a tensor, that layers which write no keys are computed
//! for wanted tokens alone, what is quantised, and what is refused by name.

use crate::arch::{hyper, ids, logits, open, recorded, set_in_directory};
use crate::checkpoint::{SMALL, model};
use crate::hybrid::divergence;
use crate::program;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::Container;
use isobit::internals::formats::meta::Value;
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions, build};
use isobit::internals::ops::cache::CacheType;
use std::path::Path;

/// Of a recorded case `count` tensors whose names end in `part` are set to a value: the logits are others then.
pub(super) fn sees(name: &str, part: &str, value: f32, count: usize) {
    let r = recorded(name);
    let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
    assert_eq!(set_in_directory(&path, part, value), count, "{part}");
    let found = logits(&open(&path), &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
    let worst = divergence(name, found);
    println!("{name}, {part}: worst KL {worst:.2e}");
    assert!(worst > 1e-7, "{name}, {part}: {worst:e}");
}

/// Of a made-up model the layers from `late` on are computed for the tokens alone whose logits are wanted, none, one or some of
/// a piece, with the same bits.
pub(super) fn late_layers_have_the_same_bits(args: &str, late: usize) {
    let (_dir, path) = model(&format!("{SMALL} {args}"));
    let c = open(&path);
    let h = hyper(&c);
    let built = build(&c, &h, &PlanOptions::default()).unwrap_or_else(|e| panic!("{e:#}"));
    for command in &built.plan.recording.commands {
        if let Some(l) = command.layer {
            assert_eq!(command.rows.are_outputs(), l >= late, "{}", command.title());
        }
    }
    let all = logits(&c, &ids(90), 128).unwrap_or_else(|e| panic!("{e:#}"));
    let mut device = CpuDevice::new(CpuOptions::default()).expect("threads start");
    let mut rows = Vec::new();
    pollster::block_on(async {
        let (k_type, v_type) = (CacheType::F32, CacheType::F32);
        let plan = PlanOptions { n_ctx: 128, ubatch: 16, max_out: 8, k_type, v_type, ..PlanOptions::default() };
        let o = SessionOptions { plan, memory: None, fuse: Fuse::On };
        let mut s = Session::new(&mut device, &c, &h, o, |_| {}).await?;
        for (piece, wanted) in [(0..40, 39), (40..41, 0), (41..61, 15), (61..90, 5)] {
            s.feed(&ids(90)[piece], Want::From(wanted), |_, l| {
                rows.push(l.to_vec());
                Ok(())
            })
            .await?;
        }
        anyhow::Ok(())
    })
    .unwrap_or_else(|e| panic!("{e:#}"));
    let expected: Vec<usize> = [39..40, 40..41, 56..61, 66..90].into_iter().flatten().collect();
    assert_eq!(rows.len(), expected.len());
    for (found, i) in rows.iter().zip(expected) {
        assert!(found.iter().map(|v| v.to_bits()).eq(all[i].iter().map(|v| v.to_bits())), "{i}");
    }
}

/// What `isobit quantize` makes of a model, in a file `made`.
pub(super) fn quantised(path: &Path, made: &Path, recipe: &str) -> Container {
    let done = program::isobit(["quantize"]).args([path, made]).arg(recipe).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    open(made)
}

/// The tensors of a file by name have these types and shapes.
pub(super) fn has_tensors(c: &Container, expected: &[(&str, &str, &[u64])]) {
    for (name, dtype, shape) in expected {
        let t = c.tensor(name).expect(name);
        assert_eq!((t.dtype.name(), &t.shape[..]), (*dtype, *shape), "{name}");
    }
}

/// Values of keys of a GGUF file, without the architecture, with which it makes no model, and what the error says.
pub(super) fn numbers_are_refused<'a>(
    path: &Path,
    arch: &str,
    cases: impl IntoIterator<Item = (&'a str, Value, &'a str)>,
) {
    for (key, value, expected) in cases {
        let mut c = open(path);
        let key = format!("{arch}.{key}");
        c.meta.entries.iter_mut().find(|(k, _)| *k == key).unwrap_or_else(|| panic!("{key}")).1 = value;
        let error = match Hyper::read(&c) {
            Ok(_) => logits(&c, &ids(4), 64).expect_err(expected),
            Err(e) => e,
        };
        assert!(format!("{error:#}").contains(expected), "{key}: {expected:?} in {error:#}");
    }
}

/// What is changed in a config.json.
pub(super) type Change = fn(&mut serde_json::Value);

/// What is read of a directory whose config.json is changed so.
pub(super) fn with_config(path: &Path, change: impl FnOnce(&mut serde_json::Value)) -> anyhow::Result<Hyper> {
    let mut c = open(path);
    change(c.config.as_mut().expect("a directory has one"));
    Hyper::read(&c)
}

/// Changes of a config.json with which it makes no model, and what the error, one line, says.
pub(super) fn configs_are_refused(path: &Path, cases: &[(Change, &str)]) {
    for (change, expected) in cases {
        let error = format!("{:#}", with_config(path, change).expect_err(expected));
        assert!(error.contains(expected) && error.lines().count() == 1, "{expected:?} in {error}");
    }
}

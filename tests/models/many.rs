//! Many sequences at once: whatever else is in a step, and wherever a sequence's chunks lie, its logits are those it gives
//! alone.

use crate::checkpoint::model;
use crate::common::whole::taking;
use crate::common::{boxed_gpus, cpu, levels};
use futures::executor::block_on;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::batch::Part;
use isobit::internals::generate::pool::{Pool, Sequence};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions, Recent};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::ops::places::GONE;
use isobit::internals::random;
use isobit::internals::record::Device;
use isobit::internals::simd::Level;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

const CONTEXT: usize = 256;

fn embedded() -> (Container, Hyper) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf");
    let c = Container::open(&file, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
    (c, h)
}

fn options(sequences: usize, pool: Option<usize>, cache: CacheType) -> SessionOptions {
    let (k_type, v_type) = (cache, cache);
    let plan = PlanOptions {
        n_ctx: CONTEXT,
        sequences,
        pool,
        ubatch: 96,
        max_out: 40,
        k_type,
        v_type,
        ..PlanOptions::default()
    };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

fn digest(logits: &[f32]) -> u64 {
    let mut h = DefaultHasher::new();
    logits.iter().for_each(|l| l.to_bits().hash(&mut h));
    h.finish()
}

/// Tokens of so many sequences of random lengths, groups of which begin alike.
fn texts(n: usize, vocab: usize, seed: &mut u64) -> Vec<Vec<u32>> {
    let mut draw = |n: usize| (random::next(seed) % n as u64) as usize;
    let prefixes: Vec<Vec<u32>> = (0..5)
        .map(|_| {
            let len = 20 + draw(180);
            (0..len).map(|_| draw(vocab) as u32).collect()
        })
        .collect();
    (0..n)
        .map(|_| {
            let mut ids = prefixes[draw(5)].clone();
            ids.truncate(1 + draw(ids.len()));
            let more = 1 + draw(90);
            ids.extend((0..more).map(|_| draw(vocab) as u32));
            ids.truncate(CONTEXT);
            ids
        })
        .collect()
}

/// The digest of each row of logits of each text, alone.
fn alone(c: &Container, h: &Hyper, cache: CacheType, texts: &[Vec<u32>]) -> Vec<Vec<u64>> {
    let mut device = cpu(Some(Level::detect()), 0);
    block_on(async {
        let mut session = Session::new(&mut device, c, h, options(1, None, cache), |_| {}).await?;
        let mut all = Vec::new();
        for ids in texts {
            session.reset();
            let mut rows = Vec::new();
            let each = |_: usize, row: &[f32]| {
                rows.push(digest(row));
                Ok(())
            };
            session.feed(ids, Want::From(0), each).await?;
            all.push(rows);
        }
        anyhow::Ok(all)
    })
    .unwrap_or_else(|e| panic!("{e:#}"))
}

/// A text under way.
struct Running {
    text: usize,
    sequence: Sequence,
}

/// What a run did, so that a test cannot pass by doing nothing.
#[derive(Debug, Default)]
struct Did {
    rows: usize,
    reused: usize,
    cancelled: usize,
    dropped: usize,
    ended: usize,
    widest: usize,
}

/// Steps of texts that arrive, end, are cancelled and dropped as a seed says, in a pool that is too small for all of them:
/// every row of logits that comes is the one the text gives alone.
fn runs_as_alone(
    device: &mut dyn Device,
    (c, h): (&Container, &Hyper),
    how: SessionOptions,
    page: usize,
    (texts, expected): (&[Vec<u32>], &[Vec<u64>]),
    (steps, seed): (usize, u64),
) -> Did {
    let (name, mut seed, mut did) = (device.info().name, seed, Did::default());
    let mut draw = move |n: usize| (random::next(&mut seed) % n as u64) as usize;
    block_on(async {
        let mut session = Session::paged(device, c, h, how, page, |_| {}).await?;
        let mut pool = Pool::new(session.built());
        let idle = pool.usage();
        let (mut running, mut next): (Vec<Running>, usize) = (Vec::new(), 0);
        for step in 0..steps {
            while running.len() < how.plan.sequences && draw(3) > 0 {
                let text = next % texts.len();
                next += 1;
                let mut sequence = pool.begin(&texts[text]);
                pool.mark_end(&mut sequence, texts[text].len());
                did.reused += sequence.len();
                running.push(Running { text, sequence });
            }
            if !running.is_empty() && draw(40) == 0 {
                let gone = running.swap_remove(draw(running.len()));
                pool.end(gone.sequence);
                did.cancelled += 1;
            }
            // who is in this step, with how many tokens
            let mut wanted: HashMap<usize, (usize, usize)> = HashMap::new();
            let (mut left, mut rows) = (how.plan.ubatch, how.plan.max_out);
            let mut i = 0;
            while i < running.len() {
                let rest = texts[running[i].text].len() - running[i].sequence.len();
                let n = match draw(4) {
                    0 => 0,
                    1 => 1 + draw(70),
                    _ => 1,
                };
                let n = pool.cut(&running[i].sequence, n.min(rest).min(left));
                if n > 0 && pool.reserve(&mut running[i].sequence, n).is_err() {
                    // the youngest loses what it has, and begins anew
                    let last = running.pop().expect("one at least");
                    wanted.remove(&running.len()).into_iter().for_each(|(n, r)| (left, rows) = (left + n, rows + r));
                    let text = last.text;
                    pool.end(last.sequence);
                    if running.is_empty() {
                        pool.clear();
                    }
                    let sequence = Sequence::default();
                    running.insert(0, Running { text, sequence });
                    wanted = wanted.into_iter().map(|(i, w)| (i + 1, w)).collect();
                    did.dropped += 1;
                    // whoever was asked is now one further on
                    i += 1;
                    continue;
                }
                if n > 0 {
                    let r = draw(n + 1).min(rows);
                    (left, rows) = (left - n, rows - r);
                    wanted.insert(i, (n, r));
                }
                i += 1;
            }
            let mut parts: Vec<Part> = Vec::new();
            let mut whose = Vec::new();
            for (i, r) in running.iter().enumerate() {
                if let Some(&(n, rows)) = wanted.get(&i) {
                    let from = r.sequence.len();
                    whose.push((r.text, from));
                    parts.push(Part { sequence: &r.sequence, ids: &texts[r.text][from..from + n], rows });
                }
            }
            if parts.is_empty() {
                continue;
            }
            did.widest = did.widest.max(parts.len());
            session
                .step(&parts, |part, token, logits| {
                    let (text, from) = whose[part];
                    did.rows += 1;
                    let same = digest(logits) == expected[text][from + token];
                    anyhow::ensure!(same, "{name}: step {step}, text {text}: the logits of token {}", from + token);
                    Ok(())
                })
                .await?;
            for (i, r) in running.iter_mut().enumerate() {
                let (n, _) = wanted.get(&i).copied().unwrap_or_default();
                let from = r.sequence.len();
                pool.written(&mut r.sequence, &texts[r.text][from..from + n]);
            }
            let (done, rest): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|r| r.sequence.len() == texts[r.text].len());
            running = rest;
            did.ended += done.len();
            done.into_iter().for_each(|r| pool.end(r.sequence));
        }
        running.into_iter().for_each(|r| pool.end(r.sequence));
        pool.clear();
        assert_eq!(pool.usage(), idle, "{name}: chunks are lost");
        anyhow::Ok(())
    })
    .unwrap_or_else(|e| panic!("{e:#}"));
    did
}

/// Of 64 texts on some devices, `steps` steps for each seed, or as many as ISOBIT_STEPS says.
fn all_as_alone(devices: Vec<Box<dyn Device>>, cache: CacheType, steps: usize, seeds: &[u64]) {
    let (c, h) = embedded();
    of_as_alone((&c, &h), devices, cache, steps, seeds);
}

fn of_as_alone(
    (c, h): (&Container, &Hyper),
    devices: Vec<Box<dyn Device>>,
    cache: CacheType,
    steps: usize,
    seeds: &[u64],
) {
    let steps = std::env::var("ISOBIT_STEPS").map_or(steps, |n| n.parse().expect("ISOBIT_STEPS is a number"));
    let texts = texts(64, h.vocab, &mut 7);
    let expected = alone(c, h, cache, &texts);
    for mut device in devices {
        for &seed in seeds {
            // pages of 8 chunks on some, all in one on others
            let page = if seed % 2 == 0 { 512 } else { usize::MAX };
            let mut how = options(24, Some(24 * 64), cache);
            // of a recurrent model nobody can begin with what another has computed, unless states of it are kept
            how.plan.checkpoints = if h.has_states() { (seed % 3) as usize * 12 } else { 0 };
            let did = runs_as_alone(device.as_mut(), (c, h), how, page, (&texts, &expected), (steps, seed));
            println!("{} {} seed {seed}: {did:?}", device.info().name, cache.name());
            let reused = match (h.has_states(), how.plan.checkpoints) {
                (false, _) => did.reused > 128,
                (true, 0) => did.reused == 0,
                (true, _) => did.reused > 0,
            };
            let some = [did.rows > 10 * steps / 4, reused, did.cancelled > 0, did.dropped > 0, did.ended > 20];
            assert_eq!(some, [true; 5], "{did:?}");
        }
    }
}

#[test]
fn many_sequences_on_the_cpu_give_what_each_gives_alone_with_a_cache_of_f16() {
    all_as_alone(vec![Box::new(cpu(Some(Level::detect()), 0))], CacheType::F16, 1000, taking(&[1, 2][..], &[1, 2, 3]));
}

#[test]
fn many_sequences_on_the_cpu_give_what_each_gives_alone_with_a_cache_of_q8_0() {
    all_as_alone(vec![Box::new(cpu(Some(Level::detect()), 0))], CacheType::Q8_0, 1000, &[4, 5]);
}

#[test]
fn many_sequences_on_the_cpu_give_what_each_gives_alone_with_a_copy_of_recent_positions() {
    assert!(Recent::Auto.applies(CacheType::TQ3_1, CacheType::TQ3_1));
    all_as_alone(vec![Box::new(cpu(Some(Level::detect()), 0))], CacheType::TQ3_1, 1000, &[6, 7]);
}

#[test]
fn many_sequences_at_every_level_give_what_each_gives_alone() {
    for cache in [CacheType::F16, CacheType::TQ3_1] {
        let devices = levels().into_iter().map(|l| Box::new(cpu(Some(l), 0)) as Box<dyn Device>);
        all_as_alone(devices.collect(), cache, 200, &[8]);
    }
}

/// Small models whose layers, all or one of two, see a window of 70 positions.
fn windowed(run: impl Fn(&Container, &Hyper)) {
    const SHAPE: &str = "--dim 128 --layers 2 --ffn 96 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32";
    let some = [("sliding_window", 70.into()), ("use_sliding_window", true.into()), ("max_window_layers", 1.into())];
    for (arch, keys, layers) in [("phi3", &some[..1], 2), ("qwen2", &some[..], 1)] {
        let (_dir, path) = model(&format!("--arch {arch} {SHAPE} --format hf"));
        let mut c = Container::open(&path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
        let config = c.config.as_mut().expect("a directory has one");
        for (key, value) in keys {
            config[*key] = serde_json::Value::clone(value);
        }
        let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
        assert_eq!((0..h.layers).filter(|l| h.window_of(*l) == Some(70)).count(), layers);
        run(&c, &h);
    }
}

#[test]
fn many_sequences_of_models_with_windows_give_what_each_gives_alone() {
    windowed(|c, h| {
        for cache in [CacheType::F16, CacheType::TQ3_1] {
            of_as_alone((c, h), vec![Box::new(cpu(Some(Level::detect()), 0))], cache, 400, &[16, 17]);
        }
    });
}

#[cfg(feature = "gpu")]
#[test]
fn many_sequences_of_models_with_windows_give_it_on_every_adapter() {
    windowed(|c, h| of_as_alone((c, h), boxed_gpus(None), CacheType::F16, 120, &[19]));
}

/// Small models with recurrent layers.
fn recurrent(run: impl Fn(&Container, &Hyper)) {
    const SHAPE: &str =
        "--dim 64 --layers 4 --ffn 96 --heads 4 --kv-heads 2 --head-dim 32 --vocab 262 --ctx 256 --type f32";
    for arch in ["qwen35", "lfm2", "mamba2"] {
        let (_dir, path) = model(&format!("--arch {arch} {SHAPE}"));
        let c = Container::open(&path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
        let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
        run(&c, &h);
    }
}

#[test]
fn many_sequences_of_a_recurrent_model_give_what_each_gives_alone() {
    recurrent(|c, h| {
        for level in levels() {
            of_as_alone((c, h), vec![Box::new(cpu(Some(level), 0))], CacheType::F16, 300, &[21, 22]);
        }
    });
}

#[cfg(feature = "gpu")]
#[test]
fn many_sequences_of_a_recurrent_model_give_it_on_every_adapter() {
    recurrent(|c, h| of_as_alone((c, h), boxed_gpus(None), CacheType::F16, 120, &[23]));
}

#[test]
fn a_sequence_holds_of_a_window_what_its_queries_still_see() {
    windowed(|c, h| {
        let mut device = cpu(Some(Level::detect()), 1);
        let session = Session::new(&mut device, c, h, options(4, Some(1024), CacheType::F16), |_| {});
        let session = block_on(session).unwrap_or_else(|e| panic!("{e:#}"));
        let mut pool = Pool::new(session.built());
        let mut sequence = pool.begin(&[]);
        for n in 0..CONTEXT / 32 {
            pool.reserve(&mut sequence, 32).expect("there is room");
            pool.written(&mut sequence, &[n as u32; 32]);
            // 70 positions and the next one lie in three chunks at most
            let seen = sequence.chunks(1).iter().filter(|c| **c != GONE).count();
            assert!(seen <= 3 && sequence.chunks(1).len() == (n + 2) / 2, "{:?}", sequence.chunks(1));
        }
        let all = h.window_of(0).is_none();
        assert_eq!(sequence.chunks(0).len(), if all { CONTEXT / 64 } else { 0 });
        // nor is anything kept for a sequence that would begin alike
        pool.clear();
        let last = sequence.chunks(1).iter().filter(|c| **c != GONE).count();
        assert_eq!(last, 2);
        pool.end(sequence);
    });
}

#[cfg(feature = "gpu")]
#[test]
fn many_sequences_on_every_adapter_give_what_each_gives_alone_with_a_cache_of_f16() {
    all_as_alone(boxed_gpus(None), CacheType::F16, 100, &[9, 10]);
}

#[cfg(feature = "gpu")]
#[test]
fn many_sequences_on_every_adapter_give_what_each_gives_alone_with_a_cache_of_q8_0() {
    all_as_alone(boxed_gpus(None), CacheType::Q8_0, 100, &[12]);
}

#[cfg(feature = "gpu")]
#[test]
fn many_sequences_on_every_adapter_give_what_each_gives_alone_with_a_copy_of_recent_positions() {
    all_as_alone(boxed_gpus(None), CacheType::TQ3_1, 100, &[14, 15]);
}

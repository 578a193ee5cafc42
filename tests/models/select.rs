//! Selection on the device: whatever leaves the device, the ids are those that all logits give; steps that were started
//! in vain leave nothing behind; what is not finite, and a device that is lost, is an error as it always was.

use crate::common;
use crate::common::{boxed_gpus, cpu};
use futures::executor::block_on;
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::generation::Reads;
use isobit::internals::generate::sampling::{Sampler, SamplerOptions};
use isobit::internals::generate::verify::prompt;
use isobit::internals::generate::{Generation, Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::{Device, Op, Step};
use isobit::internals::simd::Level;
use std::path::Path;

fn embedded() -> (Container, Hyper) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf");
    let c = Container::open(&file, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
    (c, h)
}

fn options(n_ctx: usize, cache: CacheType) -> SessionOptions {
    let plan = PlanOptions { n_ctx, ubatch: 16, k_type: cache, v_type: cache, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

/// The twins, the best SIMD level, and every adapter.
fn devices() -> Vec<Box<dyn Device>> {
    let mut list: Vec<Box<dyn Device>> = vec![Box::new(cpu(None, 0)), Box::new(cpu(Some(Level::detect()), 0))];
    list.extend(boxed_gpus(None));
    list
}

fn greedy() -> SamplerOptions {
    SamplerOptions { temperature: 0.0, ..SamplerOptions::default() }
}

/// Generates up to `n` tokens from a prompt; `more` says whether each is to be followed, whatever comes.
async fn generate(
    session: &mut Session<'_>,
    sampler: &SamplerOptions,
    reads: Reads,
    prompt: &[u32],
    n: usize,
    more: bool,
) -> anyhow::Result<Vec<u32>> {
    session.reset();
    let n_ctx = session.n_ctx();
    let mut g = Generation::new(session, Sampler::new(sampler.clone())?, reads);
    g.prompt(&prompt[..prompt.len() / 2], false).await?;
    g.prompt(&prompt[prompt.len() / 2..], true).await?;
    let mut ids = Vec::new();
    while ids.len() < n && (g.pos() < n_ctx || ids.is_empty()) {
        ids.push(g.next(more || ids.len() + 1 < n).await?);
    }
    g.end().await?;
    Ok(ids)
}

#[test]
fn what_leaves_the_device_does_not_change_the_ids() {
    let (c, h) = embedded();
    let prompt = prompt(None, h.vocab, 21);
    let mut reference: Vec<Vec<u32>> = Vec::new();
    for mut device in devices() {
        let name = device.info().name;
        let few = name.contains("scalar") || name.contains("llvmpipe");
        block_on(async {
            let mut session = Session::new(device.as_mut(), &c, &h, options(128, CacheType::F16), |_| {}).await?;
            let list = (0..24).map(|seed| match seed % 4 {
                0 => SamplerOptions { repeat_last_n: seed as usize, ..greedy() },
                1 => SamplerOptions { seed, temperature: 0.8, ..greedy() },
                2 => SamplerOptions { seed, temperature: 2.0, top_k: 128, top_p: 1.0, min_p: 0.0, ..greedy() },
                _ => SamplerOptions { seed, temperature: 1.0, top_k: 3 + seed as usize, min_p: 0.0, ..greedy() },
            });
            for (i, sampler) in list.enumerate() {
                if reference.len() == i {
                    reference.push(generate(&mut session, &sampler, Reads::Logits, &prompt, 12, false).await?);
                }
                // the slow devices take each kind of sampler a few times
                if few && i > 7 {
                    continue;
                }
                for reads in [Reads::Best, Reads::Ahead] {
                    let ids = generate(&mut session, &sampler, reads, &prompt, 12, false).await?;
                    assert_eq!(ids, reference[i], "{name}, {reads:?}, {sampler:?}");
                }
            }
            let read = session.device().take_stats().read_back;
            println!("{name}: {read} bytes read back");
            anyhow::Ok(())
        })
        .unwrap_or_else(|e| panic!("{name}: {e:#}"));
    }
    let different: std::collections::HashSet<_> = reference.iter().collect();
    assert!(different.len() > 12, "the seeds give {} texts", different.len());
}

#[test]
fn a_step_started_in_vain_leaves_nothing_behind_wherever_the_text_stops() {
    let (c, h) = embedded();
    let prompt = prompt(None, h.vocab, 60);
    for cache in [CacheType::F16, CacheType::TQ3_1] {
        let mut reference: Vec<(Vec<u32>, Vec<u32>)> = Vec::new();
        for mut device in devices().split_off(1) {
            let name = device.info().name;
            block_on(async {
                let mut session = Session::new(device.as_mut(), &c, &h, options(128, cache), |_| {}).await?;
                // across the border of a chunk of 64 positions
                for stop in 1..=7 {
                    let mut take = async |reads| {
                        let ids = generate(&mut session, &greedy(), reads, &prompt, stop, true).await?;
                        let pos = session.pos();
                        assert_eq!(pos, prompt.len() + stop - 1, "{name}: the last token was not fed");
                        // another token than the one the device went on with
                        let other: Vec<u32> = (0..9).map(|i| (ids[stop - 1] + 1 + i) % h.vocab as u32).collect();
                        let mut after = Vec::new();
                        let keep = |_: usize, row: &[f32]| {
                            after.extend(row.iter().map(|v| v.to_bits()));
                            Ok(())
                        };
                        session.feed(&other, Want::Last, keep).await?;
                        anyhow::Ok((ids, after))
                    };
                    if reference.len() < stop {
                        reference.push(take(Reads::Logits).await?);
                    }
                    assert!(take(Reads::Ahead).await? == reference[stop - 1], "{name}, {}, {stop}", cache.name());
                }
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{name}: {e:#}"));
        }
    }
}

#[test]
fn the_context_ends_a_text_at_the_same_token() {
    let (c, h) = embedded();
    for mut device in devices().split_off(1) {
        let name = device.info().name;
        block_on(async {
            let mut session = Session::new(device.as_mut(), &c, &h, options(64, CacheType::F16), |_| {}).await?;
            for len in [50, 63, 64] {
                let prompt = prompt(None, h.vocab, len);
                let all = generate(&mut session, &greedy(), Reads::Logits, &prompt, 100, true).await?;
                assert_eq!(all.len(), 64 - len + 1, "{name}: one more than there is room for");
                let ahead = generate(&mut session, &greedy(), Reads::Ahead, &prompt, 100, true).await?;
                assert_eq!(ahead, all, "{name}, prompt of {len}");
            }
            // asked for in spite of it
            let mut g = Generation::new(&mut session, Sampler::new(greedy())?, Reads::Ahead);
            let error = g.prompt(&[1], true).await.unwrap_err().to_string();
            assert!(error.contains("need a context of 65"), "{name}: {error}");
            anyhow::Ok(())
        })
        .unwrap_or_else(|e| panic!("{name}: {e:#}"));
    }
}

#[test]
fn a_logit_that_is_not_finite_is_the_same_error_whatever_is_read() {
    let (c, h) = embedded();
    let prompt = prompt(None, h.vocab, 5);
    for mut device in devices() {
        let name = device.info().name;
        block_on(async {
            let mut session = Session::new(device.as_mut(), &c, &h, options(64, CacheType::F16), |_| {}).await?;
            // finite weights so large that row 5 of the head overflows
            let plan = session.built().plan.clone();
            let head = plan.recording.commands.iter().find(|c| c.label == "logits").expect("every model has one");
            assert_eq!(head.op, Op::Matvec(BlockType::Q6_K));
            let mut words = session.device().read(head.binds[0]).await?;
            words[5] = 0x7bff;
            session.device().write(head.binds[0], &words).await?;
            let norm = plan.buffers.iter().position(|b| b.name == "output_norm.weight");
            let id = norm.expect("every llama has one");
            session.device().write(id, &vec![1e15f32.to_bits(); plan.buffers[id].words]).await?;
            let mut errors = Vec::new();
            for reads in [Reads::Logits, Reads::Best, Reads::Ahead] {
                errors.push(generate(&mut session, &greedy(), reads, &prompt, 4, true).await.unwrap_err().to_string());
            }
            assert_eq!(errors[0], "the logits of position 4 hold NaN: the model's activations overflowed", "{name}");
            assert!(errors.iter().all(|e| *e == errors[0]), "{name}: {errors:?}");
            anyhow::Ok(())
        })
        .unwrap_or_else(|e| panic!("{name}: {e:#}"));
    }
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;

    #[test]
    fn commands_of_a_token_are_encoded_while_the_one_before_is_under_way() {
        let (c, h) = embedded();
        let prompt = prompt(None, h.vocab, 60);
        let top40 = SamplerOptions { temperature: 0.8, ..greedy() };
        let runs =
            [(&greedy(), Reads::Logits), (&greedy(), Reads::Best), (&top40, Reads::Best), (&greedy(), Reads::Ahead)];
        for mut device in common::gpus() {
            block_on(async {
                let mut session = Session::new(&mut device, &c, &h, options(96, CacheType::F16), |_| {}).await?;
                for (sampler, reads) in runs {
                    session.device().take_stats();
                    generate(&mut session, sampler, reads, &prompt, 10, false).await?;
                    let stats = session.device().take_stats();
                    // four steps of the prompt and nine tokens; of those that follow not the first, since no step of the
                    // prompt follows one
                    let tokens = if reads == Reads::Ahead { 8 } else { 9 };
                    assert_eq!((stats.steps, stats.encoded_ahead), (13, tokens), "{reads:?}");
                    // a step of another kind between: what was encoded for a token is thrown away
                    for n in [3, 1, 1, 2, 1] {
                        session.feed(&prompt[..n], Want::Last, |_, _| Ok(())).await?;
                    }
                    let stats = session.device().take_stats();
                    assert_eq!((stats.steps, stats.encoded_ahead), (5, 3), "{reads:?}");
                }
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{e:#}"));
        }
    }

    #[test]
    fn a_token_costs_a_few_bytes_of_read_back() {
        let (c, h) = embedded();
        let prompt = prompt(None, h.vocab, 5);
        for mut device in common::gpus() {
            block_on(async {
                let mut session = Session::new(&mut device, &c, &h, options(64, CacheType::F16), |_| {}).await?;
                let top40 = SamplerOptions { temperature: 0.8, ..greedy() };
                for (sampler, reads, bytes) in [
                    (&greedy(), Reads::Logits, 4 * h.vocab as u64),
                    (&greedy(), Reads::Best, 8),
                    (&greedy(), Reads::Ahead, 8),
                    (&top40, Reads::Ahead, 64 * 8),
                ] {
                    session.device().take_stats();
                    generate(&mut session, sampler, reads, &prompt, 10, false).await?;
                    assert_eq!(session.device().take_stats().read_back, 10 * bytes, "{reads:?}");
                }
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{e:#}"));
        }
    }

    #[test]
    fn a_device_lost_with_two_steps_under_way_is_an_error_and_stays_one() {
        let (c, h) = embedded();
        for mut gpu in common::gpus() {
            let name = gpu.info().name;
            block_on(async {
                let built = {
                    let session = Session::new(&mut gpu, &c, &h, options(64, CacheType::F16), |_| {}).await?;
                    session.built().clone()
                };
                let step = Step {
                    n_tokens: 1,
                    n_out: 1,
                    select: 1,
                    inputs: vec![(built.ids, vec![3]), (built.rope, vec![0; h.n_rot])],
                    ..Default::default()
                };
                gpu.submit(&step).await?;
                let next = Step { pos: 1, follow: Some(built.ids), ..step.clone() };
                gpu.submit(&next).await?;
                let mut best = Vec::new();
                gpu.collect(&mut best).await?;
                assert_eq!(best.len(), 1, "{name}");
                gpu.submit(&Step { pos: 2, ..next }).await?;
                gpu.destroy();
                for what in ["lost", "lost", "no step is under way"] {
                    let error = gpu.collect(&mut best).await.unwrap_err().to_string();
                    assert!(error.contains(what), "{name}: {error}");
                }
                anyhow::Ok(())
            })
            .unwrap_or_else(|e| panic!("{name}: {e:#}"));
        }
    }
}

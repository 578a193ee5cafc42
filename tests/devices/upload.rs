//! Weights on their way to a device: pieces are what the whole is, and every way of uploading leaves the same words.

use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::{Fuse, fuse};
use isobit::internals::models::{self, Hyper, PlanOptions, Weights};
use isobit::internals::record::{Plan, WeightSource};
use std::path::Path;

fn embedded() -> Container {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf");
    Container::open(&file, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

/// Fused, so that some buffers are stacked.
fn plan(c: &Container, max_binding_words: usize) -> Plan {
    let h = Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"));
    let o = PlanOptions { n_ctx: 64, ubatch: 8, max_binding_words, ..PlanOptions::default() };
    let mut plan = models::build(c, &h, &o).unwrap_or_else(|e| panic!("{e:#}")).plan;
    fuse(&mut plan, Fuse::On, max_binding_words);
    plan
}

#[test]
fn the_pieces_of_a_buffer_are_the_whole_wherever_they_are_cut() {
    let c = embedded();
    for limit in [usize::MAX / 8, 64 << 10] {
        let plan = plan(&c, limit);
        let mut source = Weights::new(&c, |_| {});
        let (mut cut, mut buffers) = (0, 0);
        for b in plan.buffers.iter().filter(|b| b.role.is_loaded()) {
            let mut whole = vec![0; b.words];
            source.fill(b, &mut whole).unwrap_or_else(|e| panic!("{e:#}"));
            for most in [1, 5000, 100_000, usize::MAX] {
                let (mut first, pieces) = (0, source.pieces(b, most));
                cut += pieces.len() - 1;
                for n in pieces {
                    let mut piece = vec![0; n];
                    source.fill_piece(b, first, &mut piece).unwrap_or_else(|e| panic!("{e:#}"));
                    assert!(piece == whole[first..first + n], "{}, {n} words from {first}", b.name);
                    first += n;
                }
                assert_eq!(first, b.words, "{} in pieces of {most}", b.name);
            }
            buffers += 1;
        }
        assert!(cut > buffers, "{cut} cuts in {buffers} buffers");
    }
}

mod gpu {
    use super::*;
    use crate::common::gpus_with;
    use futures::executor::block_on;
    use isobit::internals::host::{GpuOptions, Upload};
    use isobit::internals::record::{BufDecl, Device, Recording, Role};

    const WAYS: [Upload; 3] = [Upload::Auto, Upload::Staged, Upload::InPlace];

    fn options(upload: Upload) -> GpuOptions {
        GpuOptions { upload, ..GpuOptions::default() }
    }

    /// Words that tell their place, in pieces of this length; from word `broken` on they cannot be read.
    struct Numbers {
        piece: usize,
        broken: usize,
    }

    impl WeightSource for Numbers {
        fn fill(&mut self, buffer: &BufDecl, _: &mut [u32]) -> anyhow::Result<()> {
            anyhow::bail!("{} is filled whole", buffer.name)
        }
        fn pieces(&self, buffer: &BufDecl, _: usize) -> Vec<usize> {
            (0..buffer.words).step_by(self.piece).map(|at| self.piece.min(buffer.words - at)).collect()
        }
        fn fill_piece(&mut self, buffer: &BufDecl, first: usize, out: &mut [u32]) -> anyhow::Result<()> {
            anyhow::ensure!(first < self.broken, "{} cannot be read", buffer.name);
            out.iter_mut().zip(first..).for_each(|(w, i)| *w = i as u32);
            Ok(())
        }
    }

    fn numbers(words: &[usize]) -> Plan {
        let role = |i| Role::Given(i);
        let buffers =
            words.iter().enumerate().map(|(i, &words)| BufDecl { name: format!("b{i}"), words, role: role(i) });
        Plan { buffers: buffers.collect(), recording: Recording::default(), max_tokens: 1, ..Plan::default() }
    }

    #[test]
    fn every_way_leaves_the_same_words_whatever_the_pieces() {
        // more than the staging buffers hold, pieces longer than one of them among it
        for (piece, words) in [(3_000_001, &[1, 12_000_000][..]), (70_001, &[300_000, 5, 70_001])] {
            for way in WAYS {
                for mut gpu in gpus_with(&options(way)) {
                    let name = gpu.info().name;
                    block_on(async {
                        gpu.load(numbers(words), &mut Numbers { piece, broken: usize::MAX }).await?;
                        for (id, &n) in words.iter().enumerate() {
                            let found = gpu.read(id).await?;
                            let wrong = found.iter().zip(0..).position(|(&w, i)| w != i);
                            assert_eq!((found.len(), wrong), (n, None), "{name}, {way:?}, buffer {id}");
                        }
                        anyhow::Ok(())
                    })
                    .unwrap_or_else(|e| panic!("{name}, {way:?}: {e:#}"));
                }
            }
        }
    }

    #[test]
    fn a_piece_that_cannot_be_read_leaves_no_plan_behind_and_another_loads() {
        for way in WAYS {
            for mut gpu in gpus_with(&options(way)) {
                let name = gpu.info().name;
                block_on(async {
                    let words = [100_000, 100_000];
                    let mut broken = Numbers { piece: 30_000, broken: 60_000 };
                    let error = gpu.load(numbers(&words), &mut broken).await.unwrap_err().to_string();
                    assert_eq!(error, "b0 cannot be read", "{name}, {way:?}");
                    assert!(gpu.read(0).await.unwrap_err().to_string().contains("no plan"), "{name}, {way:?}");
                    gpu.load(numbers(&words), &mut Numbers { piece: 30_000, broken: usize::MAX }).await?;
                    assert_eq!(gpu.read(1).await?[99_999], 99_999);
                    anyhow::Ok(())
                })
                .unwrap_or_else(|e| panic!("{name}, {way:?}: {e:#}"));
            }
        }
    }

    #[test]
    fn a_models_weights_are_those_of_the_file_in_every_way() {
        let c = embedded();
        let plan = plan(&c, 4 << 20);
        for way in WAYS {
            for mut gpu in gpus_with(&options(way)) {
                let name = gpu.info().name;
                let mut source = Weights::new(&c, |_| {});
                block_on(async {
                    gpu.load(plan.clone(), &mut Weights::new(&c, |_| {})).await?;
                    for (id, b) in plan.buffers.iter().enumerate().filter(|(_, b)| b.role.is_loaded()) {
                        let mut words = vec![0; b.words];
                        source.fill(b, &mut words)?;
                        assert!(gpu.read(id).await? == words, "{name}, {way:?}: {}", b.name);
                    }
                    anyhow::Ok(())
                })
                .unwrap_or_else(|e| panic!("{name}, {way:?}: {e:#}"));
            }
        }
    }
}

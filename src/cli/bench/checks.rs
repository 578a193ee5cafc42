//! Digests of a run: who made the first one of each task, and `--reference`.
//!
//! A row is compared with what another device made. One device's agreement with itself is no check, so of a digest whose
//! only maker is the row's own device nothing is said; that it disagrees with itself is.

use super::{Reference, Run, engine, positions};
use crate::bench::grid::Test;
use crate::bench::measure::Bench;
use crate::bench::schema::{Check, Config};
use crate::cli::common::{self, KernelArgs, note};
use crate::cli::interrupt;
use crate::engine::{About, Devices};
use crate::formats::Container;
use crate::generate::{Session, SessionOptions};
use crate::models::Hyper;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// A device, however it was named: an adapter by its index, the CPU by its level and threads, which its title has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Maker {
    title: String,
    adapter: Option<usize>,
}

impl Maker {
    pub(super) fn new(title: &str, about: Option<&About>) -> Maker {
        Maker { title: title.to_string(), adapter: about.map(|a| a.index) }
    }
}

/// What a digest is of: the model's name and size, what changes logits, and after how many tokens of the sequence of
/// tests (`None`: over the fixed sequence of digests). All tests walk the same ids, so only their end counts.
pub(super) fn task(c: &Container, config: &Config, test: Option<&Test>) -> String {
    let name = c.files[0].display();
    let Config { k, v, recent, activations, .. } = config;
    let end = test.map_or(0, Test::positions);
    format!("{name} {} {k} {v} {recent} {activations} {end}", c.total_bytes())
}

/// The first digest of each task, and who made it.
#[derive(Default)]
pub(super) struct Digests(HashMap<String, (String, Maker)>);

impl Digests {
    /// Compares a digest with the first of its task, which it becomes where there is none.
    pub(super) fn check(&mut self, task: String, digest: &str, by: &Maker) -> Check {
        let (first, maker) = self.0.entry(task).or_insert_with(|| (digest.to_string(), by.clone()));
        if first != digest {
            Check::Different(maker.title.clone())
        } else if maker == by {
            Check::None
        } else {
            Check::Same(maker.title.clone())
        }
    }
}

impl Run<'_> {
    /// Opens the reference once, so that a wrong name ends the run before anything is measured.
    pub(super) fn open_reference(
        spec: &str,
        kernels: &KernelArgs,
        places: &mut [super::Place],
    ) -> anyhow::Result<Reference> {
        let engine = engine(0, kernels)?;
        let opened = engine.devices().open(spec)?;
        let maker = Maker::new(&opened.name(), opened.adapter());
        drop(opened);
        if let Some(p) = places.iter_mut().find(|p| p.maker == maker) {
            let text = format!("--device {} is the reference itself: its rows are compared with nothing", p.spec);
            p.warnings.push(super::warn(text));
        }
        Ok(Reference { spec: spec.to_string(), engine, maker })
    }

    /// `--reference`: the digest of every configuration, and the logits at the end of every test, in one walk along the
    /// sequence of the tests, as far as that is bearable.
    pub(super) fn refer(&mut self, c: &Container, h: &Hyper, tests: &[Test]) -> anyhow::Result<()> {
        let Some(r) = &self.reference else { return Ok(()) };
        let mut ends: BTreeMap<usize, Vec<&Test>> = BTreeMap::new();
        tests.iter().for_each(|t| ends.entry(t.positions()).or_default().push(t));
        let limit = self.a.reference_limit as f64;
        for (config, k, v) in self.a.configs() {
            // configurations that differ in batches alone have the same tasks
            if self.digests.0.contains_key(&task(c, &config, None)) {
                continue;
            }
            let _status = common::Status::new(&format!("reference: {} ({}/{})", r.maker.title, config.k, config.v));
            let opened = r.engine.devices().open(&r.spec)?;
            let memory = Devices::share_of_memory(std::slice::from_ref(&opened));
            let plan = Run::plan(h, &config, (k, v), positions(tests));
            let mut device = opened.inner;
            pollster::block_on(async {
                let options = SessionOptions { plan, memory, fuse: r.engine.kernels.fuse };
                let session = Session::new(device.as_mut(), c, h, options, |_| {}).await?;
                let mut bench = Bench::new(session, h.vocab, plan.digits);
                let start = Instant::now();
                let digest = bench.digest().await?;
                self.digests.check(task(c, &config, None), &digest, &r.maker);
                // tokens of the digest are dearer: some come one at a time
                let (mut tokens, mut seconds) = (super::DIGEST_TOKENS.0 + super::DIGEST_TOKENS.1, start.elapsed());
                let (mut done, start) = (0, Instant::now());
                for (&end, list) in &ends {
                    let all =
                        start.elapsed().as_secs_f64() + (end - done) as f64 * seconds.as_secs_f64() / tokens as f64;
                    if all > limit {
                        let left: Vec<String> = ends.range(end..).flat_map(|(_, l)| l).map(|t| t.to_string()).collect();
                        note!(
                            "{} would take about {all:.0} s to {end} tokens ({}/{}); by the digest alone are checked: {}",
                            r.maker.title,
                            config.k,
                            config.v,
                            left.join(", ")
                        );
                        break;
                    }
                    let logits = bench.logits_after(end, config.batch, interrupt::stop()).await?;
                    self.digests.check(task(c, &config, Some(list[0])), &logits, &r.maker);
                    (done, tokens, seconds) = (end, end, start.elapsed());
                }
                anyhow::Ok(())
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_same_as_another_devices_and_never_as_ones_own() {
        let maker = |title: &str, adapter| Maker { title: title.into(), adapter };
        let (cpu, gpu, twin) = (maker("CPU", None), maker("card", Some(0)), maker("card", Some(1)));
        let mut d = Digests::default();
        let mut check = |task: &str, digest, by| d.check(task.to_string(), digest, by);
        assert_eq!(check("a", "1", &cpu), Check::None);
        assert_eq!(check("a", "1", &cpu), Check::None, "the device itself, again");
        assert_eq!(check("a", "1", &gpu), Check::Same("CPU".into()));
        assert_eq!(check("a", "2", &gpu), Check::Different("CPU".into()));
        assert_eq!(check("a", "2", &cpu), Check::Different("CPU".into()), "it disagrees with itself");
        assert_eq!(check("b", "2", &gpu), Check::None, "another task");
        assert_eq!(check("b", "2", &twin), Check::Same("card".into()), "two cards of one name are two devices");
    }
}

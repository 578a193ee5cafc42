//! `bench --ops`: each operation on each device, checked against the twin, then timed.

use super::{Run, engine};
use crate::bench::ops;
use crate::bench::schema::{self, Format};
use crate::cli::CheckFailed;
use crate::cli::common::{self, KernelArgs, note};
use crate::cli::interrupt::{self, Words};
use crate::cpu::Codebooks;
use crate::engine::Devices;
use crate::generate::{Session, SessionOptions};
use crate::models::Hyper;
use crate::record::Device;
use crate::stop::Interrupted;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

impl Run<'_> {
    /// `--ops`: each operation on each device, checked against the twin, then timed.
    pub(super) fn ops(&mut self, table: bool) -> anyhow::Result<ExitCode> {
        // rows are ended, whatever comes
        let held = interrupt::hold();
        // not locked between rows: what is said of an interruption goes there too
        let mut out = std::io::stdout();
        let format = self.a.format();
        let (emitted, foot) = (self.emitted.clone(), if format == Format::Json { "\n]\n" } else { "" });
        held.words(move || {
            let rows = emitted.load(Ordering::SeqCst);
            Words { out: foot.into(), err: format!("interrupted after {rows} rows") }
        });
        write!(out, "{}", if format == Format::Json { "[\n" } else { "" })?;
        let (mut rows, emitted) = (0, self.emitted.clone());
        let ended = self.each_op(table, &mut |columns| {
            let text = schema::record(format, "isobit_ops", rows == 0, &columns);
            rows += 1;
            common::above_bars(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()))?;
            emitted.store(rows, Ordering::SeqCst);
            Ok(())
        });
        if ended.as_ref().is_err_and(Interrupted::caused) {
            interrupt::seen();
        }
        write!(out, "{}", if format == Format::Json { "\n]\n" } else { "" })?;
        match ended {
            Err(e) if Interrupted::caused(&e) => {
                note!("interrupted after {rows} rows");
                interrupt::leave();
            }
            other => other?,
        }
        if self.wrong > 0 {
            anyhow::bail!(CheckFailed(format!(
                "{} operations gave words that are not the twin's; they were not timed",
                self.wrong
            )));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn each_op(
        &mut self,
        table: bool,
        put: &mut dyn FnMut(Vec<schema::Column>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let one = engine(1, &self.a.kernels)?;
        let mut twin = one.devices().open("cpu:scalar")?.inner;
        let mut devices = Vec::new();
        for p in &self.places {
            devices.push(p.engine.devices().open(&p.spec)?.inner);
        }
        if table {
            for op in crate::cases::ops() {
                self.pieces(ops::table(op), twin.as_mut(), &mut devices, put)?;
            }
            return Ok(());
        }
        let tokens = self.a.ops_tokens();
        let depth = self.a.n_depth.iter().flat_map(|n| n.0.clone()).max().unwrap_or(0);
        for source in self.a.sources() {
            let c = source.open()?;
            let h = Hyper::read(&c)?;
            for (mut config, k, v) in self.a.configs() {
                config.ubatch = tokens;
                // every device has kernels for these
                let kernels = KernelArgs { codebooks: Codebooks::Compact, ..self.a.kernels.clone() };
                let opened = engine(0, &kernels)?.devices().open("cpu")?;
                let memory = Devices::share_of_memory(std::slice::from_ref(&opened));
                let mut plan = Run::plan(&h, &config, (k, v), depth.max(tokens) + 1);
                // matrices are split as the tightest device needs
                for d in &devices {
                    plan.max_binding_words = plan.max_binding_words.min(d.info().max_binding_words);
                }
                let mut device = opened.inner;
                let pieces = pollster::block_on(async {
                    let options = SessionOptions { plan, memory, fuse: one.kernels.fuse };
                    let mut session = Session::new(device.as_mut(), &c, &h, options, |_| {}).await?;
                    ops::of_model(&mut session, h.vocab, plan.digits, depth).await
                })?;
                drop(device);
                self.pieces(pieces, twin.as_mut(), &mut devices, put)?;
            }
        }
        Ok(())
    }

    fn pieces(
        &mut self,
        list: Vec<ops::Piece>,
        twin: &mut dyn Device,
        devices: &mut [Box<dyn Device>],
        put: &mut dyn FnMut(Vec<schema::Column>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let n = list.len();
        for (i, piece) in list.into_iter().enumerate() {
            interrupt::stop().check()?;
            let _status = common::Status::new(&format!("{} of {n}: {}", i + 1, piece.case.name));
            let expected = pollster::block_on(ops::expected(twin, &piece))?;
            for (device, place) in devices.iter_mut().zip(&self.places) {
                let title = &place.facts.title;
                match pollster::block_on(ops::time(device.as_mut(), &piece, &expected))? {
                    Ok(timed) => {
                        let mut columns = ops::columns(title, &piece, &timed, place.facts.limits);
                        columns.extend(place.kernels.columns());
                        put(columns)?;
                    }
                    Err(words) => {
                        note!("error: {title}: {}: {words} words are not the twin's; not timed", piece.case.name);
                        self.wrong += 1;
                    }
                }
            }
        }
        Ok(())
    }
}

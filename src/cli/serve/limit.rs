//! How fast the device allows one text to grow: what a token's step reads and multiplies at least, over what plain reads and
//! int8 loops reach on it, as `isobit bench` has it.

use super::super::bench::level_of;
use super::super::common::note;
use super::super::interrupt;
use crate::bench::measure::{Cost, cost};
use crate::engine::{About, Devices, Engine, EngineOptions, Error, Model};
use crate::limits;
use crate::record::Step;
use crate::simd::Level;
use std::sync::{Mutex, PoisonError};

/// Bytes of free memory below which the CPU's speed of reading is not measured, which takes a quarter of it.
const ROOM: u64 = 4 << 30;

/// What is known of the engine that was started last.
struct Known {
    /// of a token's step
    cost: Cost,
    /// the adapter, unless it is the CPU
    adapter: Option<About>,
}

/// Engines as they are started, and how fast the last may be.
pub struct Limit {
    model: Model,
    options: EngineOptions,
    known: Mutex<Option<Known>>,
}

impl Limit {
    pub fn new(model: Model, options: EngineOptions) -> Limit {
        Limit { model, options, known: Mutex::default() }
    }

    /// Starts an engine.
    pub fn start(&self) -> Result<Engine, Error> {
        let EngineOptions { device, devices, session, queue } = self.options.clone();
        let (send, opened) = std::sync::mpsc::channel();
        let engine = Engine::start_on(&self.model, session, queue, move || {
            let device = Devices::new(devices).open(&device)?;
            // the receiver outlives the engine's start
            let _ = send.send(device.adapter().cloned());
            Ok(device)
        })?;
        let digits = session.activations.digits();
        let step = Step { n_tokens: 1, pos: 0, n_out: 1, ..Step::default() };
        // before anybody asks: a call lets texts wait and forgets the cache
        let cost = engine.call(move |s| cost(s.built(), digits, &step))?.wait()?;
        let adapter = opened.recv().ok().flatten();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(Known { cost, adapter });
        Ok(engine)
    }

    /// Tokens a second that the device allows at most, measured now, which takes a second and no tokens; `None`: unknown, as
    /// of several devices, or where there is no memory to measure with.
    pub fn measure(&self) -> Option<f64> {
        let (cost, adapter) = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let known = known.as_ref()?;
            (known.cost, known.adapter.clone())
        };
        let EngineOptions { device, devices, .. } = &self.options;
        if device.contains('+') {
            return None;
        }
        let (read, int8) = match adapter {
            Some(about) => {
                let measured = Devices::new(devices.clone()).adapter_limits(about.index);
                measured.inspect_err(|e| note!("{}: its limits could not be measured: {e}", about.name)).ok()?
            }
            None if limits::free_memory().is_some_and(|free| free < ROOM) => return None,
            None => {
                let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
                let threads = if devices.threads == 0 { cores } else { devices.threads };
                // the twins have no vector instructions: the portable level's rate is the nearest
                let level = if device.starts_with("cpu:") { level_of(device) } else { Some(Level::detect()) };
                let level = level.unwrap_or(Level::Portable);
                (limits::read_bandwidth(threads, interrupt::stop()).ok()?, limits::int8_rate(level, threads))
            }
        };
        let seconds = (cost.bytes as f64 / read).max(cost.ops as f64 / int8);
        Some(1.0 / seconds).filter(|rate| rate.is_finite())
    }
}

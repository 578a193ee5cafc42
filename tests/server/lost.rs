//! A device that is lost under load: requests hear of it, none hangs, and the server opens it once more.

use crate::{options, request, router, runtime, send};
use axum::http::StatusCode;
use futures::future::LocalBoxFuture;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::host::HostError;
use isobit::internals::record::{Best, BufId, Device as Runs, DeviceInfo, Plan, Stats, Step, WeightSource};
use isobit::internals::server::App;
use isobit::{Device, Engine, Error, Head, Model, Stop};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A device that takes so many steps and is lost then.
struct Losing<D> {
    inner: D,
    steps: usize,
    lose: fn(&mut D) -> anyhow::Result<()>,
}

impl<D: Runs> Losing<D> {
    fn step(&mut self) -> anyhow::Result<()> {
        match self.steps.checked_sub(1) {
            Some(left) => self.steps = left,
            None => (self.lose)(&mut self.inner)?,
        }
        Ok(())
    }
}

impl<D: Runs> Runs for Losing<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn set_stop(&mut self, stop: Stop) {
        self.inner.set_stop(stop);
    }

    fn stop(&self) -> Stop {
        self.inner.stop()
    }

    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.load(plan, weights)
    }

    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>> {
        Box::pin(async move {
            self.step()?;
            self.inner.run(step).await
        })
    }

    fn ahead(&self) -> usize {
        self.inner.ahead()
    }

    fn submit<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            self.step()?;
            self.inner.submit(step).await
        })
    }

    fn collect<'a>(&'a mut self, best: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.collect(best)
    }

    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.begin(step)
    }

    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        self.inner.run_one(command)
    }

    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        self.inner.read(buffer)
    }

    fn take_stats(&mut self) -> Stats {
        self.inner.take_stats()
    }

    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        self.inner.write(buffer, words)
    }
}

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// as it was asked for
    Whole,
    /// by a status, before anything was said
    Refused,
    /// by an event, after something was
    Event,
}

/// Asks many at once of a server whose first device, which `open` opens, is lost among them.
fn lose_under_load(open: fn() -> Device) {
    let (engine, options) = options("cpu", Head::Logits);
    let (model, starts) = (Model::embedded(), Arc::new(AtomicUsize::new(0)));
    let (of, count) = (model.clone(), starts.clone());
    let start = move || match count.fetch_add(1, Ordering::SeqCst) {
        0 => Engine::start_on(&of, engine.session, engine.queue, move || Ok::<_, Error>(open())),
        _ => Engine::start(&of, engine.clone()),
    };
    let app = App::new(model, options, Box::new(start));
    app.load().unwrap();
    let router = router(app.clone());
    let body = |i: usize| {
        json!({ "prompt": format!("Story {i}: once upon a time"), "max_tokens": 40, "temperature": 0, "ignore_eos": true,
            "stream": !i.is_multiple_of(3) })
    };
    let one = async |i: usize| {
        let (status, text) = send(&router, request("POST", "/v1/completions", body(i).to_string())).await;
        let whole = if !i.is_multiple_of(3) {
            text.trim_end().ends_with("data: [DONE]")
        } else {
            text.contains("\"finish_reason\"")
        };
        match status {
            StatusCode::OK if whole => End::Whole,
            StatusCode::OK => {
                let last = text.lines().filter_map(|l| l.strip_prefix("data: ")).next_back().unwrap_or_default();
                let last: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {text}"));
                assert_eq!(last["error"]["type"], "unavailable_error", "{text}");
                End::Event
            }
            status => {
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
                assert!(text.contains("unavailable_error"), "{text}");
                End::Refused
            }
        }
    };
    runtime().block_on(async {
        let all = futures::future::join_all((0..48).map(one));
        let ends = tokio::time::timeout(Duration::from_secs(60), all).await.expect("none hangs");
        let of = |end: End| ends.iter().filter(|e| **e == end).count();
        assert!(of(End::Event) > 0 && of(End::Refused) > 0, "{ends:?}");
        // the next to ask has it made again, and meanwhile is told to come again
        let begun = Instant::now();
        while send(&router, request("GET", "/health", "")).await.0 != StatusCode::OK {
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(starts.load(Ordering::SeqCst), 2, "opened once more");
        let again = futures::future::join_all((0..12).map(one)).await;
        assert!(again.iter().all(|e| *e == End::Whole), "{again:?}");
        crate::answers::idle(&app).await;
        assert_eq!(starts.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_device_lost_under_load_is_opened_once_more_and_every_request_hears_of_it() {
    lose_under_load(|| {
        let inner = CpuDevice::new(CpuOptions { threads: 1, ..CpuOptions::default() }).unwrap();
        let lose = |_: &mut CpuDevice| Err(HostError::Lost("unplugged".into()).into());
        Device::custom(Box::new(Losing { inner, steps: 30, lose }), true)
    });
}

mod gpu {
    use super::*;
    use isobit::internals::host::{GpuDevice, GpuOptions, connect, native_adapters};

    #[test]
    fn an_adapter_lost_under_load_is_replaced_and_every_request_hears_of_it() {
        lose_under_load(|| {
            let adapters = pollster::block_on(native_adapters());
            let adapter = adapters.first().expect("an adapter: this test needs one");
            let (inner, _) = pollster::block_on(connect(adapter, GpuOptions::default())).unwrap();
            let lose = |gpu: &mut GpuDevice| {
                gpu.destroy();
                Ok(())
            };
            Device::custom(Box::new(Losing { inner, steps: 30, lose }), true)
        });
    }
}

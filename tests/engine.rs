//! The front door: what a library user meets. One text however it is asked for, cancelled jobs, full queues, engines that
//! end, and the promise that a request sent again goes on.

#[path = "common/absent.rs"]
#[allow(dead_code, reason = "what these tests do without a GPU they do on the CPU")]
mod absent;
#[path = "common/golden.rs"]
#[allow(dead_code, reason = "other tests look digests up, here they are one whole")]
mod golden;
#[path = "engine/recurrent.rs"]
mod recurrent;
#[path = "engine/saved.rs"]
mod saved;
#[path = "engine/scored.rs"]
mod scored;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::record::{Best, BufId, Device as Runs, DeviceInfo, Plan, Stats, Step, WeightSource};
use isobit::{
    ARITHMETIC, Activations, CacheType, Device, DeviceOptions, Devices, Ended, Engine, EngineOptions, Error, Guess,
    LoadMode, Model, Output, Piece, Prompt, Request, SamplerOptions, Session, SessionOptions, Stop,
};
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A session of two threads.
fn session(options: SessionOptions) -> Session {
    let devices = Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() });
    Model::embedded().session(devices.open("cpu").expect("there is a CPU"), options).expect("loads")
}

fn engine() -> Engine {
    let devices = DeviceOptions { threads: 1, ..DeviceOptions::default() };
    let options = EngineOptions { device: "cpu".into(), devices, ..EngineOptions::default() };
    Engine::start(&Model::embedded(), options).expect("starts")
}

fn request(prompt: impl Into<Prompt>, max_tokens: usize, seed: u64) -> Request {
    let sampling = SamplerOptions { seed, ..SamplerOptions::default() };
    Request { max_tokens, sampling, ignore_end: true, ..Request::new(prompt) }
}

fn whole(s: &mut Session, r: &Request) -> Output {
    s.generate(r.clone(), |_| ControlFlow::Continue(())).expect("generates")
}

/// Adapters there are.
fn adapters() -> usize {
    let n = Devices::default().adapters();
    absent::found_or_cpu_only(n);
    n
}

fn joined(pieces: &[Piece]) -> (String, Vec<u32>) {
    (pieces.iter().map(|p| p.text.as_str()).collect(), pieces.iter().map(|p| p.id).collect())
}

// One text, however it is asked for.

#[test]
fn a_stream_gives_what_blocking_gives_on_a_session_and_on_an_engine() {
    let (mut s, engine) = (session(SessionOptions::default()), engine());
    for (text, n, seed) in [("Once upon a time", 24, 0), ("The Grüße of 日本", 12, 7), ("hi", 1, 3)] {
        let r = request(text, n, seed);
        let want = whole(&mut s, &r);
        assert_eq!((want.ids.len(), want.ended), (n, Ended::Length), "{want:?}");
        let mut called = Vec::new();
        s.generate(r.clone(), |p| {
            called.push(p.clone());
            ControlFlow::Continue(())
        })
        .expect("generates");
        let iterated: Vec<Piece> = s.stream(r.clone()).expect("begins").collect::<Result<_, _>>().expect("generates");
        let stream = s.stream(r.clone()).expect("begins").into_stream();
        let streamed: Vec<Piece> =
            pollster::block_on(stream.collect::<Vec<_>>()).into_iter().collect::<Result<_, _>>().expect("generates");
        let replied: Vec<Piece> =
            engine.generate(r.clone()).expect("room").into_iter().collect::<Result<_, _>>().expect("generates");
        let reply = engine.generate(r.clone()).expect("room");
        let polled: Vec<Piece> =
            pollster::block_on(reply.collect::<Vec<_>>()).into_iter().collect::<Result<_, _>>().expect("generates");
        for pieces in [&called, &iterated, &streamed, &replied, &polled] {
            assert_eq!(joined(pieces), (want.text.clone(), want.ids.clone()));
            let positions: Vec<usize> = pieces.iter().map(|p| p.position).collect();
            assert_eq!(positions, (want.prompt.len()..want.prompt.len() + n).collect::<Vec<_>>());
            let last = pieces.iter().position(|p| p.ended.is_some());
            assert_eq!(last, Some(n - 1), "the last piece, and no other, says that it is");
        }
        assert_eq!(engine.generate(r).expect("room").wait().expect("generates"), want);
    }
}

#[test]
fn two_engines_used_from_several_threads_give_the_text_of_a_session() {
    fn anywhere<T: Send + Sync + Clone + 'static>(_: &T) {}
    let engines = [engine(), engine()];
    anywhere(&engines[0]);
    let prompts = ["Once upon a time", "The king said", "hi"];
    let mut s = session(SessionOptions::default());
    let want: Vec<Output> = (0..6).map(|i| whole(&mut s, &request(prompts[i % 3], 12, i as u64))).collect();
    assert!(want.iter().enumerate().all(|(i, a)| want[..i].iter().all(|b| a.ids != b.ids)), "six texts");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, want) = (engines[thread % 2].clone(), &want);
            scope.spawn(move || {
                for turn in 0..3 {
                    let i = (thread + 2 * turn) % 6;
                    let reply = engine.generate(request(prompts[i % 3], 12, i as u64)).expect("room");
                    assert_eq!(reply.wait().expect("generates"), want[i]);
                }
            });
        }
    });
}

#[test]
fn a_text_ends_at_its_length_at_the_end_of_the_context_or_where_nobody_wants_more() {
    let mut s = session(SessionOptions { context: 20, ..SessionOptions::default() });
    assert_eq!(s.context(), 20);
    let out = whole(&mut s, &request("Once upon a time", 100, 1));
    assert_eq!(out.ended, Ended::Context);
    // the last token is one more than the cache holds
    assert_eq!((out.prompt.len() + out.ids.len(), s.position()), (21, 20));
    let full: Vec<u32> = out.prompt.iter().chain(&out.ids).copied().take(20).collect();
    let one = whole(&mut s, &request(full, 100, 1));
    assert_eq!((one.ids, one.ended), (out.ids[20 - out.prompt.len()..].to_vec(), Ended::Context));
    let none = whole(&mut s, &request("hi", 0, 1));
    assert_eq!((none.text.as_str(), none.ended), ("", Ended::Length));
    let broken = s.generate(request("hi", 9, 1), |p| match p.position {
        5 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let broken = broken.expect("generates");
    assert_eq!((broken.prompt.len() + broken.ids.len(), broken.ended), (6, Ended::BrokenOff));
    // and at the model's own end, which is no text
    let mut s = session(SessionOptions::default());
    let tokenizer = Model::embedded().tokenizer().expect("it has one").eos().to_vec();
    let ends = (0..200).find_map(|seed| {
        let r = Request { ignore_end: false, ..request("The end.", 64, seed) };
        let out = whole(&mut s, &r);
        (out.ended == Ended::EndOfText).then_some(out)
    });
    let out = ends.expect("one of 200 texts ends");
    assert!(tokenizer.contains(out.ids.last().expect("the end")) && !out.text.contains("<|"), "{out:?}");
}

// Draws by position, and what the cache still holds.

#[test]
fn a_request_sent_again_with_its_tokens_goes_on_as_if_nothing_had_happened() {
    let penalty = SamplerOptions { repeat_penalty: 1.3, seed: 1, ..SamplerOptions::default() };
    let wide = SamplerOptions { temperature: 2.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerOptions::default() };
    // the end of a chunk of 64 lies in the text
    let prompt: Vec<u32> = (0..40).map(|i| (i * i * 7 + 3 * i) % 2000).collect();
    let (mut same, mut fresh) = (session(SessionOptions::default()), session(SessionOptions::default()));
    for sampling in [SamplerOptions::default(), penalty, wide] {
        let ask = |ids: Vec<u32>, n| Request { sampling: sampling.clone(), ..request(ids, n, 0) };
        let want = whole(&mut same, &ask(prompt.clone(), 40));
        assert_eq!((&want.prompt, want.ids.len()), (&prompt, 40));
        for k in [0, 1, 17, 30, 39] {
            let sent: Vec<u32> = prompt.iter().chain(&want.ids[..k]).copied().collect();
            // by the session that has the tokens in its cache, and by one that has seen others
            let rest = whole(&mut same, &ask(sent.clone(), 40 - k));
            assert_eq!(rest.ids, want.ids[k..], "{k} tokens sent again, {sampling:?}");
            if k == 17 {
                fresh.logits("Another text").expect("feeds");
                assert_eq!(whole(&mut fresh, &ask(sent, 40 - k)).ids, want.ids[k..], "{k} tokens, another session");
            }
        }
    }
}

#[test]
fn a_prompt_that_begins_like_the_last_sequence_gives_the_bits_of_a_fresh_session() {
    for (k_type, v_type) in [(CacheType::F16, CacheType::F16), (CacheType::TQ3_1, CacheType::TQ3_1)] {
        let options = SessionOptions { k_type, v_type, ubatch: 24, ..SessionOptions::default() };
        let id = |i: u32| (i * i * 7 + 3 * i) % 2000;
        let base: Vec<u32> = (0..200).map(id).collect();
        let mut kept = session(options);
        kept.logits(base.clone()).expect("feeds");
        // as long, shorter, and leaving the old way before, at, and after the ends of chunks
        for (same, len) in [(200, 200), (130, 130), (63, 150), (64, 150), (65, 66), (128, 129), (1, 70), (0, 5)] {
            let prompt: Vec<u32> = (0..len).map(|i| if i < same { id(i) } else { id(i) + 1 }).collect();
            let got = kept.logits(prompt.clone()).expect("feeds");
            let want = session(options).logits(prompt.clone()).expect("feeds");
            assert!(got.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()), "{same} of {len}, {k_type:?}");
            let mut rows = Vec::new();
            kept.each_logits(prompt, len as usize - 1, |i, row| rows.push((i, row.to_vec()))).expect("feeds");
            assert_eq!(rows, [(len as usize - 1, want)]);
        }
    }
}

// Engines that are asked for too much, or end.

/// Lets so many steps of a device pass, and knows how many have begun.
#[derive(Default)]
struct Gate {
    /// begun, allowed
    steps: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn allow(&self, steps: usize) {
        self.steps.lock().unwrap().1 = steps;
        self.changed.notify_all();
    }

    /// Waits until so many steps have begun.
    fn begun(&self, steps: usize) {
        drop(self.changed.wait_while(self.steps.lock().unwrap(), |s| s.0 < steps).unwrap());
    }

    fn step(&self) {
        let mut steps = self.steps.lock().unwrap();
        steps.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(steps, |s| s.0 > s.1).unwrap());
    }
}

/// What a device does when its gate closes for the last time.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Wait,
    Panic,
    #[cfg(feature = "gpu")]
    Lose,
}

/// A CPU behind a gate.
struct Gated {
    inner: CpuDevice,
    gate: Arc<Gate>,
    then: Then,
}

impl Gated {
    fn step(&mut self) -> anyhow::Result<()> {
        let (begun, allowed) = *self.gate.steps.lock().unwrap();
        match self.then {
            Then::Panic if begun == allowed => panic!("planted in step {begun}"),
            #[cfg(feature = "gpu")]
            Then::Lose if begun == allowed => Err(isobit::internals::host::HostError::Lost("unplugged".into()).into()),
            _ => {
                self.gate.step();
                Ok(())
            }
        }
    }
}

impl Runs for Gated {
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

// Guesses.

#[test]
fn guessed_tokens_change_no_text_sampled_or_greedy() {
    let words = ["the dog", "Once upon a time", "Lily", " and then", ", he said", "a red ball", ". They were happy"];
    let rows = SessionOptions { context: 200, rows: Guess::ROWS, ..SessionOptions::default() };
    let (mut plain, mut guessing) = (session(rows), session(rows));
    let mut steps = [0; 2];
    for i in 0..200 {
        let text: String = (0..2 + i % 5).map(|n| words[(i * (n + 3) + n * n) % words.len()]).collect();
        let text = if i % 3 == 0 { text.repeat(4) } else { text };
        let mut r = request(text, if i % 20 == 0 { usize::MAX } else { 24 }, i as u64);
        r.sampling.temperature = [0.0, 0.8, 1.5][i % 3];
        r.ignore_end = i % 7 != 0;
        let mut outputs = Vec::new();
        for (s, (guess, steps)) in
            [&mut plain, &mut guessing].into_iter().zip([Guess::Off, Guess::Ngram].into_iter().zip(&mut steps))
        {
            let mut generating = s.stream(Request { guess, ..r.clone() }).expect("begins");
            let pieces: Vec<Piece> = generating.by_ref().map(|p| p.expect("generates")).collect();
            *steps += generating.take_stats().steps;
            outputs.push(pieces);
        }
        assert_eq!(outputs[0], outputs[1], "prompt {i}");
        // what is kept of a sequence with guesses is what the other has
        assert_eq!(plain.position(), guessing.position(), "prompt {i}");
    }
    // stories repeat little
    assert!(steps[1] * 20 < steps[0] * 19, "{steps:?}: guesses saved nothing");
}

// Many texts at once.

/// An engine of many texts on a device, with a cache of so many positions for all of them.
fn engine_of(device: &str, sequences: usize, pool: usize) -> Engine {
    let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
    let session = SessionOptions { context: 256, ubatch: 96, sequences, pool, ..SessionOptions::default() };
    Engine::start(&Model::embedded(), EngineOptions { device: device.into(), devices, session, queue: 64 })
        .expect("starts")
}

/// Requests of several lengths and seeds, greedy ones too, some of which begin alike.
fn requests() -> Vec<Request> {
    let beginnings =
        ["Once upon a time there was a little cat", "The", "Lily and Ben went to the park. They saw a big dog"];
    let one = |i: usize| {
        let long: String = [" and then"; 40].concat();
        let text = format!("{}{}", beginnings[i % 3], if i.is_multiple_of(4) { &long } else { "" });
        let mut r = request(text, 5 + i * 7 % 60, i as u64);
        r.sampling.temperature = if i.is_multiple_of(5) { 0.0 } else { 0.8 };
        r
    };
    (0..18).map(one).collect()
}

#[test]
fn an_engine_of_many_texts_gives_each_as_a_session_gives_it_alone() {
    let mut alone = session(SessionOptions { context: 256, ..SessionOptions::default() });
    let want: Vec<Output> = requests().iter().map(|r| whole(&mut alone, r)).collect();
    // a pool in which all fit, one in which few do, and one for a single text
    for (sequences, pool) in [(8, 0), (6, 512), (3, 256)] {
        let engine = engine_of("cpu", sequences, pool);
        let replies: Vec<_> = requests().into_iter().map(|r| engine.generate(r).expect("queued")).collect();
        for (i, (reply, want)) in replies.into_iter().zip(&want).enumerate() {
            let found = reply.wait().unwrap_or_else(|e| panic!("{i}: {e}"));
            assert_eq!(&found, want, "text {i} of {sequences} at once in {pool} positions");
        }
        // a session that is lent in between has it for itself
        let asked = engine.generate(requests().remove(4)).expect("queued");
        let called = engine.call(|s| s.logits("Once").expect("logits")).expect("queued").wait().expect("called");
        assert_eq!(called, alone.logits("Once").expect("logits"));
        assert_eq!(asked.wait().expect("goes on"), want[4]);
        assert!(engine.ended().is_none());
    }
}

#[test]
fn texts_longer_than_a_step_s_copy_of_recent_positions_end_and_are_those_of_a_session() {
    let (k_type, v_type) = (CacheType::TQ3_1, CacheType::TQ3_1);
    let options = SessionOptions { context: 256, ubatch: 16, k_type, v_type, ..SessionOptions::default() };
    let mut alone = session(options);
    // where there are too few one loses all it has, and begins again
    for pool in [0, 256, 320] {
        let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
        let session = SessionOptions { sequences: 2, pool, ..options };
        let engine =
            Engine::start(&Model::embedded(), EngineOptions { device: "cpu".into(), devices, session, queue: 64 });
        let engine = engine.expect("starts");
        let long = |i: usize| request([["The cat ", "A dog "][i % 2], &" and then".repeat(100)].concat(), 30, i as u64);
        let replies: Vec<_> = (0..4).map(|i| engine.generate(long(i)).expect("queued")).collect();
        let called = engine.call(|s| s.logits("Once").expect("logits")).expect("queued").wait().expect("called");
        assert_eq!(called, alone.logits("Once").expect("logits"));
        for (i, reply) in replies.into_iter().enumerate() {
            assert_eq!(reply.wait().expect("ends"), whole(&mut alone, &long(i)), "text {i} in {pool} positions");
        }
    }
}

#[test]
fn of_many_texts_some_are_dropped_and_some_are_wrong_and_the_others_do_not_notice() {
    let mut alone = session(SessionOptions { context: 256, ..SessionOptions::default() });
    let engine = engine_of("cpu", 6, 512);
    let mut replies = Vec::new();
    for (i, mut r) in requests().into_iter().enumerate() {
        let want = whole(&mut alone, &r);
        match i % 6 {
            // nobody waits for it, from the beginning or after some tokens
            1 => drop(engine.generate(r).expect("queued")),
            2 => drop(engine.generate(r).expect("queued").into_iter().take(2).count()),
            3 => {
                r.sampling.top_p = 7.0;
                let e = engine.generate(r).expect("queued").wait().unwrap_err().to_string();
                assert!(e.contains("top-p is 7"), "{e}");
            }
            _ => replies.push((engine.generate(r).expect("queued"), want)),
        }
    }
    // longer than the context, and one that is only to be read
    let e = engine.generate(vec![1; 300]).expect("queued").wait().unwrap_err().to_string();
    assert!(e.contains("300 tokens"), "{e}");
    let read = engine.generate(request("Once upon", 0, 0)).expect("queued").wait().expect("is read");
    assert_eq!((read.ended, read.ids.len()), (Ended::Length, 0));
    for (reply, want) in replies {
        assert_eq!(reply.wait().expect("ends"), want);
    }
    engine.close();
    assert!(engine.generate("more").is_err());
}

/// An engine whose device stands still after `steps` steps, or ends.
fn gated(queue: usize, steps: usize, then: Then) -> (Engine, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    gate.allow(steps);
    let of_device = gate.clone();
    let engine = Engine::start_on(&Model::embedded(), SessionOptions::default(), queue, move || {
        let inner = CpuDevice::new(CpuOptions { threads: 1, ..CpuOptions::default() }).expect("a thread");
        Ok(Device::custom(Box::new(Gated { inner, gate: of_device, then }), true))
    });
    (engine.expect("starts"), gate)
}

#[test]
fn dropping_a_reply_cancels_its_job_after_the_step_in_hand() {
    let (engine, gate) = gated(4, 4, Then::Wait);
    let mut pieces = engine.generate(request("hi", 300, 0)).expect("room").into_iter();
    assert!(pieces.next().expect("a piece").is_ok());
    let never = engine.generate(request("The king", 300, 0)).expect("room");
    let next = engine.generate(request("Once", 3, 0)).expect("room");
    // the fifth step has begun and waits
    gate.begun(5);
    drop(pieces);
    drop(never);
    gate.allow(usize::MAX);
    let out = next.wait().expect("generates");
    assert_eq!(out.ids.len(), 3);
    assert_eq!(out, whole(&mut session(SessionOptions::default()), &request("Once", 3, 0)));
    let steps = gate.steps.lock().unwrap().0;
    assert!(steps <= 5 + 3, "one step of the first job, none of the second, and at most three of the third: {steps}");
}

#[test]
fn a_full_queue_is_an_error_at_once_and_room_comes_back() {
    let (engine, gate) = gated(2, 0, Then::Wait);
    let first = engine.generate(request("hi", 2, 0)).expect("room");
    gate.begun(1);
    let waiting: Vec<_> = (0..2).map(|i| engine.generate(request("hi", 2, i)).expect("room")).collect();
    let full = engine.generate("hi").err().expect("the queue holds two");
    assert!(matches!(full, Error::Busy { waiting: 2 }), "{full}");
    assert!(engine.call(|_| ()).is_err());
    gate.allow(usize::MAX);
    first.wait().expect("generates");
    for reply in waiting {
        reply.wait().expect("generates");
    }
    engine.generate(request("hi", 1, 0)).expect("room again").wait().expect("generates");
}

/// The engine has ended: every job and every handle says why.
fn assert_ended(engine: &Engine, why: &str) {
    for error in [engine.generate("hi").err(), engine.clone().call(|_| ()).err()] {
        let error = error.expect("no more jobs");
        assert!(matches!(&error, Error::Closed(said) if said.contains(why)), "{error:?}");
    }
    assert!(engine.ended().is_some_and(|said| said.contains(why)), "{engine:?}");
}

#[test]
fn a_panic_in_a_call_is_an_error_for_it_and_for_all_later_jobs() {
    let (engine, gate) = gated(4, 0, Then::Wait);
    let first = engine.generate(request("hi", 2, 0)).expect("room");
    gate.begun(1);
    let broken = engine.call(|_| -> usize { panic!("planted\nin two lines") }).expect("room");
    let behind = engine.generate("hi").expect("room");
    gate.allow(usize::MAX);
    first.wait().expect("it came before");
    for error in [broken.wait().err(), behind.wait().err()] {
        let error = error.expect("it panicked").to_string();
        assert_eq!(error, "the engine has ended: its thread panicked: planted in two lines");
    }
    engine.close();
    assert_ended(&engine, "planted in two lines");
}

#[test]
fn a_panic_in_a_device_is_an_error_for_the_job_in_hand_and_for_those_behind_it() {
    let (engine, gate) = gated(4, 0, Then::Panic);
    // the first step panics: the jobs are queued before it may
    let replies: Vec<_> = (0..2).filter_map(|_| engine.generate("hi").ok()).collect();
    assert!(!replies.is_empty());
    for reply in replies {
        let error = reply.wait().expect_err("it panicked");
        assert!(matches!(&error, Error::Closed(why) if why.contains("planted in step 0")), "{error}");
    }
    engine.close();
    assert_ended(&engine, "planted in step 0");
    assert_eq!(gate.steps.lock().unwrap().0, 0);
}

#[cfg(feature = "gpu")]
#[test]
fn a_lost_device_ends_the_engine_with_the_devices_error() {
    let (engine, _) = gated(4, 2, Then::Lose);
    let error = engine.generate(request("hi", 9, 0)).expect("room").wait().expect_err("it is lost");
    assert!(matches!(error, Error::Lost(_)) && error.to_string().contains("unplugged"), "{error}");
    engine.close();
    assert_ended(&engine, "unplugged");
}

#[test]
fn closing_ends_an_engine_for_all_handles_and_the_last_handle_lets_the_queue_finish() {
    let (engine, gate) = gated(4, 1, Then::Wait);
    let jobs = [engine.generate(request("hi", 9, 0)), engine.generate("hi")].map(|r| r.expect("room"));
    gate.begun(2);
    let other = engine.clone();
    let closing = std::thread::spawn(move || other.close());
    // the flag is up before the step in hand ends
    std::thread::sleep(std::time::Duration::from_millis(200));
    gate.allow(usize::MAX);
    closing.join().expect("closes");
    for job in jobs {
        assert!(matches!(job.wait(), Err(Error::Closed(_))));
    }
    assert_ended(&engine, "it was closed");
    let (engine, gate) = gated(4, 0, Then::Wait);
    let jobs = [engine.generate(request("hi", 3, 0)), engine.generate(request("hi", 3, 0))].map(|r| r.expect("room"));
    drop(engine);
    gate.allow(usize::MAX);
    let [a, b] = jobs.map(|job| job.wait().expect("it is done all the same"));
    assert_eq!(a, b);
}

#[test]
fn a_model_that_cannot_be_loaded_is_the_error_of_starting() {
    let start = |options: EngineOptions| Engine::start(&Model::embedded(), options).expect_err("refused");
    let toaster = start(EngineOptions { device: "toaster".into(), ..EngineOptions::default() });
    assert!(matches!(toaster, Error::Device(_)) && toaster.to_string().starts_with("toaster: "), "{toaster}");
    let session = SessionOptions { memory: Some(1 << 20), ..SessionOptions::default() };
    let memory = start(EngineOptions { device: "cpu".into(), session, ..EngineOptions::default() });
    assert!(matches!(memory, Error::Options(_)) && memory.to_string().contains("GiB of memory"), "{memory}");
    let panicked =
        Engine::start_on(&Model::embedded(), SessionOptions::default(), 1, || panic!("planted")).expect_err("panics");
    assert!(matches!(&panicked, Error::Closed(why) if why.contains("planted")), "{panicked}");
}

// Errors.

#[test]
fn what_cannot_be_done_is_of_a_kind_and_one_line_without_flags() {
    let mut s = session(SessionOptions { context: 16, ..SessionOptions::default() });
    let long = "three sons ".repeat(40);
    let hot = SamplerOptions { temperature: -1.0, ..SamplerOptions::default() };
    let mut refused = |r: Request| s.generate(r, |_| ControlFlow::Continue(())).expect_err("refused");
    let options = [
        refused(Request::new(long)),
        refused(Request::new(vec![])),
        refused(Request::new(vec![1, 1 << 20])),
        refused(Request { sampling: hot, ..Request::new("hi") }),
        refused(Request { bos: false, ..Request::new("") }),
    ];
    let words = ["context holds 16", "0 tokens", "1048576", "temperature", "0 tokens"];
    let mut all: Vec<Error> = Vec::new();
    for (e, word) in options.into_iter().zip(words) {
        assert!(matches!(e, Error::Options(_)) && e.to_string().contains(word), "{word}: {e:?}");
        all.push(e);
    }
    // and the session goes on
    whole(&mut s, &request("hi", 2, 0));
    let devices = Devices::default();
    for word in ["cpu:abacus", "toaster", "99"] {
        let e = devices.open(word).expect_err("no such device");
        assert!(matches!(e, Error::Device(_)) && e.to_string().starts_with(word), "{e:?}");
        all.push(e);
    }
    for path in ["no/such.gguf", "Cargo.toml"] {
        let e = Model::open(Path::new(ROOT).join(path)).expect_err("no model");
        assert!(matches!(e, Error::Model(_)) && e.to_string().contains(path), "{e:?}");
        all.push(e);
    }
    let small = SessionOptions { memory: Some(100), ..SessionOptions::default() };
    all.push(Model::embedded().session(devices.open("cpu").expect("a CPU"), small).map(|_| ()).expect_err("refused"));
    let one = Model::embedded().verify(vec![devices.open("cpu").expect("a CPU")], SessionOptions::default(), 9, 1);
    all.push(one.map(|_| ()).expect_err("refused"));
    for e in &all {
        let line = e.to_string();
        assert!(!line.contains('\n') && !line.contains("--") && !line.contains("(-"), "{line}");
    }
}

#[test]
fn a_stop_flag_interrupts_and_a_session_that_was_interrupted_says_so() {
    let stop = Stop::new();
    let devices = Devices::new(DeviceOptions { stop: stop.clone(), threads: 2, ..DeviceOptions::default() });
    let mut s =
        Model::embedded().session(devices.open("cpu").expect("a CPU"), SessionOptions::default()).expect("loads");
    let mut ask = || {
        s.generate("hi", |_| {
            stop.ask();
            ControlFlow::Continue(())
        })
    };
    assert!(matches!(ask(), Err(Error::Interrupted(_))));
    assert!(matches!(ask(), Err(Error::Closed(why)) if why == "interrupted"));
}

/// Text between quotes on lines that are no comments.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().take_while(|l| *l != "#[cfg(test)]").filter(|l| !l.trim_start().starts_with("//"));
    code.flat_map(|l| l.split('"').skip(1).step_by(2))
}

#[test]
fn no_message_below_the_command_line_names_a_flag() {
    let flag = |s: &str| {
        let after = |mark: &'static str| s.match_indices(mark).map(move |(i, _)| &s[i + mark.len()..]);
        let letter = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase());
        after("--").any(letter) || after("(-").any(|r| letter(r) && r[1..].starts_with([')', ',']))
    };
    assert!(flag("use fewer (-t)") && flag("a smaller --ubatch") && !flag("a - b (-1) --- x"));
    let mut files: Vec<_> = vec![Path::new(ROOT).join("src/cpu.rs")];
    for dir in ["src/models", "src/generate", "src/engine", "src/quantize", "src/formats", "src/study", "host"] {
        let list = std::fs::read_dir(Path::new(ROOT).join(dir)).expect("a folder");
        files.extend(list.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == "rs")));
    }
    assert!(files.len() > 30, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        // a style sheet's variables look like flags
        let found: Vec<&str> = literals(&text).filter(|s| flag(s) && !s.starts_with(":root")).collect();
        assert!(found.is_empty(), "{}: {found:?}", file.display());
    }
}

// What decides a result.

/// Versions of the arithmetic, and the hash over all golden digests under each. When digests change on purpose, add a row
/// with the next number, and raise [`ARITHMETIC`] to it.
const VERSIONS: [(u32, &str); 1] = [(1, "b50f8ca1e81123feff651748262658326fc513a23ba78c36503b3aab02e42f07")];

#[test]
fn golden_digests_change_only_with_the_version_of_the_arithmetic() {
    let mut hash = Sha256::new();
    golden::GOLDEN.iter().for_each(|(_, _, _, digest)| hash.update(format!("{digest}\n")));
    let draws = Path::new(ROOT).join("tests/data/tokenizer/sampling_golden.json");
    hash.update(std::fs::read(draws).expect("the golden draws"));
    let found: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    let (version, expected) = VERSIONS[VERSIONS.len() - 1];
    assert_eq!(
        found, expected,
        "golden digests have changed: if that is meant, results have, so add a row to VERSIONS and raise ARITHMETIC"
    );
    assert_eq!(ARITHMETIC, version, "the version of the arithmetic is that of the last row");
    let grows = VERSIONS.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 != w[1].1);
    assert!(grows, "each version is greater than the one before it, and of other digests");
}

#[test]
fn a_fingerprint_is_the_same_on_every_device_and_another_for_other_weights_or_options() {
    let model = Model::embedded();
    let file = Path::new(ROOT).join("assets/tiny-stories-Q4_K_M.gguf");
    let devices = Devices::default();
    let on = |word: &str, options: SessionOptions| {
        let s = model.session(devices.open(word).expect("a CPU"), options).expect("loads");
        s.fingerprint().expect("reads")
    };
    let plain = on("cpu", SessionOptions::default());
    assert!(plain.starts_with(&format!("isobit-{ARITHMETIC}:")) && plain.ends_with(":a8:f16/f16"), "{plain}");
    // nothing that changes no bit changes the line
    let cut = SessionOptions { context: 64, ubatch: 3, rows: 2, ..SessionOptions::default() };
    assert_eq!(on("cpu:scalar", cut), plain);
    let mapped = Model::open_with(&file, LoadMode::Mmap).expect("opens");
    assert_eq!(mapped.digest().expect("reads"), model.digest().expect("reads"));
    for other in [
        SessionOptions { activations: Activations::Bits16, ..SessionOptions::default() },
        SessionOptions { k_type: CacheType::Q8_0, ..SessionOptions::default() },
        SessionOptions { v_type: CacheType::TQ3_1, ..SessionOptions::default() },
    ] {
        assert_ne!(on("cpu", other), plain);
    }
    // one bit of a weight, one of a name
    let bytes = std::fs::read(&file).expect("a file");
    let of = |bytes: Vec<u8>| Model::from_bytes("changed", bytes).expect("opens").digest().expect("reads").to_string();
    assert_eq!(of(bytes.clone()), model.digest().expect("reads"));
    let mut weight = bytes.clone();
    *weight.last_mut().expect("bytes") ^= 1;
    assert_ne!(of(weight), of(bytes.clone()));
    let other = Model::open(Path::new(ROOT).join("tests/data/tiny/hf")).expect("opens");
    assert_ne!(other.digest().expect("reads"), model.digest().expect("reads"));
}

#[test]
fn logits_have_the_same_bits_on_every_level_and_devices_verify_each_other() {
    let devices = Devices::default();
    let model = Model::embedded();
    let on = |word: &str| {
        let mut s = model.session(devices.open(word).expect("a CPU"), SessionOptions::default()).expect("loads");
        s.logits("The king had three").expect("feeds").into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let want = on("cpu:scalar");
    assert_eq!(want.len(), model.vocabulary());
    assert_eq!((on("cpu"), on("CPU:Portable")), (want.clone(), want));
    let two = vec![devices.open("cpu:portable").expect("a CPU"), devices.open("cpu").expect("a CPU")];
    let report = model.verify(two, SessionOptions::default(), 70, 3).expect("verifies");
    assert!(report.ok() && report.words > 1_000_000 && report.covered.positions == 73, "{report:?}");
}

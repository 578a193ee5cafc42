//! The chain over logits: one for a text, however it is made.

use isobit::{
    Chain, DeviceOptions, Devices, Engine, EngineOptions, Guess, Model, Output, Reads, Request, SamplerOptions,
    Session, SessionOptions,
};
use std::ops::ControlFlow;

fn session(device: &str, options: SessionOptions) -> Session {
    let devices = Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() });
    Model::embedded().session(devices.open(device).expect("a device"), options).expect("loads")
}

fn requests() -> Vec<Request> {
    let prompts = ["Once upon a time", "The king had three sons, and", "Lily ran. Lily ran. Lily ran.", "hi"];
    let request = |(i, text): (usize, &str)| {
        let temperature = if i % 2 == 0 { 0.0 } else { 0.9 };
        let sampling = SamplerOptions { temperature, seed: i as u64, ..SamplerOptions::default() };
        Request { max_tokens: 20 + i, sampling, ignore_end: true, chain: true, ..Request::new(text) }
    };
    prompts.into_iter().enumerate().map(request).collect()
}

fn whole(s: &mut Session, r: Request) -> Output {
    s.generate(r, |_| ControlFlow::Continue(())).expect("generates")
}

/// By the formula, from logits that are asked for one row after another.
fn by_hand(s: &mut Session, out: &Output) -> Vec<[u8; 32]> {
    let mut chain = Chain::new(&s.fingerprint().expect("digest"), &out.prompt);
    let mut ids = out.prompt.clone();
    let link = |id: &u32| {
        let row = s.logits(ids.as_slice()).expect("logits");
        ids.push(*id);
        chain.push(*id, &row)
    };
    out.ids.iter().map(link).collect()
}

#[test]
fn a_text_has_one_chain_alone_with_guesses_and_among_others() {
    let mut s = session("cpu", SessionOptions { rows: Guess::ROWS, ..SessionOptions::default() });
    let alone: Vec<Output> = requests().into_iter().map(|r| whole(&mut s, r)).collect();
    for (r, out) in requests().into_iter().zip(&alone) {
        assert_eq!(out.chain.len(), out.ids.len());
        assert_eq!(out.chain, by_hand(&mut s, out));
        // what would be read without a chain does not matter
        assert_eq!(whole(&mut s, Request { reads: Some(Reads::Ahead), ..r.clone() }).chain, out.chain);
        let guessed = whole(&mut s, Request { guess: Guess::Ngram, ..r.clone() });
        assert_eq!((&guessed.ids, &guessed.chain), (&out.ids, &out.chain));
        let without = whole(&mut s, Request { chain: false, ..r });
        assert!(without.chain.is_empty() && without.ids == out.ids);
    }
    assert_ne!(alone[0].chain[0], alone[1].chain[0]);
    for guess in [Guess::Off, Guess::Ngram] {
        let session = SessionOptions { sequences: 3, ubatch: 16, rows: 12, context: 128, ..SessionOptions::default() };
        let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
        let options = EngineOptions { device: "cpu".into(), devices, session, queue: 8 };
        let engine = Engine::start(&Model::embedded(), options).expect("starts");
        let ask = |r| engine.generate(Request { guess, ..r }).expect("there is room");
        let replies: Vec<_> = requests().into_iter().map(ask).collect();
        for (reply, out) in replies.into_iter().zip(&alone) {
            let found = reply.wait().expect("generates");
            assert_eq!((&found.ids, &found.chain), (&out.ids, &out.chain), "{guess:?}");
        }
    }
}

#[test]
fn a_chain_is_the_same_on_every_device_and_another_under_other_options() {
    let request = || requests().remove(1);
    let want = whole(&mut session("cpu", SessionOptions::default()), request()).chain;
    let n = Devices::default().adapters();
    super::absent::found_or_cpu_only(n);
    let adapters = (0..n).map(|i| i.to_string());
    for device in ["cpu:scalar".to_string()].into_iter().chain(adapters) {
        let mut s = session(&device, SessionOptions { ubatch: 3, ..SessionOptions::default() });
        assert_eq!(whole(&mut s, request()).chain, want, "{}", s.device());
    }
    let options = SessionOptions { k_type: isobit::CacheType::Q8_0, ..SessionOptions::default() };
    assert_ne!(whole(&mut session("cpu", options), request()).chain[0], want[0]);
}

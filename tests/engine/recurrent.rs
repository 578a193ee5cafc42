//! Sessions and engines of a model with recurrent layers: a prompt goes on after the whole sequence before it or begins
//! anew, many texts are what each is alone, and what a state cannot do is refused in one line.

use super::{request, whole};
use isobit::internals::formats::synthetic::Synthetic;
use isobit::{DeviceOptions, Devices, Engine, EngineOptions, Error, Guess, Model, Request, Session, SessionOptions};
use std::io::Cursor;
use std::ops::ControlFlow;

fn model() -> Model {
    let container = Synthetic::parse("qwen35-tiny:q8_0").expect("a shape").container().expect("a model");
    Model::from_container(container).expect("a model")
}

fn options() -> SessionOptions {
    SessionOptions { context: 256, ..SessionOptions::default() }
}

fn session() -> Session {
    let devices = Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() });
    model().session(devices.open("cpu").expect("there is a CPU"), options()).expect("loads")
}

fn ids(n: u32, seed: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 37 + i * i * 5 + seed) % 512).collect()
}

#[test]
fn a_prompt_goes_on_after_the_whole_sequence_or_begins_anew() {
    let mut s = session();
    let first = ids(90, 3);
    let more = [&first[..], &ids(30, 8)].concat();
    // all of it before, a part of it, the same again, something else
    let part = [&first[..70], &ids(9, 5)].concat();
    for prompt in [&first, &more, &part, &part, &ids(20, 1)] {
        let got = s.logits(&prompt[..]).expect("logits");
        let want = session().logits(&prompt[..]).expect("logits");
        assert!(got.iter().map(|l| l.to_bits()).eq(want.iter().map(|l| l.to_bits())), "{} tokens", prompt.len());
        assert_eq!(s.position(), prompt.len());
    }
    // tokens that were generated are a part of it; the last of them was not fed
    let out = whole(&mut s, &request(first.clone(), 12, 4));
    let after = [&first[..], &out.ids, &[7, 8]].concat();
    let got = s.logits(&after[..]).expect("logits");
    let want = session().logits(&after[..]).expect("logits");
    assert!(got.iter().map(|l| l.to_bits()).eq(want.iter().map(|l| l.to_bits())));
}

#[test]
fn many_texts_are_what_each_is_alone() {
    let requests: Vec<Request> = (0..7).map(|i| request(ids(20 + 23 * i, i), 20, u64::from(i))).collect();
    let alone: Vec<Vec<u32>> = requests.iter().map(|r| whole(&mut session(), r).ids).collect();
    let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
    let session = SessionOptions { sequences: 3, pool: 512, ubatch: 40, ..options() };
    let options = EngineOptions { device: "cpu".into(), devices, session, ..EngineOptions::default() };
    let engine = Engine::start(&model(), options).expect("starts");
    let replies: Vec<_> = requests.iter().map(|r| engine.generate(r.clone()).expect("a place in the queue")).collect();
    for (reply, want) in replies.into_iter().zip(alone) {
        assert_eq!(reply.wait().expect("a text").ids, want);
    }
}

#[test]
fn guesses_and_saved_sequences_are_refused_in_one_line() {
    let mut s = session();
    let line = |e: Error| {
        assert!(matches!(e, Error::Options(_)), "{e:?}");
        let line = e.to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    let asked = Request { guess: Guess::Ngram, ..request(ids(9, 2), 5, 1) };
    let error = s.generate(asked, |_| ControlFlow::Continue(())).expect_err("no way back");
    assert!(line(error).contains("recurrent"));
    let device = Devices::default().open("cpu").expect("there is a CPU");
    assert!(line(s.set_draft(&model(), device).expect_err("no way back")).contains("recurrent"));
    whole(&mut s, &request(ids(80, 2), 1, 1));
    let mut file = Vec::new();
    assert!(line(s.save(&mut file).expect_err("states are no chunks")).contains("recurrent"));
    assert!(file.is_empty());
    assert!(line(s.restore(Cursor::new(file)).expect_err("states are no chunks")).contains("recurrent"));
}

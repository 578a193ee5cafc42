//! Sessions and engines of a model with recurrent layers: a prompt goes on after the whole sequence before it, from a
//! checkpoint of it, or begins anew; many texts are what each is alone; what a state cannot do is refused in one line.

use super::{request, whole};
use futures::StreamExt;
use futures::executor::block_on;
use isobit::internals::formats::synthetic::Synthetic;
use isobit::{
    DeviceOptions, Devices, Engine, EngineOptions, Error, Guess, Model, Output, Reads, Recent, Reply, Request, Session,
    SessionOptions,
};
use std::io::Cursor;
use std::ops::ControlFlow;

/// With attention, whose cache goes back with the states; of short convolutions; without a cache.
const SHAPES: [&str; 3] = ["qwen35-tiny:q8_0", "lfm2-tiny:q8_0", "mamba2-tiny:q8_0"];

fn model_of(shape: &str) -> Model {
    let container = Synthetic::parse(shape).expect("a shape").container().expect("a model");
    Model::from_container(container).expect("a model")
}

fn model() -> Model {
    model_of(SHAPES[0])
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

/// On any device.
fn session_on(device: &str, model: &Model, options: SessionOptions) -> Session {
    let devices = Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() });
    model.session(devices.open(device).expect("there is one"), options).expect("loads")
}

/// The requests of a chat, whose answers are not all repeated, with the tokens of each that are not computed again where two
/// states are kept, and where none is.
fn chat(answer: impl Fn(&Request) -> Output, reads: Option<Reads>) -> Vec<(Request, Output, [usize; 2])> {
    let asked = |ids: Vec<u32>, n| {
        let mut request = Request { reads, chain: reads.is_none(), ..request(ids, n, 3) };
        // the best token is known on the device
        request.sampling.temperature = if reads.is_none() { 0.8 } else { 0.0 };
        request
    };
    let mut turns: Vec<(Request, Output, [usize; 2])> = Vec::new();
    let mut ask = |ids: Vec<u32>, n: usize, cached: [usize; 2]| {
        let request = asked(ids, n);
        let output = answer(&request);
        let all = [&output.prompt[..], &output.ids].concat();
        turns.push((request, output, cached));
        all
    };
    // 150 tokens and 60 of an answer: states are kept after 128 and after 192
    let first = ask(ids(150, 3), 60, [0, 0]);
    // the answer is left out
    let second = ask([&first[..145], &ids(30, 8)].concat(), 40, [128, 0]);
    // the answer was repeated: all of it is there but the last token, which was not fed
    let third = ask([&second[..], &ids(10, 9)].concat(), 5, [second.len() - 1; 2]);
    // the question before it in other words, then the same again
    let fourth = ask([&third[..170], &ids(40, 4)].concat(), 9, [128, 0]);
    ask(fourth[..210].to_vec(), 9, [192, 0]);
    // something else, too short for a state
    ask(ids(20, 1), 3, [0, 0]);
    turns
}

/// A chat with one session, on a device that may begin the next step before it knows its token.
fn goes_on_from_checkpoints(device: &str, shape: &str, reads: Option<Reads>, recent: Recent) {
    let (model, options) = (model_of(shape), SessionOptions { recent, ..options() });
    let fresh = |r: &Request| whole(&mut session_on("cpu", &model, options), r);
    let turns = chat(fresh, reads);
    for (checkpoints, of) in [(2, 0), (0, 1)] {
        let mut s = session_on(device, &model, SessionOptions { checkpoints, ubatch: 96, ..options });
        for (i, (request, want, cached)) in turns.iter().enumerate() {
            let line = format!("{shape} on {device}, turn {i}, {checkpoints} states");
            let mut generating = s.stream(request.clone()).expect("begins");
            assert_eq!(generating.cached(), cached[of], "{line}");
            let ids: Vec<u32> = generating.by_ref().map(|piece| piece.expect("a token").id).collect();
            assert_eq!(ids, want.ids, "{line}");
            drop(generating);
            // a text that is dropped after some tokens, with a step under way, and another that begins like it
            let mut dropped = s.stream(Request { max_tokens: 30, ..request.clone() }).expect("begins");
            dropped.by_ref().take(i * 3).for_each(|piece| drop(piece.expect("a token")));
            drop(dropped);
            assert_eq!(&whole(&mut s, request), want, "{line}");
        }
    }
}

#[test]
fn a_chat_goes_on_from_a_checkpoint_and_says_what_it_would_say_without() {
    SHAPES.iter().for_each(|shape| goes_on_from_checkpoints("cpu", shape, None, Recent::Off));
    goes_on_from_checkpoints("cpu", SHAPES[0], None, Recent::On);
}

#[cfg(feature = "gpu")]
#[test]
fn a_chat_goes_on_from_a_checkpoint_on_every_adapter_with_steps_under_way() {
    for i in 0..super::adapters() {
        for shape in SHAPES {
            goes_on_from_checkpoints(&i.to_string(), shape, None, Recent::Off);
            goes_on_from_checkpoints(&i.to_string(), shape, Some(Reads::Ahead), Recent::Off);
        }
    }
}

/// How many tokens of the prompt were there, and the text's.
fn told(mut reply: Reply) -> (usize, Vec<u32>) {
    let mut ids = Vec::new();
    while let Some(piece) = block_on(reply.next()) {
        ids.push(piece.expect("a token").id);
    }
    (reply.cached(), ids)
}

#[test]
fn an_engine_goes_on_from_checkpoints_of_every_text_and_shares_what_texts_begin_with() {
    for shape in SHAPES {
        let model = model_of(shape);
        let fresh = |r: &Request| whole(&mut session_on("cpu", &model, options()), r);
        let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
        let start = |checkpoints, pool| {
            let session = SessionOptions { sequences: 3, pool, ubatch: 96, checkpoints, ..options() };
            let options = EngineOptions { device: "cpu".into(), devices: devices.clone(), session, queue: 64 };
            Engine::start(&model, options).expect("starts")
        };
        let engine = start(2, 768);
        let ask = |r: &Request| told(engine.generate(r.clone()).expect("queued"));
        // two chats in turn: each has its own states
        let of = |seed: u32| {
            let first = request(ids(150, seed), 60, u64::from(seed));
            let said = fresh(&first);
            let all = [&said.prompt[..], &said.ids].concat();
            // one repeats the answer, of which the last token was not fed; the other leaves it out
            let end = if seed == 1 { 210 } else { 145 };
            let second = request([&all[..end], &ids(20, seed + 20)].concat(), 9, 4);
            [(first, said.ids), (second.clone(), fresh(&second).ids)]
        };
        let chats = [of(1), of(2)];
        for (turn, cached) in [(0, [0, 0]), (1, [192, 128])] {
            for (chat, cached) in chats.iter().zip(cached) {
                let (request, want) = &chat[turn];
                assert_eq!(ask(request), (cached, want.clone()), "{shape}, turn {turn}");
            }
        }
        // three at once that begin with the same 100 tokens: two wait for the first
        let texts: Vec<Request> =
            (0..3).map(|i| request([&ids(100, 70)[..], &ids(30, 80 + i)].concat(), 12, u64::from(i))).collect();
        let replies: Vec<_> = texts.iter().map(|r| engine.generate(r.clone()).expect("queued")).collect();
        for (i, (reply, request)) in replies.into_iter().zip(&texts).enumerate() {
            assert_eq!(told(reply), (if i == 0 { 0 } else { 64 }, fresh(request).ids), "{shape}, text {i}");
        }
        // continuations that are scored one after another, after the same context
        let context = ids(140, 90);
        let scored = |i: u32| {
            let text = [&context[..], &ids(9, i)].concat();
            let request = Request { prompt_logprobs: Some(140), ..request(text, 0, 0) };
            let mut reply = engine.generate(request.clone()).expect("queued");
            assert!(block_on(reply.next()).is_none());
            assert_eq!(reply.take_prompt_logprobs(), fresh(&request).prompt_logprobs, "{shape}");
            reply.cached()
        };
        assert_eq!([scored(1), scored(2)], [0, 128], "{shape}");
        // the session by itself in between writes over all of them
        engine.call(|s| s.logits(&ids(200, 5)[..]).map(|_| ())).expect("queued").wait().expect("told").expect("logits");
        assert_eq!(ask(&chats[0][0].0), (0, chats[0][0].1.clone()), "{shape}");
        // a cache in which two have room, and texts that lose theirs
        for (checkpoints, pool) in [(2, 512), (1, 256), (0, 768)] {
            let engine = start(checkpoints, pool);
            let all: Vec<&(Request, Vec<u32>)> = chats.iter().flatten().collect();
            let replies: Vec<_> = all.iter().map(|(r, _)| engine.generate(r.clone()).expect("queued")).collect();
            for (reply, (_, want)) in replies.into_iter().zip(&all) {
                assert_eq!(&reply.wait().expect("ends").ids, want, "{shape}, {checkpoints} states, {pool} positions");
            }
        }
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

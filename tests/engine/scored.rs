//! Log probabilities, scores and vectors: the same alone, among many texts and on every device, and what the logits say.

use super::{engine_of, request, requests, session, whole};
use isobit::internals::generate::logprobs::{Logprobs, log_softmax};
use isobit::{
    Device, DeviceOptions, Devices, Ended, Engine, EngineOptions, Error, Guess, Head, Model, Output, Pooling, Prompt,
    Request, Score, Session, SessionOptions,
};

fn options() -> SessionOptions {
    SessionOptions { context: 256, ubatch: 96, rows: 24, ..SessionOptions::default() }
}

/// An engine of many texts whose steps give so many rows.
fn engine(sequences: usize, pool: usize, rows: usize, head: Head) -> Engine {
    let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
    let session = SessionOptions { sequences, pool, rows, head, ..options() };
    Engine::start(&Model::embedded(), EngineOptions { device: "cpu".into(), devices, session, queue: 64 })
        .expect("starts")
}

#[test]
fn log_probabilities_are_those_of_the_logits_alone_and_among_many_texts() {
    let mut s = session(options());
    let engine = engine(5, 768, 16, Head::Logits);
    let of = |(i, r): (usize, Request)| Request {
        logprobs: Some([0, 3, 20][i % 3]),
        // the shortest prompt has two tokens
        prompt_logprobs: (i % 2 == 0).then_some(if i % 3 == 1 { 1 } else { 1 + i % 4 }),
        guess: if i % 5 == 0 { Guess::Ngram } else { Guess::Off },
        ..r
    };
    let list: Vec<Request> = requests().into_iter().enumerate().map(of).collect();
    let replies: Vec<_> = list.iter().map(|r| engine.generate(r.clone()).expect("queued")).collect();
    for (i, (r, reply)) in list.into_iter().zip(replies).enumerate() {
        let out = whole(&mut s, &r);
        assert_eq!(reply.wait().expect("ends"), out, "text {i}");
        assert_eq!((out.ids.len(), out.logprobs.len()), (r.max_tokens, r.max_tokens), "text {i}");
        let all = [&out.prompt[..], &out.ids].concat();
        let mut rows = Vec::new();
        s.each_logits(&all[..], 0, |_, row| rows.push(row.to_vec())).expect("feeds");
        let top = r.logprobs.unwrap_or_default();
        let from = r.prompt_logprobs.unwrap_or(out.prompt.len());
        let found = out.prompt_logprobs.iter().chain(&out.logprobs);
        assert_eq!(found.clone().count(), all.len() - from, "text {i}");
        for (at, found) in (from..).zip(found) {
            assert_eq!(*found, Logprobs::of(&rows[at - 1], all[at], top), "text {i}, token {at}");
            assert_eq!((found.id, found.top.len()), (all[at], top));
        }
        let sum: f64 = out.logprobs.iter().map(|l| l.logprob).sum();
        assert!(sum < 0.0 && out.logprob() == sum);
    }
    for (r, said) in [
        (Request { logprobs: Some(21), ..request("Once", 1, 0) }, "20 at most"),
        (Request { prompt_logprobs: Some(0), ..request("Once", 1, 0) }, "from token 0"),
        (Request { prompt_logprobs: Some(99), ..request("Once", 1, 0) }, "from token 99"),
    ] {
        let alone = s.stream(r.clone()).err().map(|e| e.to_string()).unwrap_or_default();
        let many = engine.generate(r).expect("queued").wait().unwrap_err().to_string();
        assert!(alone.contains(said) && alone == many, "{alone} / {many}");
    }
}

#[test]
fn guesses_among_many_texts_change_none_of_them_and_save_steps() {
    let text = "one two three four five six seven eight nine ten. ".repeat(3);
    let list: Vec<Request> = (0..8)
        .map(|i| {
            let mut r = request(format!("{}{text}", ["", "A ", "The "][i % 3]), 60, i as u64);
            r.sampling.temperature = [0.0, 0.0, 0.7][i % 3];
            r
        })
        .collect();
    let mut alone = session(options());
    let want: Vec<Output> = list.iter().map(|r| whole(&mut alone, r)).collect();
    let mut steps = [0; 2];
    for (steps, guess) in steps.iter_mut().zip([Guess::Off, Guess::Ngram]) {
        for (sequences, pool) in [(8, 0), (3, 320)] {
            let engine = engine(sequences, pool, 64, Head::Logits);
            // the thread stands still until all texts have come, or how many steps there are would depend on when they do
            let (all_came, come) = std::sync::mpsc::channel::<()>();
            let _held = engine.call(move |_| come.recv()).expect("queued");
            let replies: Vec<_> =
                list.iter().map(|r| engine.generate(Request { guess, ..r.clone() }).expect("queued")).collect();
            all_came.send(()).expect("it waits");
            for (i, (reply, want)) in replies.into_iter().zip(&want).enumerate() {
                assert_eq!(&reply.wait().expect("ends"), want, "text {i} of {sequences} at once, {guess:?}");
            }
            *steps += engine.call(|s| s.take_stats().steps).expect("queued").wait().expect("told");
        }
    }
    println!("steps without and with guesses: {steps:?}");
    assert!(steps[1] * 4 < steps[0] * 3, "{steps:?}");
}

#[test]
fn a_draft_changes_no_text_and_one_that_is_the_model_itself_saves_steps() {
    let devices = Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() });
    let open = || devices.open("cpu").expect("there is a CPU");
    let rows = SessionOptions { rows: Guess::ROWS, ..options() };
    let (mut plain, mut same, mut other) = (session(rows), session(rows), session(rows));
    same.set_draft(&Model::embedded(), open()).expect("loads");
    let small = Model::open(std::path::Path::new(super::ROOT).join("tests/data/tiny/hf")).expect("opens");
    other.set_draft(&small, open()).expect("loads");
    let mut steps = [0; 3];
    for (i, mut r) in requests().into_iter().enumerate() {
        r.sampling.temperature = [0.0, 0.8][i % 2];
        let want = whole(&mut plain, &r);
        steps[0] += plain.take_stats().steps;
        let r = Request { guess: Guess::Draft, ..r };
        for (s, steps) in [&mut same, &mut other].into_iter().zip(&mut steps[1..]) {
            assert_eq!(whole(s, &r), want, "text {i}");
            *steps += s.take_stats().steps;
        }
        assert_eq!(plain.cached(), same.cached());
    }
    println!("steps without a draft, with the model itself, with another: {steps:?}");
    // the same model with the same random numbers is always right, sampled or greedy
    assert!(steps[1] * 4 < steps[0], "{steps:?}");
    assert!(matches!(plain.stream(Request { guess: Guess::Draft, ..request("a", 1, 0) }), Err(Error::Options(_))));
    let engine = engine_of("cpu", 2, 0);
    let e = engine.generate(Request { guess: Guess::Draft, ..request("a", 1, 0) }).expect("queued").wait();
    assert!(matches!(e, Err(Error::Options(_))));
}

#[test]
fn a_score_is_the_sum_of_what_the_logits_say_of_a_continuation() {
    let mut s = session(options());
    let engine = engine(4, 512, 7, Head::Logits);
    let model = Model::embedded();
    let tokenizer = model.tokenizer().expect("has one");
    let pairs = [
        ("Once upon a", " time"),
        ("Once upon a", " time there was a little girl named Lily"),
        ("Once upon a", " zebra"),
        ("Lily went to the park. She saw a", " big dog"),
        ("A space at the end ", "counts to the rest"),
        ("", "Once upon a time"),
    ];
    let long = "Tom and his mom went to the store to buy some apples. ".repeat(12);
    let mut all: Vec<(Prompt, Prompt)> = pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    all.push((long.as_str().into(), "They were red.".into()));
    all.push((vec![1, 5, 9].into(), vec![12, 40].into()));
    let asked: Vec<_> = all
        .iter()
        .map(|(a, b)| engine.generate(Request::score(&model, a.clone(), b.clone()).expect("can be")).expect("queued"))
        .collect();
    for (i, ((context, continuation), reply)) in all.into_iter().zip(asked).enumerate() {
        let r = Request::score(&model, context.clone(), continuation.clone()).expect("can be");
        let Prompt::Ids(ids) = &r.prompt else { panic!("scores are of ids") };
        let from = r.prompt_logprobs.expect("some are wanted");
        if let (Prompt::Text(a), Prompt::Text(b)) = (&context, &continuation) {
            let whole = tokenizer.encode(&format!("{a}{b}"), true, false).expect("encodes");
            let before = tokenizer.encode(a.trim_end(), true, false).expect("encodes");
            assert_eq!((&whole, before.len()), (ids, from), "pair {i}");
        }
        let score: Score = s.score(context, continuation).expect("scores");
        assert_eq!(reply.wait().expect("scores").score(), score, "pair {i}");
        let (mut sum, mut greedy) = (0.0, true);
        s.each_logits(&ids[..], from - 1, |at, row| {
            if let Some(&id) = ids.get(at + 1) {
                sum += log_softmax(row, id as usize);
                greedy &= Logprobs::of(row, id, 1).is_top;
            }
        })
        .expect("feeds");
        assert_eq!((score.logprob, score.is_greedy, score.tokens.len()), (sum, greedy, ids.len() - from), "pair {i}");
    }
    let likely = |b: &str| s.score("Once upon a", b).expect("scores").logprob;
    let mut likely = likely;
    assert!(likely(" time") > likely(" zebra"));
    for (a, b) in [(Prompt::from("Once"), Prompt::from("")), (vec![].into(), vec![1].into())] {
        let e = Request::score(&model, a, b).unwrap_err().to_string();
        assert!(e.contains("cannot be scored"), "{e}");
    }
}

#[test]
fn a_vector_is_the_same_alone_among_many_and_on_every_device() {
    let hidden = SessionOptions { head: Head::Hidden, ..options() };
    let mut s = session(hidden);
    let texts: Vec<String> = (0..14).map(|i| "The cat sat on a mat. ".repeat(1 + i * 2) + ["", "Oh!"][i % 2]).collect();
    let dim = Model::embedded().hyper().dim;
    let vectors = |s: &mut Session| -> Vec<Vec<u32>> {
        let both = texts.iter().flat_map(|t| [(t, Pooling::Mean), (t, Pooling::Last)]);
        both.map(|(t, p)| s.embed(t.as_str(), p).expect("embeds").into_iter().map(f32::to_bits).collect()).collect()
    };
    let want = vectors(&mut s);
    for v in &want {
        let length: f64 = v.iter().map(|x| f64::from(f32::from_bits(*x)).powi(2)).sum();
        assert!(v.len() == dim && (length - 1.0).abs() < 1e-6, "{length}");
    }
    assert!(want.windows(2).all(|w| w[0] != w[1]));
    let words = std::iter::once("cpu:scalar".to_string()).chain((0..super::adapters()).map(|i| i.to_string()));
    for word in words {
        let device: Device = Devices::default().open(&word).expect("opens");
        let mut other = Model::embedded().session(device, SessionOptions { ubatch: 17, ..hidden }).expect("loads");
        assert_eq!(vectors(&mut other), want, "{word}");
    }
    for (sequences, pool, rows) in [(6, 0, 96), (3, 320, 5)] {
        let engine = engine(sequences, pool, rows, Head::Hidden);
        let both = texts.iter().flat_map(|t| [(t, Pooling::Mean), (t, Pooling::Last)]);
        let asked: Vec<_> = both.map(|(t, p)| engine.embed(t.as_str(), p).expect("queued")).collect();
        for (i, (reply, want)) in asked.into_iter().zip(&want).enumerate() {
            let found: Vec<u32> = reply.wait().expect("embeds").into_iter().map(f32::to_bits).collect();
            assert_eq!(&found, want, "vector {i} of {sequences} at once");
        }
        assert!(engine.embed(vec![1; 300], Pooling::Mean).expect("queued").wait().is_err());
        let e = engine.generate("Once").expect("queued").wait().unwrap_err().to_string();
        assert!(e.contains("hidden states"), "{e}");
    }
    // an engine of one text
    let one = engine(1, 0, 8, Head::Hidden);
    let found = one.embed(texts[3].as_str(), Pooling::Mean).expect("queued").wait().expect("embeds");
    assert_eq!(found.into_iter().map(f32::to_bits).collect::<Vec<_>>(), want[6]);
    assert!(s.generate("Once", |_| std::ops::ControlFlow::Continue(())).is_err());
    assert!(session(options()).embed("Once", Pooling::Mean).unwrap_err().to_string().contains("hidden states"));
    assert_eq!(Output::default().ended, Ended::Length);
}

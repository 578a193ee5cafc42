//! Receipts: no bit of the file can be changed, no token and no link forged.

use isobit::internals::receipts::{
    Body, Difference, Error, Key, LARGEST, PublicKey, Receipt, Sample, check, make, replay,
};
use isobit::{
    CacheType, DeviceOptions, Devices, Engine, EngineOptions, Model, Request, SamplerOptions, Session, SessionOptions,
};
use std::ops::ControlFlow;

/// A session on a device, with the options of a receipt where there is one.
pub fn session(device: &str, model: &Model, body: Option<&Body>) -> Session {
    let devices = Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() });
    let options = body.map_or_else(SessionOptions::default, |b| b.least(model).expect("sound"));
    model.session(devices.open(device).expect("a device"), SessionOptions { rows: 16, ..options }).expect("loads")
}

/// The CPU, and every adapter.
pub fn devices() -> Vec<String> {
    let n = Devices::default().adapters();
    super::absent::found_or_cpu_only(n);
    ["cpu".to_string()].into_iter().chain((0..n).map(|i| i.to_string())).collect()
}

pub fn request(n: usize, temperature: f32) -> Request {
    let sampling = SamplerOptions { temperature, seed: 7, ..SamplerOptions::default() };
    Request { max_tokens: n, sampling, ignore_end: true, chain: true, ..Request::new("The king had three sons, and") }
}

pub fn made(s: &mut Session, request: &Request) -> Receipt {
    let out = s.generate(request.clone(), |_| ControlFlow::Continue(())).expect("generates");
    make(&*s, request, &out).expect("a receipt")
}

fn difference(receipt: &Receipt, s: &mut Session) -> Option<Difference> {
    check(receipt, s, None).expect("can be checked").difference
}

#[test]
fn what_is_made_on_one_device_is_equal_on_every_other() {
    let model = Model::embedded();
    for (temperature, n) in [(0.0, 30), (0.9, 90)] {
        let mut receipts = Vec::new();
        for device in devices() {
            let mut s = session(&device, &model, None);
            receipts.push(made(&mut s, &request(n, temperature)));
        }
        for receipt in &receipts {
            assert_eq!((&receipt.body.ids, &receipt.body.chain), (&receipts[0].body.ids, &receipts[0].body.chain));
            let read = Receipt::parse(&receipt.to_bytes()).expect("as it was written");
            assert_eq!(&read, receipt);
            for device in devices() {
                let mut s = session(&device, &model, Some(&receipt.body));
                let checked = check(&read, &mut s, None).expect("can be checked");
                assert_eq!((checked.difference, checked.checked), (None, n), "{device}");
                let checked = replay(&read, &mut s, |_| ControlFlow::Continue(())).expect("can be replayed");
                assert_eq!((checked.difference, checked.checked), (None, n), "{device}");
            }
        }
    }
}

#[test]
fn texts_of_an_engine_of_many_have_receipts_as_those_made_alone() {
    let model = Model::embedded();
    let session_options = SessionOptions { sequences: 4, ubatch: 16, context: 128, ..SessionOptions::default() };
    let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
    let options = EngineOptions { device: "cpu".into(), devices, session: session_options, queue: 8 };
    let engine = Engine::start(&model, options).expect("starts");
    let requests: Vec<Request> = [0.0, 0.5, 0.9, 1.5].into_iter().map(|t| request(24, t)).collect();
    let replies: Vec<_> = requests.iter().map(|r| engine.generate(r.clone()).expect("there is room")).collect();
    for (request, reply) in requests.iter().zip(replies) {
        let receipt = make(&engine, request, &reply.wait().expect("generates")).expect("a receipt");
        let mut s = session("cpu", &model, Some(&receipt.body));
        assert_eq!(difference(&receipt, &mut s), None);
        assert_eq!(receipt.body.chain, made(&mut session("cpu", &model, None), request).body.chain);
    }
}

#[test]
fn no_bit_of_a_file_can_be_changed() {
    let mut s = session("cpu", &Model::embedded(), None);
    let plain = made(&mut s, &request(12, 0.8));
    let mut signed = plain.clone();
    signed.sign(&Key::new([3; 32]));
    for receipt in [plain, signed] {
        let bytes = receipt.to_bytes();
        assert!(bytes.len() > 1000 && (bytes.len() as u64) < LARGEST);
        for at in 0..bytes.len() {
            // every bit of the beginning and the end, elsewhere one of each byte
            let all = at < 100 || at + 400 > bytes.len();
            for bit in (0..8).filter(|b| all || *b == at % 8) {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                let refused = Receipt::parse(&other);
                let line = refused.err().unwrap_or_else(|| panic!("byte {at} bit {bit}")).to_string();
                assert!(line.lines().count() == 1 && line.len() > 20, "{line}");
            }
        }
        for other in [&bytes[..bytes.len() - 1], &[&bytes[..], b"\n"].concat(), &[b" ", &bytes[..]].concat()] {
            assert!(Receipt::parse(other).is_err());
        }
        // the same content in other words
        let text = String::from_utf8(bytes).unwrap();
        for (from, to) in [
            ("{\"isobit_receipt\":1", "{\"isobit_receipt\":1.0"),
            ("\"seed\":7", "\"seed\": 7"),
            ("\"temperature\":0.8", "\"temperature\":0.80"),
            ("\"seed\":7", "\"seed\":7,\"seed\":7"),
            ("\"seed\":7", "\"seed\":7,\"more\":7"),
            ("\"grammar\":null,", ""),
            ("\"text\":\"", "\"text\":\"\\u0041"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            assert!(Receipt::parse(text.replacen(from, to, 1).as_bytes()).is_err(), "{from}");
        }
        assert!(matches!(
            Receipt::parse(text.replacen("receipt\":1", "receipt\":2", 1).as_bytes()),
            Err(Error::Version(2))
        ));
    }
}

#[test]
fn a_signature_names_who_says_so_and_nobody_else() {
    let mut s = session("cpu", &Model::embedded(), None);
    let mut receipt = made(&mut s, &request(4, 0.8));
    let (key, other) = (Key::new([3; 32]), Key::new([4; 32]));
    assert!(matches!(receipt.signed_by(&key.public()), Err(Error::Unsigned(_))));
    receipt.sign(&key);
    let read = Receipt::parse(&receipt.to_bytes()).expect("sound");
    assert!(read.signed_by(&key.public()).is_ok());
    assert!(matches!(read.signed_by(&other.public()), Err(Error::Signer { .. })));
    assert_eq!(PublicKey::parse(&key.public().0.to_string()).unwrap(), key.public());
    // what nobody can compute again is bound by the signature: with a new hash it is still refused
    for change in [|b: &mut Body| b.device.push('x'), |b: &mut Body| b.time += 1, |b: &mut Body| b.isobit.clear()] {
        let mut forged = receipt.clone();
        change(&mut forged.body);
        assert!(matches!(Receipt::parse(&forged.to_bytes()), Err(Error::Signature(_))));
    }
}

#[test]
fn a_forged_field_is_found_by_computing_it_again() {
    let model = Model::embedded();
    let mut s = session("cpu", &model, None);
    let receipt = made(&mut s, &request(40, 0.9));
    type Change = (&'static str, fn(&mut Body));
    let changes: [Change; 11] = [
        ("is of the model", |b| b.model.0[0] ^= 1),
        ("fingerprint", |b| b.fingerprint.push('x')),
        ("named", |b| b.name.push('x')),
        ("token 3 (position", |b| b.ids[3] ^= 1),
        ("token", |b| b.sampling.seed += 1),
        ("token", |b| b.sampling.temperature = 0.0),
        ("token 0", |b| b.prompt[1] ^= 1),
        ("text is not that", |b| b.text.push('x')),
        ("ended", |b| b.max_tokens = Some(41)),
        ("ended", |b| b.ended = isobit::internals::receipts::Ending::Context),
        ("logits of token 17 (position", |b| b.chain[17].0[5] ^= 4),
    ];
    for (word, change) in changes {
        let mut forged = receipt.clone();
        change(&mut forged.body);
        if word.starts_with("token 3") {
            // with its own text, or that is found first
            forged.body.text = retold(&model, &forged.body);
        }
        // an unsigned file of it is well made
        let forged = Receipt::parse(&forged.to_bytes()).expect("a new hash");
        let line = difference(&forged, &mut s).unwrap_or_else(|| panic!("{word}")).to_string();
        assert!(line.contains(word), "{word}: {line}");
    }
    // options of another session
    let mut forged = receipt.clone();
    forged.body.cache = "q8_0/q8_0".into();
    let mut other = session("cpu", &model, Some(&forged.body));
    assert!(matches!(difference(&forged, &mut other), Some(Difference::Fingerprint { .. })));
    let q8 = SessionOptions { k_type: CacheType::Q8_0, ..SessionOptions::default() };
    let mut other = model.session(Devices::default().open("cpu").unwrap(), q8).expect("loads");
    assert!(matches!(difference(&receipt, &mut other), Some(Difference::Fingerprint { .. })));
}

fn retold(model: &Model, body: &Body) -> String {
    let request = body.request(&Model::embedded()).expect("sound");
    isobit::Output::of(model, body.context, &request, &body.prompt, &body.ids).expect("tokens").text
}

#[test]
fn a_planted_token_or_link_is_named_with_its_place() {
    let model = Model::embedded();
    let mut s = session("cpu", &model, None);
    let receipt = made(&mut s, &request(100, 0.9));
    let prompt = receipt.body.prompt.len();
    for at in [0, 1, 15, 16, 40, 99] {
        let mut forged = receipt.clone();
        forged.body.ids[at] = (forged.body.ids[at] + 1) % 100 + 300;
        forged.body.text = retold(&model, &forged.body);
        let (id, planted) = (receipt.body.ids[at], forged.body.ids[at]);
        let want =
            Difference::Token { index: at, position: prompt + at, expected: planted, found: Some(id), link: false };
        assert_eq!(difference(&forged, &mut s), Some(want.clone()), "{at}");
        let again = replay(&forged, &mut s, |_| ControlFlow::Continue(())).expect("can be replayed");
        assert_eq!((again.difference, again.checked), (Some(want), at + 1));
        // with all links made anew by somebody who has the model: the choice alone is wrong
        let seq: Vec<u32> = forged.body.prompt.iter().chain(&forged.body.ids).copied().collect();
        let mut chain = forged.body.chain_at(0);
        let mut links = Vec::new();
        s.each_logits(&seq[..seq.len() - 1], prompt - 1, |i, row| links.push(chain.push(seq[i + 1], row))).unwrap();
        forged.body.chain = links.into_iter().map(isobit::internals::receipts::Hex).collect();
        let found = difference(&forged, &mut s);
        let want =
            Difference::Token { index: at, position: prompt + at, expected: planted, found: Some(id), link: true };
        assert_eq!(found, Some(want));
        let mut forged = receipt.clone();
        forged.body.chain[at].0[31] ^= 1;
        let want = Difference::Logits { index: at, position: prompt + at, id };
        assert_eq!(difference(&forged, &mut s), Some(want.clone()));
        let again = replay(&forged, &mut s, |_| ControlFlow::Continue(())).expect("can be replayed");
        assert_eq!(again.difference, Some(want));
    }
}

#[test]
fn a_sample_finds_what_is_in_its_pieces_and_that_alone() {
    let model = Model::embedded();
    let mut s = session("cpu", &model, None);
    let mut receipt = made(&mut s, &request(160, 0.9));
    // in the fifth piece of ten; no link after it is another
    receipt.body.chain[70].0[0] ^= 1;
    let mut found = 0;
    for seed in 0..40 {
        let checked = check(&receipt, &mut s, Some(Sample { share: 0.2, seed })).expect("can be checked");
        assert_eq!(checked.chunks, Some((2, 10)));
        match checked.difference {
            None => assert_eq!(checked.checked, 32),
            // the piece itself; it ends before the next begins from the wrong link
            Some(Difference::Logits { index, .. }) => {
                assert_eq!(index, 70);
                found += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // one time in five
    assert!((2..=18).contains(&found), "{found} of 40");
    let all = check(&receipt, &mut s, Some(Sample { share: 1.0, seed: 0 })).expect("can be checked");
    assert!(matches!(all.difference, Some(Difference::Logits { index: 70, .. })));
    assert!(matches!(check(&receipt, &mut s, Some(Sample { share: 0.0, seed: 0 })), Err(Error::Share(_))));
}

#[test]
fn texts_of_any_length_and_end_can_be_checked() {
    let model = Model::embedded();
    let mut s = model
        .session(Devices::default().open("cpu").unwrap(), SessionOptions { context: 64, ..SessionOptions::default() })
        .expect("loads");
    let full = Request { max_tokens: usize::MAX, ..request(0, 0.9) };
    for request in [request(0, 0.0), request(1, 0.0), full, Request { ignore_end: false, ..request(400, 0.0) }] {
        let receipt = made(&mut s, &request);
        assert_eq!(difference(&Receipt::parse(&receipt.to_bytes()).unwrap(), &mut s), None, "{:?}", receipt.body.ended);
        let mut least = session("cpu", &model, Some(&receipt.body));
        assert_eq!(difference(&receipt, &mut least), None);
        assert_eq!(receipt.body.id().len(), 16);
    }
    // broken off in the middle
    let request = request(30, 0.9);
    let out =
        s.generate(
            request.clone(),
            |p| if p.position > 12 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) },
        );
    let receipt = make(&s, &request, &out.unwrap()).expect("a receipt");
    assert_eq!(receipt.body.ended, isobit::internals::receipts::Ending::BrokenOff);
    assert_eq!(difference(&receipt, &mut s), None);
    let again = replay(&receipt, &mut s, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((again.difference, again.checked), (None, receipt.body.ids.len()));
    // and what has no chain has no receipt
    let without = Request { chain: false, ..request };
    let out = s.generate(without.clone(), |_| ControlFlow::Continue(())).unwrap();
    assert!(matches!(make(&s, &without, &out), Err(Error::Unsound(_))));
}

#[test]
fn a_receipt_of_before_is_read_and_is_right() {
    // `isobit run -p "Once upon a time" -n 24 --temp 0.9 --seed 5 --receipt sampled.json`; the order of its fields is the format
    let bytes = include_bytes!("../data/receipts/sampled.json");
    let receipt = Receipt::parse(bytes).expect("unchanged");
    let mut s = session("cpu", &Model::embedded(), Some(&receipt.body));
    assert_eq!((receipt.body.ids.len(), difference(&receipt, &mut s)), (24, None));
}

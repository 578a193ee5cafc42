//! Saved sequences: bytes that are the same wherever they are written, taken up anywhere with the same bits, and refused by
//! name when a byte, the model or an option differs.

use super::{adapters, request, whole};
use isobit::internals::formats::LoadMode;
use isobit::internals::formats::meta::Value;
use isobit::{CacheType, DeviceOptions, Devices, Engine, EngineOptions, Error, Model, Output, Session, SessionOptions};
use sha2::{Digest, Sha256};
use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Of two chunks and some tokens.
fn text() -> String {
    "Once upon a time there was a little girl named Lily. She liked to play with her red ball in the park. ".repeat(5)
}

fn options(cache: CacheType) -> SessionOptions {
    SessionOptions { context: 256, k_type: cache, v_type: cache, ..SessionOptions::default() }
}

fn on(word: &str, options: SessionOptions) -> Session {
    let devices = Devices::new(DeviceOptions { threads: 2, ..DeviceOptions::default() });
    Model::embedded().session(devices.open(word).expect("opens"), options).expect("loads")
}

/// Every device there is.
fn devices() -> Vec<String> {
    ["cpu".into(), "cpu:scalar".into()].into_iter().chain((0..adapters()).map(|i| i.to_string())).collect()
}

/// Digest of all logits of the text and 64 tokens after it.
fn digest(s: &mut Session) -> (String, usize) {
    let out = whole(s, &request(text(), 64, 9));
    let mut hash = Sha256::new();
    let all = [&out.prompt[..], &out.ids].concat();
    s.each_logits(&all[..], out.prompt.len() - 1, |_, row| {
        row.iter().for_each(|l| hash.update(l.to_le_bytes()));
    })
    .expect("feeds");
    (format!("{:x?} {:?}", hash.finalize(), out.ids), out.prompt.len())
}

#[test]
fn what_one_device_saves_every_other_takes_up_with_the_same_bits() {
    for cache in [CacheType::F16, CacheType::Q8_0, CacheType::TQ3_1] {
        let (want, n) = digest(&mut on("cpu", options(cache)));
        let mut files: Vec<Vec<u8>> = Vec::new();
        for word in devices() {
            let mut s = on(&word, options(cache));
            let mut file = Vec::new();
            assert_eq!(s.save(&mut file).expect("nothing to save is no error"), 0);
            assert!(file.is_empty());
            whole(&mut s, &request(text(), 0, 0));
            assert_eq!(s.save(&mut file).expect("saves"), n / 64 * 64, "{word}");
            files.push(file);
        }
        assert!(files.iter().all(|f| *f == files[0]), "{}: a device wrote other bytes", cache.name());
        for word in devices() {
            let mut s = on(&word, options(cache));
            assert_eq!(s.restore(Cursor::new(&files[0])).expect("is taken up"), n / 64 * 64);
            s.take_stats();
            let out = whole(&mut s, &request(text(), 1, 9));
            // what was saved is not computed again
            let steps = s.take_stats();
            assert!(out.prompt.len() == n && steps.steps == 1, "{word}: {} steps", steps.steps);
            assert_eq!(digest(&mut s).0, want, "{word} {}", cache.name());
        }
    }
}

/// Bytes that two threads have.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn engine(sequences: usize, pool: usize) -> Engine {
    let devices = DeviceOptions { threads: 2, ..DeviceOptions::default() };
    let session = SessionOptions { sequences, pool, ubatch: 96, ..options(CacheType::F16) };
    Engine::start(&Model::embedded(), EngineOptions { device: "cpu".into(), devices, session, queue: 64 })
        .expect("starts")
}

#[test]
fn an_engine_of_many_texts_saves_and_takes_up_what_a_session_does() {
    let mut alone = on("cpu", options(CacheType::F16));
    let want: Output = whole(&mut alone, &request(text(), 20, 3));
    let mut file = Vec::new();
    let mut plain = on("cpu", options(CacheType::F16));
    whole(&mut plain, &request(text(), 0, 0));
    let n = plain.save(&mut file).expect("saves");
    for (sequences, pool) in [(4, 0), (4, 320), (1, 0)] {
        let engine = engine(sequences, pool);
        let out = Shared::default();
        let save = || engine.save(text(), out.clone()).expect("queued").wait().expect("called").expect("saves");
        assert_eq!(save(), 0, "nothing is there yet");
        // another text first, so that the chunks do not lie at the beginning
        engine.generate(request("The dog", 80, 1)).expect("queued").wait().expect("ends");
        assert_eq!(engine.generate(request(text(), 20, 3)).expect("queued").wait().expect("ends"), want);
        assert_eq!(save(), n);
        assert_eq!(*out.0.lock().unwrap(), file, "{sequences} at once: other bytes");
        // another engine goes on from there
        let other = self::engine(sequences, pool);
        other.generate(request("A cat", 70, 2)).expect("queued").wait().expect("ends");
        let taken = other.restore(Cursor::new(file.clone())).expect("queued").wait().expect("called");
        assert_eq!(taken.expect("is taken up"), n);
        other.call(|s| s.take_stats()).expect("queued").wait().expect("told");
        assert_eq!(other.generate(request(text(), 20, 3)).expect("queued").wait().expect("ends"), want);
        let broken = other.restore(Cursor::new(file[1..].to_vec())).expect("queued").wait().expect("called");
        assert!(matches!(broken, Err(Error::Options(_))));
        assert_eq!(other.generate(request(text(), 20, 3)).expect("queued").wait().expect("goes on"), want);
    }
}

#[test]
fn of_a_model_with_windows_a_pool_saves_what_is_seen_and_a_session_goes_on_after_all_of_it() {
    let mut container = Model::embedded_container();
    container.meta.entries.push(("llama.attention.sliding_window".into(), Value::U32(70)));
    let model = Model::from_container(container).expect("opens");
    let devices = || DeviceOptions { threads: 2, ..DeviceOptions::default() };
    let open = || Devices::new(devices()).open("cpu").expect("opens");
    let whole_options = options(CacheType::F16);
    let mut plain = model.session(open(), whole_options).expect("loads");
    let want = whole(&mut plain, &request(text(), 60, 3));
    let mut all = Vec::new();
    assert_eq!(plain.save(&mut all).expect("saves"), (want.prompt.len() + 59) / 64 * 64);
    let session = SessionOptions { sequences: 3, ..whole_options };
    let options = EngineOptions { device: "cpu".into(), devices: devices(), session, queue: 8 };
    let engine = Engine::start(&model, options).expect("starts");
    assert_eq!(engine.generate(request(text(), 60, 3)).expect("queued").wait().expect("ends"), want);
    let out = Shared::default();
    let prompt = [&want.prompt[..], &want.ids].concat();
    let n = engine.save(prompt, out.clone()).expect("queued").wait().expect("called").expect("saves");
    let part = out.0.lock().unwrap().clone();
    assert!(n >= 128 && part.len() < all.len(), "{n} tokens, {} and {} bytes", part.len(), all.len());
    for file in [&all, &part] {
        let mut other = model.session(open(), whole_options).expect("loads");
        assert_eq!(other.restore(Cursor::new(file)).expect("is taken up"), n);
        // the same text, which ends before what was saved, and one that goes on after it
        assert_eq!(whole(&mut other, &request(text(), 60, 3)), want);
        other.restore(Cursor::new(file)).expect("is taken up");
        let more = [&want.prompt[..], &want.ids].concat();
        assert_eq!(whole(&mut other, &request(more.clone(), 20, 8)), whole(&mut plain, &request(more.clone(), 20, 8)));
        // and what is saved then is there for the next
        other.restore(Cursor::new(file)).expect("is taken up");
        whole(&mut other, &request(more, 1, 8));
        let mut again = Vec::new();
        assert_eq!(other.save(&mut again).expect("saves"), n);
        assert_eq!(&again, file);
    }
}

#[test]
fn a_saved_sequence_is_refused_by_name_where_anything_differs() {
    let mut s = on("cpu", options(CacheType::F16));
    whole(&mut s, &request(text(), 0, 0));
    let mut file = Vec::new();
    let n = s.save(&mut file).expect("saves");
    let said = |bytes: Vec<u8>, o: SessionOptions| match on("cpu", o).restore(Cursor::new(bytes)) {
        Err(e @ Error::Options(_)) => e.to_string(),
        other => panic!("{other:?}"),
    };
    // each byte counts: of the head, of the ids, of what is cached, of the hash
    let mut seed = 11;
    let mut draw = |n: usize| (isobit::internals::random::next(&mut seed) % n as u64) as usize;
    let mut shared = on("cpu", options(CacheType::F16));
    for i in 0..160 {
        let mut bad = file.clone();
        let at = if i < 60 { i } else { draw(bad.len()) };
        match i % 8 {
            5 => bad.truncate(at),
            6 => bad.insert(at, draw(256) as u8),
            7 => drop(bad.remove(at)),
            bit => bad[at] ^= 1 << bit,
        }
        if bad == file {
            continue;
        }
        let e = shared.restore(Cursor::new(bad)).expect_err("it was changed");
        let line = e.to_string();
        assert!(matches!(e, Error::Options(_)) && line.contains("saved sequence"), "change {i} at {at}: {line}");
    }
    assert_eq!(shared.restore(Cursor::new(file.clone())).expect("the one that was not changed"), n);
    // another version; and what only a forger writes: a right hash over a wrong content
    let forged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = file[..file.len() - 32].to_vec();
        change(&mut bytes);
        let hash = Sha256::digest(&bytes);
        [&bytes[..], &hash].concat()
    };
    let line = u32::from_le_bytes(file[12..16].try_into().expect("four bytes")) as usize;
    let tokens = 16 + line;
    let same = options(CacheType::F16);
    for (bytes, word) in [
        (forged(&|b| b[8] = 9), "version 9"),
        (forged(&|b| b[12..16].copy_from_slice(&[255; 4])), "not sound"),
        (forged(&|b| b[20] ^= 1), "is of "),
        (forged(&|b| b[tokens] = 65), "not sound"),
        (forged(&|b| b[tokens..tokens + 4].copy_from_slice(&[255; 4])), "tokens"),
        (forged(&|b| b[tokens..tokens + 4].copy_from_slice(&[0; 4])), "not sound"),
        (forged(&|b| b[tokens + 4] = 1), "not sound"),
        (forged(&|b| b.extend([0; 4])), "longer or shorter"),
    ] {
        let found = said(bytes, same);
        assert!(found.contains(word), "{found}, {word:?} expected");
    }
    for (o, word) in [
        (options(CacheType::Q8_0), "f16/f16"),
        (SessionOptions { activations: isobit::Activations::Bits16, ..same }, ":a8:"),
        (SessionOptions { context: 64, ..same }, &format!("{n} tokens")),
    ] {
        let found = said(file.clone(), o);
        assert!(found.contains(word), "{found}, {word:?} expected");
    }
    let other = Model::open_with(Path::new(super::ROOT).join("tests/data/tiny/hf"), LoadMode::Read).expect("opens");
    let mut other = other.session(Devices::default().open("cpu").expect("opens"), same).expect("loads");
    let e = other.restore(Cursor::new(file)).unwrap_err().to_string();
    assert!(e.contains("is of isobit-"), "{e}");
    // what was refused has changed nothing
    let out = s.generate(request(text(), 4, 9), |_| ControlFlow::Continue(())).expect("goes on");
    assert_eq!(out, whole(&mut shared, &request(text(), 4, 9)));
}

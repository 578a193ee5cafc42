//! Encoders: hidden states against Hugging Face transformers, the same bits in every form of a file, on every device and
//! beside any other texts, and one clear line for what they do not do.
//!
//! The checkpoints are synthetic, written by `examples/synth_encoder.rs` when a test runs; `tests/data/encoders` holds what
//! transformers makes of the same ones.

use crate::checkpoint;
use crate::common::{boxed_gpus, cpu, levels};
use crate::program::isobit;
use futures::executor::block_on;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::fuse::Fuse;
use isobit::internals::generate::batch::Part;
use isobit::internals::generate::pool::Pool;
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::verify::{Script, prompt, verify_paged};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Head, Hyper, PlanOptions, Pooling, Recent};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::Device;
use isobit::internals::simd::Level;
use isobit::{Devices, Engine, EngineOptions, Model};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[path = "../../examples/synth_encoder.rs"]
#[allow(dead_code, reason = "the generator is a program of its own; tests call one function")]
mod synth;

/// On both sides of where chunks of 64 positions end.
const TOKENS: [usize; 5] = [1, 63, 64, 65, 130];

/// Positions of a session: three chunks, so that pages of one are three.
const CONTEXT: usize = 192;

pub(crate) fn checkpoint(form: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join("model");
    synth::generate(form, &out).unwrap_or_else(|e| panic!("{form}: {e:#}"));
    (dir, out)
}

pub(crate) fn open(path: &Path) -> (Container, Hyper) {
    let c = Container::open(path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let h = Hyper::read(&c).unwrap_or_else(|e| panic!("{e:#}"));
    (c, h)
}

/// The ids of `make.py`.
pub(crate) fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + i * i * 5 + 11 * n as u32) % 262).collect()
}

/// And those of a form: a RoBERTa's padding has no position.
fn ids_for(form: &str, n: usize) -> Vec<u32> {
    let first = if form.contains("roberta") { 3 } else { 0 };
    ids(n).into_iter().map(|id| first + id).collect()
}

fn options(cache: CacheType) -> SessionOptions {
    let plan = PlanOptions {
        n_ctx: CONTEXT,
        // raised to what holds a text
        ubatch: 7,
        k_type: cache,
        v_type: cache,
        head: Head::Hidden,
        ..PlanOptions::default()
    };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

/// The states of every token of each text, alone, one after the other on one device.
fn states(
    device: &mut dyn Device,
    (c, h): (&Container, &Hyper),
    how: SessionOptions,
    page: usize,
    texts: &[Vec<u32>],
) -> anyhow::Result<Vec<Vec<Vec<f32>>>> {
    block_on(async {
        let mut s = Session::paged(device, c, h, how, page, |_| {}).await?;
        let mut all = Vec::new();
        for ids in texts {
            let mut rows = Vec::new();
            let each = |_: usize, row: &[f32]| {
                rows.push(row.to_vec());
                Ok(())
            };
            s.feed(ids, Want::From(0), each).await?;
            all.push(rows);
        }
        Ok(all)
    })
}

pub(crate) fn on_cpu(m: (&Container, &Hyper), texts: &[Vec<u32>]) -> Vec<Vec<Vec<f32>>> {
    let found = states(&mut cpu(Some(Level::detect()), 0), m, options(CacheType::F32), usize::MAX, texts);
    found.unwrap_or_else(|e| panic!("{e:#}"))
}

pub(crate) fn bits(states: &[Vec<Vec<f32>>]) -> Vec<Vec<Vec<u32>>> {
    states.iter().map(|t| t.iter().map(|r| r.iter().map(|x| x.to_bits()).collect()).collect()).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// What transformers makes of a case.
fn recorded(name: &str) -> Vec<Vec<f32>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoders/states.safetensors");
    let bytes = std::fs::read(path).expect("the reference is there");
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let t = st.tensor(name).expect("the case is there");
    let values: Vec<f32> = t.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    values.chunks(*t.shape().last().expect("a shape")).map(<[f32]>::to_vec).collect()
}

fn agrees(form: &str) {
    let (_dir, path) = checkpoint(form);
    let (c, h) = open(&path);
    let texts = TOKENS.map(|n| ids_for(form, n));
    let found = on_cpu((&c, &h), &texts);
    for (n, rows) in TOKENS.into_iter().zip(&found) {
        assert_eq!(rows.len(), n);
        let expected = recorded(&format!("{form}.{n}.states"));
        let (mut worst, mut diff) = (0f64, 0f32);
        for (e, f) in expected.iter().zip(rows.iter().step_by(8)) {
            worst = worst.max(1.0 - cosine(e, f));
            diff = e.iter().zip(f).fold(diff, |m, (a, b)| m.max((a - b).abs()));
        }
        let mean: Vec<f32> = (0..h.dim).map(|i| rows.iter().map(|r| r[i]).sum::<f32>() / n as f32).collect();
        let pooled = 1.0 - cosine(&recorded(&format!("{form}.{n}.mean"))[0], &mean);
        println!("{form}, {n} tokens: 1 - cosine {worst:.1e}, of the mean {pooled:.1e}, largest difference {diff:.1e}");
        assert!(worst < 1e-9 && pooled < 1e-9 && diff < 2e-5, "{form}, {n} tokens: {worst:e} {pooled:e} {diff:e}");
    }
}

#[test]
fn bert_agrees_with_transformers_on_both_sides_of_a_chunks_end() {
    agrees("bert");
}

#[test]
fn nomic_bert_agrees_with_transformers_on_both_sides_of_a_chunks_end() {
    agrees("nomic");
}

#[test]
fn xlm_roberta_agrees_with_transformers_on_both_sides_of_a_chunks_end() {
    agrees("xlm-roberta");
}

/// Past its windows, of 20 positions on either side.
#[test]
fn embedding_gemma_agrees_with_transformers_on_both_sides_of_a_chunks_end() {
    agrees("gemma");
}

/// Past its windows, of 20 positions on either side; with either gate.
#[test]
fn modern_bert_agrees_with_transformers_on_both_sides_of_a_chunks_end() {
    agrees("modern");
    agrees("modern-silu");
}

#[test]
fn layers_behind_pooling_make_the_vectors_that_sentence_transformers_makes() {
    for (form, pooling) in [("gemma", Pooling::Mean), ("bert-dense", Pooling::Cls)] {
        let (_dir, path) = checkpoint(form);
        let mut paths = vec![path.clone()];
        // with a bias and tanh there is no such file
        if form == "gemma" {
            paths.push(quantized(&path, "f32"));
        }
        let mut bits = Vec::new();
        for path in paths {
            let model = Model::open(&path).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(model.pooling().expect("known"), pooling, "{}", path.display());
            let device = Devices::default().open("cpu").expect("opens");
            let options = isobit::SessionOptions {
                head: Head::Hidden,
                k_type: CacheType::F32,
                v_type: CacheType::F32,
                ..isobit::SessionOptions::default()
            };
            let mut session = model.session(device, options).expect("loads");
            for n in TOKENS {
                let found = session.embed(ids_for(form, n), pooling).expect("embeds");
                let expected = &recorded(&format!("{form}.{n}.vector"))[0];
                let off = 1.0 - cosine(expected, &found);
                println!("{}, {n} tokens: 1 - cosine {off:.1e}", path.display());
                assert!(found.len() == expected.len() && off < 1e-9, "{}, {n} tokens: {off:e}", path.display());
                bits.push((n, found));
            }
        }
        // of the directory and of the file
        let (one, other) = bits.split_at(TOKENS.len());
        assert!(other.is_empty() || one == other, "{form}");
    }
    let (_dir, path) = checkpoint("bert-dense");
    let model = path.to_str().expect("a path");
    refuses(&["quantize", model, "x.gguf", "f16"], &["layers behind pooling", "run the directory itself"]);
}

#[test]
fn a_tokens_state_follows_from_every_token_of_its_text() {
    let (_dir, path) = checkpoint("bert");
    let (c, h) = open(&path);
    let (one, mut other) = (ids(130), ids(130));
    other[129] = (other[129] + 1) % 262;
    let found = on_cpu((&c, &h), &[one, other]);
    assert!(found[0].iter().zip(&found[1]).all(|(a, b)| a != b), "the last token reaches all");
}

/// A GGUF file of a directory.
pub(crate) fn quantized(path: &Path, mix: &str) -> PathBuf {
    let out = path.with_file_name(format!("{mix}.gguf"));
    let done = isobit(["quantize".as_ref(), path.as_os_str(), out.as_os_str(), mix.as_ref()]).output().expect("starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

#[test]
fn every_form_of_a_model_gives_the_same_bits() {
    let texts = [ids(65), ids(9)];
    let forms = [
        ("bert", "bert-prefixed"),
        ("nomic", "nomic-original"),
        ("xlm-roberta", "xlm-roberta-prefixed"),
        ("xlm-roberta", "roberta"),
        ("bert", "bert-dense"),
        ("gemma", "gemma"),
        ("modern", "modern-masked"),
        ("modern-silu", "modern-silu"),
    ];
    for (form, other) in forms {
        let (_dir, path) = checkpoint(form);
        let (c, h) = open(&path);
        let expected = bits(&on_cpu((&c, &h), &texts));
        let (_other, there) = checkpoint(other);
        let files = [quantized(&path, "f32"), there.clone()];
        // whose layer behind pooling has a bias
        let other = if other == "bert-dense" { None } else { Some(quantized(&there, "f32")) };
        for path in files.into_iter().chain(other) {
            let (c, found) = open(&path);
            assert_eq!((found.context, found.rope_base), (h.context, h.rope_base), "{}", path.display());
            assert_eq!((found.window, &found.window_layers), (h.window, &h.window_layers), "{}", path.display());
            let pooling = if ["nomic", "gemma"].contains(&form) { Pooling::Mean } else { Pooling::Cls };
            assert_eq!(Pooling::of(&c, &found).expect("known"), Some(pooling), "{}", path.display());
            assert!(bits(&on_cpu((&c, &found), &texts)) == expected, "{}", path.display());
        }
    }
}

#[test]
fn every_device_level_page_and_fusion_gives_the_same_bits() {
    let texts = TOKENS.map(ids);
    let forms = ["bert", "nomic", "gemma", "modern"].into_iter().flat_map(|form| [(form, "f32"), (form, "q8_0")]);
    for (form, mix) in forms {
        let (_dir, path) = checkpoint(form);
        let (c, h) = open(&quantized(&path, mix));
        let cache = if mix == "f32" { CacheType::F32 } else { CacheType::F16 };
        let run = |device: &mut dyn Device, how, page| {
            let name = device.info().name;
            bits(
                &states(device, (&c, &h), how, page, &texts)
                    .unwrap_or_else(|e| panic!("{form} {mix} on {name}: {e:#}")),
            )
        };
        let expected = run(&mut cpu(None, 1), options(cache), usize::MAX);
        let plain = SessionOptions { fuse: Fuse::Off, ..options(cache) };
        for level in levels() {
            for (how, page) in [(options(cache), usize::MAX), (plain, usize::MAX), (options(cache), 64)] {
                let found = run(&mut cpu(Some(level), 2), how, page);
                assert!(found == expected, "{form} {mix} at {}, pages of {page}", level.name());
            }
        }
        for mut device in boxed_gpus(None) {
            let name = device.info().name;
            for page in [usize::MAX, 64] {
                assert!(
                    run(device.as_mut(), options(cache), page) == expected,
                    "{form} {mix} on {name}, pages of {page}"
                );
            }
        }
    }
}

#[test]
fn many_texts_in_a_step_have_the_bits_that_each_has_alone() {
    let texts: Vec<Vec<u32>> = [63, 1, 64, 65, 3, 130, 17].into_iter().map(ids).collect();
    for form in ["bert", "nomic", "gemma", "modern"] {
        let (_dir, path) = checkpoint(form);
        let (c, h) = open(&path);
        let expected = bits(&on_cpu((&c, &h), &texts));
        let how = options(CacheType::F32);
        let plan = PlanOptions { sequences: 7, pool: Some(1024), ubatch: 512, ..how.plan };
        let how = SessionOptions { plan, ..how };
        let devices = std::iter::once(Box::new(cpu(None, 2)) as Box<dyn Device>)
            .chain(levels().into_iter().map(|l| Box::new(cpu(Some(l), 2)) as Box<dyn Device>));
        for mut device in devices.chain(boxed_gpus(None)) {
            let name = device.info().name;
            let found = block_on(async {
                let mut s = Session::paged(device.as_mut(), &c, &h, how, 256, |_| {}).await?;
                let mut pool = Pool::new(s.built());
                let mut all = Vec::new();
                // in this order, and in another, over chunks that lie elsewhere
                for order in [[0, 1, 2, 3, 4, 5, 6], [5, 3, 6, 0, 2, 4, 1]] {
                    let mut held = Vec::new();
                    for &i in &order {
                        let mut sequence = pool.begin(&texts[i][..1]);
                        pool.reserve(&mut sequence, texts[i].len()).expect("there is room");
                        held.push(sequence);
                    }
                    let parts: Vec<Part> = order
                        .iter()
                        .zip(&held)
                        .map(|(&i, sequence)| Part { sequence, ids: &texts[i], rows: texts[i].len() })
                        .collect();
                    let mut rows = vec![Vec::new(); texts.len()];
                    s.step(&parts, |part, _, row| {
                        rows[order[part]].push(row.to_vec());
                        Ok(())
                    })
                    .await?;
                    all.push(rows);
                    // not in the order in which they were taken
                    held.into_iter().rev().for_each(|sequence| pool.end(sequence));
                }
                anyhow::Ok(all)
            });
            for rows in found.unwrap_or_else(|e: anyhow::Error| panic!("{name}: {e:#}")) {
                assert!(bits(&rows) == expected, "{form} on {name}");
            }
        }
    }
}

#[test]
fn an_engines_vectors_are_those_of_a_session_however_many_there_are() {
    let (_dir, path) = checkpoint("bert");
    let model = Model::open(&path).expect("opens");
    let hidden = isobit::SessionOptions { head: Head::Hidden, ..isobit::SessionOptions::default() };
    let texts: Vec<Vec<u32>> = (1..40).map(|i| ids(i * 4)).collect();
    let all = || texts.iter().flat_map(|t| [Pooling::Mean, Pooling::Cls, Pooling::Last].map(|p| (t.clone(), p)));
    let device = Devices::default().open("cpu").expect("opens");
    let mut session = model.session(device, hidden).expect("loads");
    let expected: Vec<Vec<f32>> = all().map(|(t, p)| session.embed(t, p).expect("embeds")).collect();
    assert!(expected.windows(2).all(|w| w[0] != w[1]));
    for (sequences, pool, ubatch) in [(1, 0, 512), (6, 0, 512), (4, 320, 192)] {
        let options = EngineOptions {
            device: "cpu".into(),
            session: isobit::SessionOptions { sequences, pool, ubatch, ..hidden },
            queue: 200,
            ..EngineOptions::default()
        };
        let engine = Engine::start(&model, options).expect("starts");
        let asked: Vec<_> = all().map(|(t, p)| engine.embed(t, p).expect("queued")).collect();
        for (i, (reply, expected)) in asked.into_iter().zip(&expected).enumerate() {
            let found = reply.wait().unwrap_or_else(|e| panic!("vector {i}: {e}"));
            assert!(found == *expected, "vector {i} of {sequences} at once");
        }
        let e = engine.embed(vec![1; 193], Pooling::Mean).and_then(isobit::Embedding::wait).unwrap_err().to_string();
        assert!(e.contains("193 tokens") && e.contains("192"), "{e}");
        let e = engine.generate("once").and_then(isobit::Reply::wait).unwrap_err().to_string();
        assert!(e.contains("hidden states"), "{e}");
    }
}

#[test]
fn a_directory_and_its_file_have_the_same_ids() {
    let (_dir, path) = checkpoint("bert");
    let file = quantized(&path, "f16");
    let of = |path: &Path| Tokenizer::read(&open(path).0).unwrap_or_else(|e| panic!("{e:#}"));
    let (a, b) = (of(&path), of(&file));
    for text in [
        "Once upon a time!",
        "",
        "THE KING's caf\u{e9} \u{4e2d}\u{6587} na\u{ef}ve\u{301}",
        "[MASK] and [SEP]",
        "unknown\u{1f600} w\u{f6}rter\tand\nlines",
        &"a".repeat(120),
    ] {
        for special in [false, true] {
            let ids = a.encode(text, a.adds_bos(), special).expect("encodes");
            assert_eq!(ids, b.encode(text, b.adds_bos(), special).expect("encodes"), "{text:?}");
            assert!(ids.len() >= 2 && ids[0] == 2 && ids[ids.len() - 1] == 3, "{text:?}: {ids:?}");
        }
    }
    let ids = a.encode("The King's sons", a.adds_bos(), false).expect("encodes");
    let texts: Vec<String> = ids.iter().map(|id| a.token_text(*id).expect("a token")).collect();
    assert_eq!(texts, ["[CLS]", "the", "king", "'", "s", "sons", "[SEP]"]);
    assert_eq!(a.decode(&ids), "the king ' s sons");
}

#[test]
fn a_vocabulary_with_case_keeps_it_in_a_file() {
    let (_dir, path) = checkpoint("bert");
    let file = path.join("tokenizer.json");
    let whole = std::fs::read_to_string(&file).expect("read");
    let mut tokenizer: serde_json::Value = serde_json::from_str(&whole).expect("JSON");
    let mut found = Vec::new();
    for (lowercase, strips) in [(true, None), (false, None), (false, Some(true)), (true, Some(false))] {
        tokenizer["normalizer"]["lowercase"] = lowercase.into();
        tokenizer["normalizer"]["strip_accents"] = strips.into();
        std::fs::write(&file, tokenizer.to_string()).expect("written");
        let gguf = quantized(&path, "f16");
        let of = |path: &Path| {
            let t = Tokenizer::read(&open(path).0).unwrap_or_else(|e| panic!("{e:#}"));
            t.encode("the King na\u{ef}ve caf\u{e9}", true, false).expect("encodes")
        };
        assert_eq!(of(&path), of(&gguf), "{lowercase} {strips:?}");
        found.push(of(&path));
        std::fs::remove_file(gguf).expect("removed");
    }
    assert!(found[0] != found[1] && found[1] != found[2] && found[0] != found[3], "{found:?}");
}

/// What the tokenizers' own programs make of texts: `make_tokens.py`.
fn golden(tokenizer: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoders/tokens.json");
    let all: serde_json::Value = serde_json::from_slice(&std::fs::read(path).expect("is there")).expect("JSON");
    all[tokenizer].clone()
}

#[test]
fn the_tokenizers_of_roberta_give_the_ids_of_their_own_programs_from_a_directory_and_from_its_file() {
    for (form, tokenizer) in [("xlm-roberta", "unigram"), ("roberta", "bytes")] {
        let golden = golden(tokenizer);
        let list = |key: &str| golden[key].as_array().expect("a list").clone();
        let ids_of = |v: &serde_json::Value| serde_json::from_value::<Vec<u32>>(v.clone()).expect("ids");
        let (_dir, path) = checkpoint(form);
        for path in [path.clone(), quantized(&path, "f16")] {
            let t = Tokenizer::read(&open(&path).0).unwrap_or_else(|e| panic!("{e:#}"));
            let (mut equal, shown) = (0, path.display());
            assert!(t.adds_bos() && t.start() == [0], "{shown}");
            let encode = |text: &serde_json::Value, special| {
                let text = text.as_str().expect("a text");
                let ids = t.encode(text, true, special).unwrap_or_else(|e| panic!("{text:?}: {e:#}"));
                assert_eq!(t.encode_whole(text, special).expect("encodes"), ids, "{text:?}");
                ids
            };
            for (text, expected) in list("texts").iter().zip(list("transformers")) {
                let (found, expected) = (encode(text, false), ids_of(&expected));
                // a text of no tokens is its ends
                assert_eq!(found, expected, "{shown}: {text}");
                equal += found.len();
            }
            assert!(equal > 200, "{equal} ids");
            for ((text, parsed), plain) in list("special").iter().zip(list("parsed")).zip(list("plain")) {
                // `<s>` is not put before a text that has it
                let parsed = ids_of(&parsed);
                let parsed = if parsed.starts_with(&[0, 0]) { &parsed[1..] } else { &parsed };
                assert_eq!(encode(text, true), parsed, "{shown}: {text}");
                assert_eq!(encode(text, false), ids_of(&plain), "{shown}: {text}, as text");
            }
            // sentencepiece's own take U+2581 for a space that is there already
            if tokenizer == "unigram" {
                for (text, own) in list("texts").iter().zip(list("sentencepiece")) {
                    let differs = text.as_str().is_some_and(|t| t.starts_with('\u{2581}'));
                    assert_eq!(encode(text, false) == ids_of(&own), !differs, "{shown}: {text}");
                }
            }
            let text = "Once upon a time, \u{fc}ber 12";
            assert_eq!(t.decode(&t.encode(text, true, false).expect("encodes")), text, "{shown}");
        }
    }
}

/// Its vocabulary is the one of `bytes.json` with other names of the special tokens: a file has the ids that RoBERTa's has, and a
/// directory too but of text that NFC changes.
#[test]
fn the_tokenizer_of_modern_bert_gives_the_ids_of_its_merges_from_a_directory_and_from_its_file() {
    let golden = golden("bytes");
    let (_dir, path) = checkpoint("modern");
    let file = quantized(&path, "f16");
    let pre = open(&file).0.meta.typed::<&str>("tokenizer.ggml.pre").expect("text").map(String::from);
    assert_eq!(pre.as_deref(), Some("modern-bert"));
    let [there, here] = [&path, &file].map(|path| Tokenizer::read(&open(path).0).unwrap_or_else(|e| panic!("{e:#}")));
    let (texts, ids) =
        (golden["texts"].as_array().expect("a list"), golden["transformers"].as_array().expect("a list"));
    let mut changed = 0;
    for (text, expected) in texts.iter().zip(ids) {
        let expected: Vec<u32> = serde_json::from_value(expected.clone()).expect("ids");
        let text = text.as_str().expect("a text");
        let [a, b] = [&there, &here].map(|t| t.encode(text, true, false).unwrap_or_else(|e| panic!("{text:?}: {e:#}")));
        assert_eq!(here.encode_whole(text, false).expect("encodes"), b, "{text:?}");
        assert_eq!(b, expected, "of the file: {text:?}");
        assert_eq!(a == expected, !text.contains('\u{301}'), "of the directory: {text:?}: {a:?}");
        changed += usize::from(a != b);
    }
    assert!(changed > 0, "some text is not in NFC");
    for t in [there, here] {
        assert_eq!(t.encode("[CLS] a [MASK]", true, true).expect("encodes").last(), Some(&2));
        assert_eq!(t.token_text(400).as_deref(), Some("[MASK]"));
    }
}

/// A post-processor that puts a control token behind every text, as Qwen3-Embedding's does.
fn with_end(tokenizer: &mut serde_json::Value, text: &str, id: u32) {
    tokenizer["post_processor"] = serde_json::json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": text, "type_id": 0}}], "pair": [],
            "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]}}}]});
}

#[test]
fn the_token_behind_texts_is_that_of_the_directory_whatever_its_files_say_of_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model");
    let args = ["synth", "--out", path.to_str().expect("UTF-8"), "--preset", "qwen3-tiny", "--format", "hf"];
    checkpoint::synth::generate(&args).unwrap_or_else(|e| panic!("{e:#}"));
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path.join(name)).expect("read")).expect("JSON")
    };
    let plain = Model::open(&path).expect("opens");
    let known = plain.tokenizer().expect("there is one");
    let eos = *known.eos().first().expect("an end");
    let other = (0..known.vocab_size() as u32).find(|id| known.piece(*id).is_empty() && !known.eos().contains(id));
    let (tokenizer, config) = (read("tokenizer.json"), read("tokenizer_config.json"));
    let mut seen = Vec::new();
    for end in [None, other, Some(eos)] {
        for flag in [None, Some(false), Some(true)] {
            let (mut tokenizer, mut config) = (tokenizer.clone(), config.clone());
            if let Some(id) = end {
                with_end(&mut tokenizer, &known.token_text(id).expect("a text"), id);
            }
            if let Some(flag) = flag {
                config["add_eos_token"] = flag.into();
            }
            std::fs::write(path.join("tokenizer.json"), tokenizer.to_string()).expect("written");
            std::fs::write(path.join("tokenizer_config.json"), config.to_string()).expect("written");
            let [there, here] = [path.clone(), quantized(&path, "f16")].map(|path| {
                let m = Model::open(&path).unwrap_or_else(|e| panic!("{e}"));
                m.tokenizer().expect("there is one").encode_whole("Once", false).expect("encodes")
            });
            assert_eq!(there, here, "behind texts {end:?}, add_eos_token {flag:?}");
            seen.push((end, flag, there.last().copied()));
        }
    }
    // what is put there goes before what is said
    let ends = |(end, flag, last): &(Option<u32>, Option<bool>, Option<u32>)| match end {
        Some(id) => *last == Some(*id),
        None => (*last == Some(eos)) == (*flag == Some(true)),
    };
    assert!(seen.iter().all(ends), "{seen:?}");
}

/// A Qwen3 as released for vectors: of its last token, which is not the one that ends a turn.
#[test]
fn a_model_that_generates_makes_vectors_as_its_files_say() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("model");
    let args = ["synth", "--out", path.to_str().expect("UTF-8"), "--preset", "qwen3-tiny", "--format", "hf"];
    checkpoint::synth::generate(&args).unwrap_or_else(|e| panic!("{e:#}"));
    let plain = Model::open(&path).expect("opens");
    assert_eq!(plain.pooling().expect("known"), Pooling::Mean);
    let file = path.join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("read")).expect("JSON");
    // not the one that ends a turn
    let known = plain.tokenizer().expect("there is one");
    let eos = (0..known.vocab_size() as u32).find(|id| known.piece(*id).is_empty() && !known.eos().contains(id));
    let eos = eos.expect("another control token");
    let end = known.token_text(eos).expect("a text");
    with_end(&mut tokenizer, &end, eos);
    std::fs::write(&file, serde_json::to_vec(&tokenizer).expect("JSON")).expect("written");
    let write = |name: &str, v: serde_json::Value| {
        std::fs::create_dir_all(path.join(name).parent().expect("has one")).expect("made");
        std::fs::write(path.join(name), v.to_string()).expect("written");
    };
    write(
        "1_Pooling/config.json",
        serde_json::json!({"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": false}),
    );
    let kind = |name: &str| serde_json::json!({"type": format!("sentence_transformers.models.{name}")});
    write("modules.json", serde_json::json!([kind("Transformer"), kind("Pooling"), kind("Normalize")]));
    let converted = quantized(&path, "f32");
    let text = "Once upon a time";
    let vectors = [&path, &converted].map(|path| {
        let shown = path.display();
        let m = Model::open(path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(m.pooling().expect("known"), Pooling::Last, "{shown}");
        let t = m.tokenizer().expect("there is one");
        let (whole, prompt) = (t.encode_whole(text, false).expect("encodes"), t.encode(text, t.adds_bos(), false));
        // a prompt goes on
        assert_eq!(whole, [prompt.expect("encodes"), vec![eos]].concat(), "{shown}");
        let device = Devices::default().open("cpu").expect("opens");
        let options = isobit::SessionOptions { head: Head::Hidden, ..isobit::SessionOptions::default() };
        let mut session = m.session(device, options).expect("loads");
        let vector = session.embed(text, Pooling::Last).expect("embeds");
        assert_eq!(vector, session.embed(whole, Pooling::Last).expect("embeds"), "{shown}");
        let args = ["embed".as_ref(), "-m".as_ref(), path.as_os_str(), "-p".as_ref(), text.as_ref()];
        let done = isobit(args).args(["--device", "cpu"]).output().expect("starts");
        let printed = String::from_utf8_lossy(&done.stdout).into_owned();
        let printed: Vec<f32> = printed.split_whitespace().map(|x| x.parse().expect("a number")).collect();
        assert_eq!(printed, vector, "{shown}");
        let done = isobit(["inspect".as_ref(), path.as_os_str()]).output().expect("starts");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.contains("vectors of texts; pooling: last"), "{shown}: {said}");
        vector
    });
    assert_eq!(vectors[0], vectors[1]);
    // what comes behind pooling is not left out in silence, and does not keep it from generating
    write("modules.json", serde_json::json!([kind("Transformer"), kind("Pooling"), kind("Dense")]));
    let model = path.to_str().expect("a path");
    refuses(&["embed", "-m", model, "-p", "a", "--device", "cpu"], &["pooling last+Dense is not supported"]);
    let done =
        isobit(["embed", "-m", model, "-p", "a", "--device", "cpu", "--pooling", "last"]).output().expect("starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done = isobit(["run", "-m", model, "-p", "a", "-n", "1", "--device", "cpu"]).output().expect("starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn verify_compares_the_states_of_texts_and_sees_a_planted_fault() {
    verifies("bert");
}

#[test]
fn verify_compares_the_states_of_texts_with_windows_on_either_side() {
    verifies("gemma");
}

fn verifies(form: &str) {
    let (_dir, path) = checkpoint(form);
    let (c, h) = open(&path);
    let script = Script { prompt: prompt(None, h.vocab, 190), generate: 0, batches: vec![0] };
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(cpu(None, 1)), Box::new(cpu(Some(Level::detect()), 2))];
    let how = options(CacheType::F16);
    let report =
        block_on(verify_paged(&mut devices, &c, &h, how, 128, &script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
    assert!(report.ok() && report.words > 100_000 && report.covered.pages == 2, "{report:?}");
    let lengths: Vec<usize> = report.covered.steps.keys().copied().collect();
    assert_eq!(lengths, [1, 3, 5, 24, 60, 93, 190]);
    let said = isobit(["verify".as_ref(), path.as_os_str(), "--devices".as_ref(), "cpu,cpu:scalar".as_ref()]);
    let mut said = said;
    let done = said.output().expect("starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done = said.args(["--plant-fault", "12"]).output().expect("starts");
    assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
}

/// One line on stderr, with these words.
fn refuses(args: &[&str], words: &[&str]) {
    let done = isobit(args).output().expect("starts");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{args:?}: {text}");
    assert!(text.lines().count() == 1 && text.starts_with("error: "), "{args:?}: {text}");
    assert!(words.iter().all(|w| text.contains(w)), "{args:?}: {text}");
}

#[test]
fn what_an_encoder_does_not_do_is_refused_in_one_line() {
    let (_dir, path) = checkpoint("bert");
    let model = path.to_str().expect("a path");
    let text = path.join("text.txt");
    std::fs::write(&text, "once upon a time ".repeat(200)).expect("written");
    let file = text.to_str().expect("a path");
    let generates = ["a bert model makes vectors of texts and generates none", "isobit embed"];
    for args in [
        &["run", "-m", model, "-p", "once"][..],
        &["chat", model, "-p", "once"],
        &["perplexity", "-m", model, "-f", file],
        &["imatrix", "-m", model, "-f", file, "-o", "/dev/null"],
        #[cfg(feature = "gpu")]
        &["bench", "-m", model, "--predict", "all"],
    ] {
        refuses(args, &generates);
    }
    #[cfg(feature = "server")]
    refuses(&["serve", "-m", model, "--port", "0"], &["generates none", "--embeddings"]);
    let long = "a ".repeat(300);
    refuses(&["embed", "-m", model, "-p", &long, "--device", "cpu"], &["302 tokens", "192"]);
    refuses(&["embed", "-m", model, "-p", "a", "-c", "256", "--device", "cpu"], &["256", "192 positions"]);
    refuses(&["embed", "-m", model, "-p", "a", "--kv-recent", "on", "--device", "cpu"], &["no copy of recent"]);
    let (c, h) = open(&path);
    let how = options(CacheType::F32);
    let with = |plan| SessionOptions { plan, ..how };
    let run = |how| states(&mut cpu(None, 1), (&c, &h), how, usize::MAX, &[ids(3)]).unwrap_err().to_string();
    assert!(run(with(PlanOptions { head: Head::Logits, ..how.plan })).contains("no logits"));
    assert!(run(with(PlanOptions { recent: Recent::On, ..how.plan })).contains("recent"));
    let e = states(&mut cpu(None, 1), (&c, &h), how, usize::MAX, &[ids(193)]).unwrap_err().to_string();
    assert!(e.contains("193"), "{e}");
}

#[test]
fn embed_prints_the_same_digest_on_every_device() {
    let (_dir, path) = checkpoint("nomic");
    let model = path.to_str().expect("a path");
    let texts = path.join("texts.jsonl");
    let line = |n: usize| format!("{{\"input\": \"{}\"}}\n", "once upon a time the king's sons, 3 ".repeat(n));
    std::fs::write(&texts, [1, 4, 9, 2, 12].map(line).concat()).expect("written");
    let file = texts.to_str().expect("a path");
    let vectors = |device: &str, more: &[&str]| {
        let mut c = isobit(["embed", "-m", model, file, "--json", "--device", device]);
        let done = c.args(more).output().expect("starts");
        assert!(done.status.success(), "{device}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text")
    };
    let expected = vectors("cpu:scalar", &[]);
    assert_eq!(expected.lines().count(), 5);
    let adapters = boxed_gpus(None).len();
    for device in std::iter::once("cpu".to_string()).chain((0..adapters).map(|i| i.to_string())) {
        assert_eq!(vectors(&device, &["--parallel", "3"]), expected, "{device}");
    }
    // what the file says, and what is asked for
    assert_eq!(vectors("cpu", &["--pooling", "mean"]), expected);
    assert_ne!(vectors("cpu", &["--pooling", "cls"]), expected);
}

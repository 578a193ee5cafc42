//! BUMP files: to the byte those of C-Kernel-Engine's converters, read back as they were, and refused where they are
//! damaged. Where the samples come from: `tests/data/bump/README.md`.

use super::readers::{ALLOWANCE, Random, mutate, peak_of};
use isobit::internals::formats::bump::write::{self, Job, Lose, Options};
use isobit::internals::formats::bump::{Beside, Codes, Version, beside_name};
use isobit::internals::formats::gguf_write::{self, Entry};
use isobit::internals::formats::meta::{Meta, Value};
use isobit::internals::formats::output::Staged;
use isobit::internals::formats::{Container, ContainerKind, Dtype, LoadMode};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const LLAMA: &str = "gguf/tiny-llama-kquant-v3.gguf";
const QWEN: &str = "gguf/tiny-qwen2-q40-q80-v3.gguf";

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn bytes(path: &str) -> Vec<u8> {
    std::fs::read(data(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn open(path: &str) -> Container {
    Container::open(&data(path), LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// A file and those beside it, written by ours.
struct Written {
    file: Vec<u8>,
    side: Vec<(&'static str, Vec<u8>)>,
}

impl Written {
    fn side(&self, name: &str) -> Option<&[u8]> {
        self.side.iter().find(|(n, _)| *n == name).map(|(_, b)| b.as_slice())
    }

    fn json(&self, name: &str) -> Option<(String, Json)> {
        self.side(name).map(|b| (name.to_string(), serde_json::from_slice(b).unwrap()))
    }

    fn beside(&self) -> Beside {
        Beside { config: self.json("config.json"), manifest: self.json("manifest.json"), metadata: None }
    }

    fn read(&self) -> Container {
        from(self.file.clone(), &self.beside()).unwrap()
    }
}

fn from(file: Vec<u8>, beside: &Beside) -> Result<Container, String> {
    Container::from_bump_bytes("m.bump", Cow::Owned(file), beside).map_err(|e| e.to_string())
}

fn write(c: &Container, o: &Options) -> Written {
    let job: Job = write::plan(c, o).unwrap_or_else(|e| panic!("{e}"));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("m.bump");
    let (staged, _) = Staged::begin(&out, &job.layout(c, false, ""), false).unwrap();
    assert!(job.write(c, &staged, "", |_| true).unwrap());
    staged.commit().unwrap();
    Written { file: std::fs::read(&out).unwrap(), side: job.side }
}

fn refused(c: &Container, o: &Options) -> String {
    write::plan(c, o).map(|_| ()).expect_err("cannot be written").to_string()
}

fn v3() -> Written {
    write(&open(LLAMA), &Options::new(Version::V3))
}

fn v4() -> Written {
    write(&open(LLAMA), &Options::new(Version::V4))
}

/// The sample of version 5, with what lies beside it.
fn v5() -> Written {
    let side = |name: &str| bytes(&format!("bump/tiny-qwen2-q40-q80.v5.{name}"));
    let side = vec![("config.json", side("config.json")), ("manifest.json", side("manifest.json"))];
    Written { file: bytes("bump/tiny-qwen2-q40-q80.v5.bump"), side }
}

/// A container of made-up blocks: a llama or qwen3 of two layers whose matrices are of these types in turn.
fn made(arch: &str, types: &[&str], untied: bool) -> Container {
    let (embed, heads, kv, ffn, vocab, layers) = (256u64, 4u64, 2u64, 512u64, 24u64, 2u64);
    let mut entries = Vec::new();
    let mut next = 0;
    let mut matrix = |name: String, shape: [u64; 2]| {
        let dtype = Dtype::from_name(types[next % types.len()]).unwrap();
        next += usize::from(!name.contains("ffn_gate"));
        entries.push(Entry { name, dtype, shape: shape.to_vec() });
    };
    matrix("token_embd.weight".into(), [embed, vocab]);
    if untied {
        matrix("output.weight".into(), [embed, vocab]);
    }
    for l in 0..layers {
        let kv_rows = embed / heads * kv;
        for (name, shape) in [
            ("attn_q", [embed, embed]),
            ("attn_k", [embed, kv_rows]),
            ("attn_v", [embed, kv_rows]),
            ("attn_output", [embed, embed]),
            ("ffn_gate", [embed, ffn]),
            ("ffn_up", [embed, ffn]),
            ("ffn_down", [ffn, embed]),
        ] {
            matrix(format!("blk.{l}.{name}.weight"), shape);
        }
    }
    let mut vector = |name: String, len: u64| entries.push(Entry { name, dtype: Dtype::F32, shape: vec![len] });
    vector("output_norm.weight".into(), embed);
    for l in 0..layers {
        vector(format!("blk.{l}.attn_norm.weight"), embed);
        vector(format!("blk.{l}.ffn_norm.weight"), embed);
        if arch == "qwen3" {
            vector(format!("blk.{l}.attn_q_norm.weight"), embed / heads);
            vector(format!("blk.{l}.attn_k_norm.weight"), embed / heads);
        }
    }
    let mut meta = vec![("general.architecture".to_string(), Value::Str(arch.into()))];
    for (key, v) in [
        ("context_length", 32),
        ("embedding_length", embed),
        ("block_count", layers),
        ("feed_forward_length", ffn),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv),
    ] {
        meta.push((format!("{arch}.{key}"), Value::U32(v as u32)));
    }
    meta.push((format!("{arch}.attention.layer_norm_rms_epsilon"), Value::F32(1e-6)));
    let head = gguf_write::head("made", &Meta { entries: meta }, &entries).unwrap();
    let mut file = head.bytes.clone();
    file.resize(head.file_len as usize, 0);
    let mut random = Random(0xb0b);
    for (offset, size) in head.offsets.iter().zip(&head.sizes) {
        for b in &mut file[*offset as usize..(offset + size) as usize] {
            *b = random.next() as u8;
        }
    }
    Container::from_bytes("made", Cow::Owned(file)).unwrap()
}

/// Every tensor of `new` has type, shape and bytes of the one of that name in `old`, and none is missing.
fn same_tensors(old: &Container, new: &Container) {
    let mut names = [old, new].map(|c| c.tensors.iter().map(|t| t.name.clone()).collect::<Vec<_>>());
    names.iter_mut().for_each(|n| n.sort());
    assert_eq!(names[0], names[1]);
    for t in &new.tensors {
        let o = old.tensor(&t.name).unwrap();
        assert_eq!((t.dtype, &t.shape, t.bytes), (o.dtype, &o.shape, o.bytes), "{}", t.name);
        let [mut a, mut b] = [vec![0u8; t.bytes as usize], vec![0u8; t.bytes as usize]];
        old.read(o, 0, &mut a).unwrap();
        // in two reads that meet inside a row
        let cut = b.len() / 3;
        new.read(t, 0, &mut b[..cut]).unwrap();
        new.read(t, cut as u64, &mut b[cut..]).unwrap();
        assert!(a == b, "{} is another", t.name);
        assert!(new.read(t, t.bytes, &mut [0]).is_err());
    }
}

#[test]
fn version_3_is_written_to_the_byte_with_either_table_of_codes() {
    let first = v3();
    assert_eq!(hash(&first.file), "befdd0756ad348b7b47c874b99c5eb9fc9876988f1094972e9b60b869d901a1a");
    assert_eq!(first.side("config.json").unwrap(), bytes("bump/tiny-llama-kquant.config.json"));
    assert_eq!(first.side("manifest.json"), None);
    let later = write(&open(LLAMA), &Options { codes: Codes::Later, ..Options::new(Version::V3) });
    assert_eq!(later.file[..256], bytes("bump/tiny-llama-kquant.v3-later-codes.head256.bin"));
    assert_eq!(hash(&later.file), "035be2e6c570d6e3091e20fe4ebd0a899f61d349cf5a59ec1765beba2cf66d78");
}

#[test]
fn version_4_is_written_to_the_byte_with_its_manifest() {
    let w = v4();
    assert_eq!(w.file[..256], bytes("bump/tiny-llama-kquant.v4.head256.bin"));
    assert_eq!(hash(&w.file), "d1e327a18b3a8df694d7f6eff8b922df9bbfd94d6057e0ab4cb60765e43e3114");
    let manifest = String::from_utf8(bytes("bump/tiny-llama-kquant.v4.manifest.json")).unwrap();
    assert_eq!(String::from_utf8_lossy(w.side("manifest.json").unwrap()).trim_end(), manifest.trim_end());
}

#[test]
fn version_5_is_written_to_the_byte_with_metadata_manifest_and_config() {
    let created = ("test vector".to_string(), Some("2026-01-01T00:00:00Z".to_string()));
    let w = write(&open(QWEN), &Options { created, special: false, ..Options::new(Version::V5) });
    let sample = v5();
    assert_eq!(w.json("manifest.json"), sample.json("manifest.json"));
    assert_eq!(w.json("config.json"), sample.json("config.json"));
    let differs = w.file.iter().zip(&sample.file).position(|(a, b)| a != b);
    assert_eq!((differs, w.file.len()), (None, sample.file.len()));
}

#[test]
fn every_version_is_read_back_as_the_file_it_came_from() {
    for (path, versions) in [(LLAMA, &[Version::V3, Version::V4, Version::V5][..]), (QWEN, &[Version::V4, Version::V5])]
    {
        let c = open(path);
        for &version in versions {
            let new = write(&c, &Options::new(version)).read();
            assert_eq!((new.kind, new.version), (ContainerKind::Bump, version.number()));
            same_tensors(&c, &new);
            let arch = c.meta.str("general.architecture").unwrap();
            assert_eq!(new.meta.str("general.architecture"), Some(arch));
            for (key, v) in c.meta.entries.iter().filter(|(k, _)| k.starts_with(&format!("{arch}."))) {
                assert_eq!(new.meta.get(key), Some(v), "{key}");
            }
        }
    }
    let later = Options { codes: Codes::Later, ..Options::new(Version::V3) };
    same_tensors(&open(LLAMA), &write(&open(LLAMA), &later).read());
    same_tensors(&open(QWEN), &v5().read());
}

#[test]
fn the_vocabulary_of_version_5_is_the_gguf_files() {
    let (c, new) = (open(QWEN), write(&open(QWEN), &Options::new(Version::V5)).read());
    let of = |c: &Container| -> Vec<(String, Value)> {
        let mut list: Vec<_> =
            c.meta.entries.iter().filter(|(k, _)| k.starts_with("tokenizer.ggml.")).cloned().collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    };
    assert_eq!(of(&new), of(&c));
    // the sample's manifest does not say which tokens are special
    let sample = v5().read();
    for key in ["model", "tokens", "token_type", "merges"] {
        let key = format!("tokenizer.ggml.{key}");
        assert_eq!(sample.meta.get(&key), c.meta.get(&key), "{key}");
    }
}

#[test]
fn a_version_3_file_whose_only_code_is_7_is_told_by_its_length() {
    for (ty, codes) in [("Q6_K", Codes::First), ("Q4_K", Codes::Later)] {
        let c = made("llama", &[ty], false);
        let w = write(&c, &Options { codes, ..Options::new(Version::V3) });
        assert!(!w.file[132..132 + 32].iter().any(|code| [6, 8].contains(code)) && w.file[132] == 7);
        same_tensors(&c, &w.read());
    }
    let floats = made("llama", &["F32"], false);
    same_tensors(&floats, &write(&floats, &Options::new(Version::V3)).read());
}

#[test]
fn version_5_holds_an_output_matrix_norms_of_heads_and_every_type() {
    let types = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F32"];
    for (arch, untied) in [("llama", true), ("qwen3", true), ("qwen3", false)] {
        let c = made(arch, &types, untied);
        same_tensors(&c, &write(&c, &Options::new(Version::V5)).read());
    }
}

#[test]
fn what_a_version_cannot_hold_is_refused_by_name_or_left_out_when_asked_for() {
    let untied = made("llama", &["Q4_K"], true);
    for version in [Version::V3, Version::V4] {
        let error = refused(&untied, &Options::new(version));
        assert!(error.contains("output matrix") && error.contains("--lose output"), "{error}");
        let lose = Lose { output: true, biases: false };
        let w = write(&untied, &Options { lose, ..Options::new(version) });
        assert!(w.read().tensor("output.weight").is_none());
    }
    let error = refused(&open(QWEN), &Options::new(Version::V3));
    assert!(error.contains("type Q8_0 in BUMP version 3"), "{error}");
    let error = refused(&made("qwen3", &["Q4_K"], false), &Options::new(Version::V4));
    assert!(error.contains("attn_q_norm.weight\" in BUMP version 4"), "{error}");
    let error = refused(&made("llama", &["Q4_K", "F16"], false), &Options::new(Version::V5));
    assert!(error.contains("of type F16 in BUMP version 5"), "{error}");
    let error = refused(&made("phi3", &["Q4_K"], false), &Options::new(Version::V5));
    assert!(error.contains("architecture \"phi3\""), "{error}");
    let error = refused(&Container::open(&data("tiny/hf"), LoadMode::Read).unwrap(), &Options::new(Version::V5));
    assert!(error.contains("isobit quantize DIR OUT.gguf copy"), "{error}");
}

/// A file of version 3 with heads of 64 rows padded to 80.
fn padded() -> (Container, Written) {
    let c = open(LLAMA);
    let plain = v3();
    let mut file = plain.file[..150].to_vec();
    file[48..56].copy_from_slice(&80u64.to_le_bytes());
    let mut at = 150;
    let list: Json = serde_json::from_slice(&bytes("bump/tiny-llama-kquant.v4.manifest.json")).unwrap();
    for e in list["entries"].as_array().unwrap() {
        let (name, size) = (e["name"].as_str().unwrap(), e["size"].as_u64().unwrap() as usize);
        let heads = match name.rsplit('.').next().unwrap() {
            "wq" | "bq" => 4,
            "wk" | "bk" | "wv" | "bv" => 2,
            _ => 1,
        };
        for head in plain.file[at..at + size].chunks(size / heads) {
            file.extend(head);
            let padding = if heads > 1 { head.len() / 64 * 16 } else { 0 };
            file.resize(file.len() + padding, 0);
        }
        at += size;
    }
    assert_eq!(at, plain.file.len());
    reseal(&mut file);
    (c, Written { file, side: plain.side })
}

#[test]
fn rows_that_pad_heads_are_left_out() {
    let (c, w) = padded();
    assert!(w.file.len() > v3().file.len());
    same_tensors(&c, &w.read());
}

/// Makes header and tail true again after a change: the checksum, and of version 5 the hash of the metadata.
fn reseal(file: &mut [u8]) {
    if file.len() < 256 {
        return;
    }
    let (at, from, mut end) = match file[7] {
        b'3' => (64, 128, file.len()),
        b'4' => (80, 128, file.len()),
        _ => (88, 152, file.len()),
    };
    if file[7] == b'5' {
        let footer = file.len() - 48;
        let size = u64::from_le_bytes(file[footer + 8..footer + 16].try_into().unwrap());
        let Some(start) = usize::try_from(size).ok().and_then(|n| footer.checked_sub(n)) else { return };
        let hash = Sha256::digest(&file[start..footer]);
        file[footer + 16..].copy_from_slice(&hash);
        end = start.max(from);
    }
    let hash = Sha256::digest(&file[from..end]);
    file[at..at + 32].copy_from_slice(&hash);
}

/// A change of a file and of the JSON beside it.
type Change = fn(&mut Vec<u8>, &mut Beside);

fn set(beside: &mut Beside, key: &str, v: Json) {
    let (_, config) = beside.config.as_mut().unwrap();
    config.as_object_mut().unwrap().insert(key.into(), v);
}

fn entry(beside: &mut Beside, i: usize) -> &mut Json {
    &mut beside.manifest.as_mut().unwrap().1["entries"][i]
}

fn word(file: &mut [u8], at: usize, v: u32) {
    file[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

/// Bytes `at..` of the metadata's JSON become `new`, with a footer that agrees.
fn replace(file: &mut Vec<u8>, old: &str, new: &str) {
    let at = file.windows(old.len()).rposition(|w| w == old.as_bytes()).expect("it is there");
    file.splice(at..at + old.len(), new.bytes());
    let footer = file.len() - 48;
    let size = u64::from_le_bytes(file[footer + 8..footer + 16].try_into().unwrap());
    let size = size + new.len() as u64 - old.len() as u64;
    file[footer + 8..footer + 16].copy_from_slice(&size.to_le_bytes());
    reseal(file);
}

/// Version, what is done to a good file, and words of the error. `sealed` in front: with a checksum that fits.
const BAD: [(u32, &str, Change, &str); 45] = [
    (3, "empty", |f, _| f.clear(), "the file ends inside the header"),
    (3, "cut in the header", |f, _| f.truncate(100), "the file ends inside the header"),
    (3, "cut in the table", |f, _| f.truncate(140), "or the file ends inside it"),
    (3, "cut in a tensor", |f, _| f.truncate(9000), "checksum is wrong"),
    (3, "sealed cut in a tensor", |f, _| f.truncate(9000), "do not add up to the file: expected an end at byte 9000"),
    (3, "sealed byte more", |f, _| f.push(0), "do not add up to the file"),
    (3, "a bit of a block", |f, _| f[5000] ^= 4, "checksum is wrong"),
    (3, "a bit of the checksum", |f, _| f[70] ^= 1, "checksum is wrong"),
    (3, "another magic", |f, _| f[0] = b'X', "not a BUMP file"),
    (3, "version 2", |f, _| f[7] = b'2', "BUMP version \"2\" is not supported"),
    (3, "version field", |f, _| word(f, 8, 4), "magic and version disagree"),
    (3, "model type", |f, _| word(f, 12, 2), "a model type that is not known"),
    (3, "no layers", |f, _| word(f, 16, 0), "the number of layers cannot be"),
    (3, "layers", |f, _| word(f, 16, u32::MAX), "the number of layers cannot be"),
    (
        3,
        "sealed layer more",
        |f, b| (word(f, 16, 2), set(b, "num_hidden_layers", json!(2))).0,
        "its length does not follow",
    ),
    (3, "vocabulary", |f, _| word(f, 20, u32::MAX), "the vocabulary cannot be"),
    (3, "embedding", |f, _| word(f, 24, 0), "the embedding width cannot be"),
    (3, "no heads", |f, _| word(f, 32, 0), "the number of heads cannot be"),
    (3, "head dimension", |f, _| word(f, 36, u32::MAX), "the head dimension cannot be"),
    (3, "aligned embedding below", |f, _| word(f, 40, 128), "smaller than the width"),
    (3, "aligned embedding above", |f, _| word(f, 40, 272), "padded to 272 is not supported"),
    (3, "aligned head", |f, _| f[55] = 255, "aligned head dimension cannot be"),
    (3, "reserved", |f, _| f[100] = 1, "a reserved byte is in use"),
    (3, "table length", |f, _| word(f, 128, 17), "its length does not follow"),
    (3, "table length huge", |f, _| word(f, 128, u32::MAX), "4294967295 at byte 128"),
    (3, "sealed code unknown", |f, _| f[136] = 200, "unknown dtype code"),
    (3, "sealed code INT8", |f, _| f[136] = 3, "a type without blocks here"),
    (3, "sealed both tables", |f, _| f[136] = 8, "codes of both tables"),
    (3, "sealed type of a norm", |f, _| f[134] = 6, "a type only a matrix may have"),
    (3, "sealed Q4_0", |f, _| f[136] = 5, "a type version 3 does not have"),
    (3, "sealed other type", |f, _| f[136] = 0, "do not add up to the file"),
    (3, "sealed positions", |f, _| f[7000] = 1, "tensor \"pos_emb\" at byte 7000"),
    (3, "sealed bias", |f, _| f[77_600] = 1, "a value that no model of this architecture has a place for"),
    (3, "no config", |_, b| b.config = None, "config.json: missing"),
    (
        3,
        "config layers",
        |_, b| set(b, "num_hidden_layers", json!(3)),
        "num_hidden_layers: the config contradicts the file",
    ),
    (3, "config text", |_, b| set(b, "hidden_size", json!("256")), "hidden_size: wrong type"),
    (3, "config without kv", |_, b| set(b, "num_key_value_heads", Json::Null), "key-value heads is missing"),
    (3, "config kv", |_, b| set(b, "num_key_value_heads", json!(3)), "cannot share evenly"),
    (
        3,
        "config ffn",
        |_, b| set(b, "intermediate_size", json!(1u64 << 40)),
        "the feed-forward width is missing or cannot be",
    ),
    (3, "config of theirs", |_, b| set(b, "hidden_act", json!("silu")), "made from a Hugging Face directory"),
    (3, "config scaling", |_, b| set(b, "rope_scaling", json!({"type": "linear"})), "rope_scaling in the config"),
    (3, "config epsilon", |_, b| set(b, "rms_norm_eps", Json::Null), "rms_norm_eps: missing"),
    (4, "manifest offset", |_, b| entry(b, 3)["file_offset"] = json!(1), "entry 3: the manifest contradicts the file"),
    (4, "manifest type", |_, b| entry(b, 0)["dtype"] = json!("q6_k"), "entry 0: the manifest contradicts the file"),
    (4, "header ffn", |f, _| word(f, 28, 512), "the aligned feed-forward width is smaller"),
];

/// The same of version 5.
const BAD_5: [(&str, Change, &str); 18] = [
    ("cut footer", |f, _| f.truncate(f.len() - 1), "no footer"),
    ("footer magic", |f, _| *f.iter_mut().nth_back(47).unwrap() ^= 1, "no footer"),
    ("footer size", |f, _| *f.iter_mut().nth_back(33).unwrap() = 9, "the metadata do not fit the file"),
    ("footer hash", |f, _| *f.last_mut().unwrap() ^= 1, "the hash of the metadata is wrong"),
    ("metadata bit", |f, _| *f.iter_mut().nth_back(60).unwrap() ^= 1, "the hash of the metadata is wrong"),
    ("metadata no JSON", |f, _| replace(f, "{\"config\"", "[\"config\""), "not valid: expected JSON"),
    ("metadata key", |f, _| replace(f, "\"quant_summary\"", "\"quant_xummary\""), "quant_summary is missing"),
    ("schema", |f, _| replace(f, "\"schema_version\":1", "\"schema_version\":2"), "another schema_version"),
    ("template", |f, _| replace(f, "{\"name\":\"qwen2\"}", "{\"name\":\"qwen3\"}"), "not the hash of the template"),
    ("inner config", |f, _| replace(f, "\"num_layers\":2", "\"num_layers\":3"), "num_layers: the config contradicts"),
    ("config beside", |_, b| set(b, "vocab_size", json!(263)), "vocab_size: the config contradicts the file"),
    ("no manifest", |_, b| b.manifest = None, "only it says where the tensors are"),
    ("other manifest", |_, b| entry(b, 0)["size"] = json!(1), "not the manifest of this file"),
    ("merges", |f, _| word(f, 80, 3), "do not add up"),
    ("bytes of text", |f, _| word(f, 84, u32::MAX), "do not add up"),
    ("sealed text", |f, _| (f[19_052 + 2] = b'x', reseal(f)).1, "an offset out of order"),
    ("sealed merge", |f, _| (f[21_077] = 1, reseal(f)).1, "a merge that is none"),
    ("sealed offset", |f, _| (f[18_004 + 7] = 255, reseal(f)).1, "an offset out of order"),
];

#[test]
fn every_damaged_file_is_refused_in_one_line_that_says_what_is_wrong() {
    let mut messages = std::collections::BTreeMap::new();
    let mut check = |name: &str, good: &Written, change: Change, sealed: bool, words: &str| {
        let (mut file, mut beside) = (good.file.clone(), good.beside());
        change(&mut file, &mut beside);
        if sealed {
            reseal(&mut file);
        }
        let error = from(file, &beside).map(|_| ()).expect_err(name);
        assert!(error.contains(words), "{name}: {words:?} is not in: {error}");
        assert!(!error.contains('\n') && error.len() < 600, "{name}: {error}");
        messages.insert(error, name.to_string());
    };
    let (three, four, five) = (v3(), v4(), v5());
    for (version, name, change, words) in BAD {
        let good = if version == 3 { &three } else { &four };
        check(name, good, change, name.starts_with("sealed"), words);
    }
    for (name, change, words) in BAD_5 {
        check(name, &five, change, false, words);
    }
    // no two of them are told alike but where the same is wrong
    assert!(messages.len() + 6 >= BAD.len() + BAD_5.len(), "{} messages", messages.len());
}

#[test]
fn a_manifest_that_is_no_list_of_tensors_is_refused() {
    let good = v4();
    for (list, words) in [
        (json!([1]), "whole file: wrong type"),
        (json!([{"name": "token_emb"}]), "entry 0: dtype is missing"),
        (json!([{"name": "token_emb", "dtype": "q4_k", "file_offset": -1, "size": 1}]), "file_offset: wrong type"),
        (json!([]), "no such entry"),
    ] {
        let mut beside = good.beside();
        beside.manifest.as_mut().unwrap().1["entries"] = list;
        let error = from(good.file.clone(), &beside).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let mut beside = good.beside();
    let more = beside.manifest.as_mut().unwrap().1["entries"].as_array_mut().unwrap();
    more.push(more[0].clone());
    assert!(from(good.file.clone(), &beside).unwrap_err().contains("more entries than the file has tensors"));
}

#[test]
fn a_file_is_opened_by_its_magic_and_a_directory_by_the_one_file_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let w = v3();
    let file = dir.path().join("weights.bump");
    std::fs::write(&file, &w.file).unwrap();
    let error = Container::open(&file, LoadMode::Read).unwrap_err().to_string();
    assert!(error.contains("config.json: missing") && error.contains("weights.bump"), "{error}");
    std::fs::write(dir.path().join("config.json"), w.side("config.json").unwrap()).unwrap();
    std::fs::write(dir.path().join("metadata.gguf"), w.side("metadata.gguf").unwrap()).unwrap();
    for mode in [LoadMode::Read, LoadMode::Mmap] {
        let c = Container::open(dir.path(), mode).unwrap();
        assert_eq!((c.kind, c.tensors.len()), (ContainerKind::Bump, 11));
        assert_eq!(c.meta.str("general.name"), Some("tiny-llama"));
        assert_eq!(c.meta.get("tokenizer.ggml.tokens"), open(LLAMA).meta.get("tokenizer.ggml.tokens"));
    }
    // a name of its own goes before one that every model may have
    std::fs::rename(&file, dir.path().join("other.bin")).unwrap();
    let own = beside_name(&dir.path().join("other.bin"), "config.json");
    std::fs::write(&own, "{}").unwrap();
    let error = Container::open(&dir.path().join("other.bin"), LoadMode::Read).unwrap_err().to_string();
    assert!(error.contains("missing or cannot be") || error.contains("no architecture"), "{error}");
}

/// Opens a mutated file with what lies beside it, and reads whatever it holds.
fn survive(file: Vec<u8>, beside: &Beside) -> bool {
    let len = file.len() as i64;
    let (result, peak) = peak_of(|| from(file, beside));
    assert!(peak <= ALLOWANCE, "{peak} bytes for a file of {len}");
    match result {
        Ok(c) => {
            for t in &c.tensors {
                let mut out = vec![0; t.bytes as usize];
                c.read(t, 0, &mut out).unwrap();
            }
            true
        }
        Err(text) => {
            assert!(!text.contains(|c: char| c.is_control()) && text.len() < 2000, "{text}");
            false
        }
    }
}

#[test]
fn mutated_files_are_refused_or_read_within_bounds() {
    let files: Vec<(Written, usize)> = vec![(v3(), 160), (v4(), 160), (v5(), 200), (padded().1, 160)];
    let (seed, cases) = (0x1507_b0b5u64, 6000u64);
    println!("seed {seed:#x}, {cases} cases");
    let mut accepted = 0;
    for case in 0..cases {
        let mut random = Random(seed ^ case.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (good, head) = &files[(case % 4) as usize];
        let (mut file, mut beside) = (good.file.clone(), good.beside());
        // the tail of version 5 is as good a place as the head
        let from_tail = file[7] == b'5' && random.next().is_multiple_of(2);
        if from_tail {
            let at = 68_900;
            let mut tail = file.split_off(at);
            mutate(&mut tail, usize::MAX, &mut random);
            file.extend(tail);
        } else if random.next().is_multiple_of(8) {
            let text = |v: &mut Option<(String, Json)>, random: &mut Random| {
                let Some((_, json)) = v else { return };
                let mut text = json.to_string().into_bytes();
                mutate(&mut text, usize::MAX, random);
                if let Ok(changed) = serde_json::from_slice(&text) {
                    *json = changed;
                }
            };
            text(&mut beside.config, &mut random);
            text(&mut beside.manifest, &mut random);
        } else {
            mutate(&mut file, *head, &mut random);
        }
        // with a checksum that fits, what lies behind it is looked at
        if !random.next().is_multiple_of(8) {
            reseal(&mut file);
        }
        let copy = file.clone();
        match catch_unwind(AssertUnwindSafe(|| survive(file, &beside))) {
            Ok(ok) => accepted += u64::from(ok),
            Err(cause) => {
                let why = cause.downcast_ref::<String>().map(String::as_str).or(cause.downcast_ref().copied());
                let start = &copy[..copy.len().min(200)];
                panic!("case {case} of seed {seed:#x} ({} bytes): {why:?}\n{}", copy.len(), start.escape_ascii());
            }
        }
    }
    println!("{accepted} of {cases} mutated files were still valid");
    assert!(accepted > cases / 100 && accepted < cases * 3 / 4, "{accepted} were accepted");
}

//! `isobit quantize` as a user meets it, and the strict loading of what it writes.
//!
//! The reference files under `tests/data/tiny` were made with llama.cpp's own tools: converting and quantising must give
//! their tensors to the byte.

use crate::asked::{at, isobit, ok, refused, tensors};
use crate::{checkpoint, program};
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::gguf_write::{self, Entry};
use isobit::internals::formats::meta::{self, Meta};
use isobit::internals::formats::{Container, Dtype, FormatError, LoadMode, PackedFault, packed};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
const Q4_K_M: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");

fn tiny(name: &str) -> String {
    format!("{DATA}/tiny/{name}")
}

fn same_tensors(a: &str, b: &str) {
    let (a, b) = (tensors(a), tensors(b));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, t) in &a {
        assert!(*t == b[name], "{name}: {} {:?} and {} {:?}", t.0, t.1, b[name].0, b[name].1);
    }
}

fn story(model: &str) -> String {
    ok(&["run", model, "-p", "Once upon a time", "-n", "24", "--temp", "0", "-d", "cpu"])
}

// ---------------------------------------------------------------- GGUF

#[test]
fn the_types_and_mixes_give_the_tensors_of_llama_cpp_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let f16 = tiny("tiny-stories-f16.gguf");
    for (ty, reference) in [
        ("q4_k_m", Q4_K_M.to_string()),
        ("Q8_0", tiny("tiny-stories-Q8_0.gguf")),
        ("q4_0", tiny("tiny-stories-Q4_0.gguf")),
    ] {
        let out = at(dir.path(), ty);
        ok(&["quantize", &f16, &out, ty]);
        same_tensors(&out, &reference);
        let meta = |p: &str| Container::open(Path::new(p), LoadMode::Read).unwrap().meta.uint("general.file_type");
        assert_eq!(meta(&out), meta(&reference), "{ty}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing else is left in the directory");
}

#[test]
fn every_architecture_and_mix_gives_the_bytes_of_llama_cpps_quantiser() {
    // SHA-256 (16 digits) over name, type and bytes of the tensors, in the order of their names, of the files that
    // llama-quantize of llama.cpp v0.5.0 made from the same F16 file on 2026-11-21
    const MIXES: [&str; 7] = ["q4_k_m", "q5_k_m", "q6_k", "q8_0", "q4_0", "q5_0", "q5_1"];
    for (args, digests) in [
        (
            "--preset tiny",
            "8ed50e221a545bfd a599e3d60fba7826 6fa36ee98bcbe874 c75b1c5bd3594b5e 0cf116f55cb0675f \
             9f4c8a373687fea2 cabc11b2a28baf1f",
        ),
        (
            "--preset phi3-tiny --outliers",
            "336709f6cd711d9c cd6a700e2e9e2c08 1dbc6a04f78f45f7 4e3d1a422f62f382 b112130a33ebf714 \
             fe262d5f8c95eed3 bb0ed9617d8f73b7",
        ),
        (
            "--preset qwen2-tiny",
            "db4f7c39f9ccba29 a1a882f9f3bfc7c5 285da73391b22fbd 5749342069cc31fc 26f2ed325ca3d7d9 \
             fc472b7687fdf3bc d0b594ad2b6deacc",
        ),
        (
            "--preset qwen3-tiny",
            "dfe104d4ba553a99 1ff899caa5c55181 e6c72faa2e5e53ea 72efc7ca1bb84c77 ab4688dd790bf1ed \
             09c900c51ce697d9 0c0260986dfb55de",
        ),
        (
            "--preset qwen2-tiny --dim 288 --heads 9 --kv-heads 3",
            "96df39decb238879 e6f577c53c41aea2 602e7cfd4071aac2 c6b615b13d900103 57dc678becaf6157 \
             986afae5422bcbb7 5b70aae9a23ecd0b",
        ),
        (
            "--preset tiny --dim 288 --heads 9 --kv-heads 3 --ffn 416",
            "54bd80b6c07f935b 5cf081b2a536ee57 1a339804b7ff4b48 1a339804b7ff4b48 02194aeb62a387ff \
             d46580bb203ce098 7abe15eedcd8122f",
        ),
        (
            "--preset odd",
            "6ef3d4bf120cc32c 253136827e8cedae 0246304b769cd422 0246304b769cd422 1d21bb0d33cb5982 \
             22cf8b30e332dfe3 2e9fa9fa2472eede",
        ),
    ] {
        let (dir, source) = checkpoint::model(&format!("{args} --layers 9 --type f16"));
        for (mix, digest) in MIXES.iter().zip(digests.split_whitespace()) {
            let out = at(dir.path(), mix);
            ok(&["quantize", source.to_str().unwrap(), &out, mix]);
            let mut hash = Sha256::new();
            for (name, (dtype, _, bytes)) in tensors(&out) {
                hash.update(format!("{name} {dtype}\n"));
                hash.update(bytes);
            }
            assert_eq!(&format!("{:x}", hash.finalize())[..16], digest, "{args} {mix}");
        }
    }
}

#[test]
fn a_hugging_face_directory_converts_to_llama_cpps_tensors_and_tells_the_same_story() {
    let dir = tempfile::tempdir().unwrap();
    let (out, reference) = (at(dir.path(), "m.gguf"), tiny("tiny-stories-f16.gguf"));
    ok(&["quantize", &tiny("hf"), &out, "f16"]);
    same_tensors(&out, &reference);
    assert_eq!(story(&out), story(&reference));
    let tokens = |m: &str| ok(&["tokenize", "-m", m, "-p", "The king's 42 horses\n  ran."]);
    assert_eq!(tokens(&out), tokens(&reference));
}

#[test]
fn every_type_runs_and_a_copy_is_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let f16 = tiny("tiny-stories-f16.gguf");
    for ty in ["f32", "bf16", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "q5_k_m"] {
        let out = at(dir.path(), ty);
        ok(&["quantize", &f16, &out, ty, "1"]);
        assert!(story(&out).starts_with("Once upon a time"), "{ty}");
    }
    let out = at(dir.path(), "copy");
    ok(&["quantize", Q4_K_M, &out, "COPY"]);
    same_tensors(&out, Q4_K_M);
    assert_eq!(story(&out), story(Q4_K_M));
}

#[test]
fn rows_that_no_k_quant_fits_get_the_types_of_llama_cpp_and_the_list_says_so() {
    let (dir, source) = checkpoint::model("--preset qwen2-tiny --layers 9 --dim 288 --heads 9 --kv-heads 3 --type f16");
    // the first layer is one that the mixes raise, and the embedding is the output matrix
    let names = ["blk.1.attn_q", "blk.1.attn_v", "blk.0.attn_v", "blk.1.ffn_down", "blk.0.ffn_down", "token_embd"];
    for (ty, want) in [
        ("q4_k_m", ["Q5_0", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "Q8_0"]),
        ("q5_k_m", ["Q5_1", "Q5_1", "Q8_0", "Q5_K", "Q6_K", "Q8_0"]),
        ("q6_k", ["Q8_0", "Q8_0", "Q8_0", "Q6_K", "Q6_K", "Q8_0"]),
        ("q5_0", ["Q5_0", "Q5_0", "Q5_0", "Q5_0", "Q5_0", "Q8_0"]),
        ("q5_1", ["Q5_1", "Q5_1", "Q5_1", "Q5_1", "Q5_1", "Q8_0"]),
    ] {
        let out = at(dir.path(), ty);
        let args = ["quantize", source.to_str().unwrap(), &out, ty];
        let told = ok(&[&args[..], &["--dry-run"]].concat());
        ok(&args);
        let made = tensors(&out);
        assert_eq!(names.map(|n| &made[&format!("{n}.weight")].0[..]), want, "{ty}");
        let line = told.lines().find(|l| l.contains("blk.1.attn_q.weight")).unwrap();
        assert_eq!(line.contains("rows of 288 are not whole"), !["q5_0", "q5_1"].contains(&ty), "{line}");
    }
}

#[test]
fn flags_choose_the_types_of_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let f16 = tiny("tiny-stories-f16.gguf");
    let make = |name: &str, flags: &[&str]| {
        let out = at(dir.path(), name);
        let mut args = vec!["quantize", &f16, &out];
        args.extend(flags);
        ok(&args);
        tensors(&out).into_iter().map(|(n, t)| (n, t.0)).collect::<BTreeMap<_, _>>()
    };
    let t = make("pure", &["q4_k_m", "--pure"]);
    assert!(t.values().all(|t| t == "Q4_K" || t == "F32"), "{t:?}");
    let t = make("emb", &["q4_k_m", "--token-embedding-type", "q8_0", "--tensor-type", "attn_v=q5_1"]);
    assert_eq!((&t["token_embd.weight"][..], &t["blk.0.attn_v.weight"][..]), ("Q8_0", "Q5_1"));
    let t = make("keep", &["q8_0", "--tensor-type", "self_attn=keep", "--tensor-type", "ffn_down=q6_k"]);
    assert_eq!((&t["blk.1.attn_q.weight"][..], &t["blk.1.ffn_down.weight"][..]), ("F16", "Q6_K"));
    let policy = at(dir.path(), "policy");
    std::fs::write(&policy, "# mine\nffn_(up|gate)  q4_0\n.*attn.* q8_0 # rest\n").unwrap();
    let t = make("file", &["q6_k", "--policy-file", &policy]);
    let types = ["blk.2.ffn_up.weight", "blk.2.attn_k.weight", "blk.2.ffn_down.weight"].map(|n| &t[n][..]);
    assert_eq!(types, ["Q4_0", "Q8_0", "Q6_K"]);
}

#[test]
fn a_dry_run_lists_every_tensor_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(&["quantize", &tiny("tiny-stories-f16.gguf"), &at(dir.path(), "x.gguf"), "q4_k_m", "--dry-run"]);
    assert_eq!(text.lines().count(), 39, "{text}");
    let line = text.lines().find(|l| l.contains("blk.0.attn_q.weight")).unwrap();
    assert!(line.contains("[256, 256], type = F16, converting to Q4_K .. size = 0.12 -> 0.04 MiB"), "{line}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_done_is_one_line_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (f16, out) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "out.gguf"));
    refused(&["quantize", Q4_K_M, &out, "q8_0"], &["already", "--allow-requantize"]);
    refused(&["quantize", &f16, &out, "q8k128"], &["Q8K128", "--to packed"]);
    refused(&["quantize", &f16, &out, "w8a16"], &["W8A16 is written as a directory", "name of a file"]);
    refused(
        &["quantize", &f16, &out, "q4_0", "--output-tensor-type", "w4a16"],
        &["token_embd.weight", "W4A16 has no place"],
    );
    refused(&["quantize", &f16, &out, "q9"], &["q9", "q4_k_m"]);
    refused(&["quantize", &f16, &out, "--to", "packed", "q4_0"], &["Q4_0", "no packed form"]);
    refused(&["quantize", &f16, &out, "--to", "packed", "--policy", "some"], &["some", "layer0-qkv"]);
    refused(&["quantize", &f16, &out, "--tensor-type", "(=q8_0"], &["--tensor-type", "pattern \"(\"", "position 1"]);
    refused(&["quantize", &f16, &out, "--policy-file", "/nonexistent"], &["/nonexistent"]);
    refused(&["quantize", "/nonexistent", &out], &["/nonexistent"]);
    refused(
        &["quantize", &f16, "/nonexistent/dir/x.gguf"],
        &["/nonexistent/dir/x.gguf", "no directory /nonexistent/dir"],
    );
    refused(&["quantize", &f16, &at(dir.path(), ""), "q8_0"], &["directory"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let copy = at(dir.path(), "copy.gguf");
    std::fs::copy(&f16, &copy).unwrap();
    refused(&["quantize", &copy, &copy, "q8_0"], &["output is the input"]);
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(&f16).unwrap());
    ok(&["quantize", Q4_K_M, &out, "q8_0", "--allow-requantize"]);
}

#[test]
fn a_planted_nan_or_infinity_is_found_in_every_type_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, out) = (at(dir.path(), "bad.gguf"), at(dir.path(), "out.gguf"));
    let f16 = tiny("tiny-stories-f16.gguf");
    let c = Container::open(Path::new(&f16), LoadMode::Read).unwrap();
    let good = std::fs::read(&f16).unwrap();
    for (i, (tensor, bits)) in
        [("blk.0.attn_q.weight", 0x7e00u16), ("token_embd.weight", 0xfc00), ("blk.3.ffn_down.weight", 0x7c01)]
            .iter()
            .enumerate()
    {
        let t = c.tensor(tensor).unwrap();
        let mut bytes = good.clone();
        let place = t.offset as usize + 2 * (1003 + 77 * i);
        bytes[place..place + 2].copy_from_slice(&bits.to_le_bytes());
        std::fs::write(&bad, &bytes).unwrap();
        for ty in ["q8_0", "q4_k", "f32", "copy", "f16"] {
            refused(&["quantize", &bad, &out, ty], &[tensor, "NaN or infinity"]);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}

/// A GGUF file of tensors of these types and shapes, all zeros, with a llama's name.
fn gguf(path: &str, tensors: &[(&str, BlockType, &[u64])]) {
    let entries: Vec<Entry> = tensors
        .iter()
        .map(|(name, ty, shape)| Entry {
            name: name.to_string(),
            dtype: Dtype::from_block(*ty).unwrap(),
            shape: shape.to_vec(),
        })
        .collect();
    let meta = Meta { entries: vec![("general.architecture".into(), meta::Value::Str("llama".into()))] };
    let head = gguf_write::head(path, &meta, &entries).unwrap();
    let mut bytes = head.bytes;
    bytes.resize(head.file_len as usize, 0);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_quantised_tensor_that_is_no_matrix_is_refused_where_matrices_are_packed() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (at(dir.path(), "m.gguf"), at(dir.path(), "out"));
    for (shape, text) in [(&[256][..], "[256]"), (&[256, 2, 3], "[256, 2, 3]"), (&[256, 2, 3, 1], "[256, 2, 3, 1]")] {
        gguf(&model, &[("blk.0.attn_q.weight", BlockType::Q6_K, shape)]);
        for to in ["packed", "blocks"] {
            refused(&["quantize", &model, &out, "copy", "--to", to], &["blk.0.attn_q.weight", text, "two dimensions"]);
        }
        ok(&["quantize", &model, &at(dir.path(), "again.gguf"), "copy", "--unchecked"]);
        same_tensors(&model, &at(dir.path(), "again.gguf"));
    }
}

#[test]
fn tensors_without_elements_cost_nothing_whatever_their_shape() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out) = (at(dir.path(), "m.gguf"), at(dir.path(), "out"));
    gguf(
        &model,
        &[
            ("blk.0.attn_q.weight", BlockType::F16, &[0, 1 << 60]),
            ("blk.0.attn_k.weight", BlockType::F16, &[1 << 60, 0]),
            ("blk.0.attn_v.weight", BlockType::F32, &[256, 1 << 50, 0]),
            ("blk.0.attn_norm.weight", BlockType::F32, &[0]),
            ("output.weight", BlockType::F16, &[256, 2]),
        ],
    );
    for args in [&["f32"][..], &["q8_0"], &["copy", "--to", "packed"]] {
        ok(&[&["quantize", &model, &out, "--unchecked"], args].concat());
        let t = tensors(&out);
        assert_eq!((t.len(), &t["output.weight"].1[..]), (5, &[256, 2][..]), "{args:?}");
        assert!(t["blk.0.attn_q.weight"].2.is_empty() && t["blk.0.attn_q.weight"].1 == [0, 1 << 60]);
        remove(&out);
    }
}

/// A copy of a GGUF file with other metadata, or without a tensor.
fn changed(from: &str, to: &str, change: impl FnOnce(&mut Meta), without: &str) {
    let c = Container::open(Path::new(from), LoadMode::Read).unwrap();
    let kept: Vec<_> = c.tensors.iter().filter(|t| t.name != without).collect();
    let entry = |t: &&isobit::internals::formats::Tensor| Entry {
        name: t.name.clone(),
        dtype: t.dtype,
        shape: t.shape.clone(),
    };
    let mut meta = c.meta.clone();
    change(&mut meta);
    let head = gguf_write::head(to, &meta, &kept.iter().map(entry).collect::<Vec<_>>()).unwrap();
    let mut bytes = head.bytes;
    bytes.resize(head.file_len as usize, 0);
    for (t, at) in kept.iter().zip(head.offsets) {
        c.read(t, 0, &mut bytes[at as usize..][..t.bytes as usize]).unwrap();
    }
    std::fs::write(to, bytes).unwrap();
}

#[test]
fn a_model_that_would_not_run_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (f16, bad, out) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "bad.gguf"), at(dir.path(), "out.gguf"));
    let gone = "blk.0.attn_output.weight";
    type Change = fn(&mut Meta);
    let wrong_type: Change = |m| set(m, "llama.rope.freq_base", meta::Value::U32(500_000));
    let no_tokeniser: Change = |m| m.entries.retain(|(k, _)| k != "tokenizer.ggml.model");
    let other: Change = |m| set(m, "general.architecture", meta::Value::Str("gemma".into()));
    for (change, without, words) in [
        ((|_| ()) as Change, gone, &[gone, "is missing"][..]),
        (wrong_type, "", &["llama.rope.freq_base", "expected f32 or f64, found u32"]),
        (no_tokeniser, "", &["tokenizer.ggml.model is missing"]),
        (other, "", &["architecture gemma is not supported"]),
    ] {
        changed(&f16, &bad, change, without);
        for to in ["gguf", "packed"] {
            let args = ["quantize", &bad, &out, "--to", to];
            refused(&args, &[words, &["bad.gguf", "--unchecked"]].concat());
            refused(&[&args[..], &["--dry-run"]].concat(), words);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{words:?}");
        ok(&["quantize", &bad, &out, "q8_0", "--unchecked"]);
        std::fs::remove_file(&out).unwrap();
    }
}

fn set(m: &mut Meta, key: &str, value: meta::Value) {
    m.entries.retain(|(k, _)| k != key);
    m.entries.push((key.into(), value));
}

#[test]
fn a_result_that_would_not_run_never_gets_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (f16, out) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "m.gguf"));
    std::fs::write(&out, "the old file").unwrap();
    let args = ["quantize", &f16, &out, "q8_0", "--override-kv", "llama.rope.freq_base=float:0.5"];
    refused(&args, &["RoPE base is 0.5", "--unchecked"]);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "the old file");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
    ok(&[&args[..], &["--unchecked"]].concat());
}

#[test]
fn a_sentencepiece_model_whose_tokens_would_not_load_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (hf, out) = (at(dir.path(), "hf"), at(dir.path(), "m.gguf"));
    std::fs::create_dir(&hf).unwrap();
    for file in files(&tiny("hf")) {
        std::fs::copy(&file, Path::new(&hf).join(file.file_name().unwrap())).unwrap();
    }
    // protobuf: pieces of text, score and type, of which 6 is a byte
    let piece = |text: &str, kind: u8| {
        let score = [0x15, 0, 0, 0, 0];
        let inner = [&[0x0a, text.len() as u8][..], text.as_bytes(), &score, &[0x18, kind]].concat();
        [vec![0x0a, inner.len() as u8], inner].concat()
    };
    let model = |byte: &str| [piece("<unk>", 2), piece("a", 1), piece(byte, 6)].concat();
    std::fs::remove_file(format!("{hf}/tokenizer_config.json")).unwrap();
    for (byte, good) in [("<0x61>", true), ("<0x6?>", false)] {
        std::fs::write(format!("{hf}/tokenizer.model"), model(byte)).unwrap();
        let args = ["quantize", &hf, &out, "q8_0"];
        if good {
            ok(&args);
            std::fs::remove_file(&out).unwrap();
        } else {
            refused(&args, &["config.json", "<0x6?>", "marked as a byte token"]);
        }
        assert_eq!(files(dir.path().to_str().unwrap()).len(), 1);
    }
}

#[test]
fn ids_and_flags_of_a_wrong_type_are_no_tokeniser() {
    let dir = tempfile::tempdir().unwrap();
    let (hf, out) = (at(dir.path(), "hf"), at(dir.path(), "m.gguf"));
    std::fs::create_dir(&hf).unwrap();
    for (file, key, value) in [
        ("generation_config.json", "eos_token_id", json!("</s>")),
        ("tokenizer_config.json", "add_bos_token", json!(1)),
        ("tokenizer_config.json", "bos_token", json!(["<s>"])),
    ] {
        for source in files(&tiny("hf")) {
            std::fs::copy(&source, Path::new(&hf).join(source.file_name().unwrap())).unwrap();
        }
        let path = format!("{hf}/{file}");
        let mut v: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        v[key] = value;
        if key == "eos_token_id" {
            std::fs::write(format!("{hf}/tokenizer_config.json"), "{}").unwrap();
        }
        std::fs::write(&path, v.to_string()).unwrap();
        refused(&["quantize", &hf, &out, "q8_0"], &[file, key, "wrong type"]);
        refused(&["tokenize", &hf, "-p", "a"], &[&format!("{path}: {key}: wrong type")]);
    }
}

#[test]
fn files_that_no_run_left_and_the_input_are_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (f16, out, part) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "m.gguf"), at(dir.path(), "m.gguf.part"));
    std::fs::write(&part, "my notes").unwrap();
    for extra in [&[][..], &["--resume"]] {
        refused(&[&["quantize", &f16, &out, "q8_0"], extra].concat(), &["m.gguf.part", "no journal beside it"]);
    }
    assert_eq!(std::fs::read_to_string(&part).unwrap(), "my notes");
    std::fs::copy(&f16, &part).unwrap();
    refused(&["quantize", &part, &out, "q8_0"], &["m.gguf", "unfinished form is the input"]);
    assert!(std::fs::read(&part).unwrap() == std::fs::read(&f16).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_packed_model_keeps_the_files_other_programs_read_and_a_gguf_file_the_template() {
    let dir = tempfile::tempdir().unwrap();
    let hf = dir.path().join("hf");
    std::fs::create_dir(&hf).unwrap();
    for file in files(&tiny("hf")) {
        std::fs::copy(&file, hf.join(file.file_name().unwrap())).unwrap();
    }
    let template = "{{ messages[0].content }}\n";
    std::fs::write(hf.join("chat_template.jinja"), template).unwrap();
    let (hf, g, p, q) = (hf.to_str().unwrap(), at(dir.path(), "m.gguf"), at(dir.path(), "p"), at(dir.path(), "q"));
    ok(&["quantize", hf, &g, "f16"]);
    let c = Container::open(Path::new(&g), LoadMode::Read).unwrap();
    assert_eq!(c.meta.str("tokenizer.chat_template"), Some(template));
    std::fs::write(format!("{hf}/tokenizer.model"), b"pieces").unwrap();
    ok(&["quantize", hf, &p, "--to", "packed"]);
    // and of a GGUF file beside which they lie
    std::fs::rename(&g, format!("{p}/m.gguf")).unwrap();
    ok(&["quantize", &format!("{p}/m.gguf"), &q, "--to", "packed"]);
    for out in [p, q] {
        assert_eq!(std::fs::read(format!("{out}/tokenizer.model")).unwrap(), b"pieces");
        assert_eq!(std::fs::read_to_string(format!("{out}/chat_template.jinja")).unwrap(), template);
    }
}

#[test]
fn a_model_goes_into_several_files_and_back_without_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let (shards, again, joined) = (at(dir.path(), "m.gguf"), at(dir.path(), "k"), at(dir.path(), "one.gguf"));
    let f16 = tiny("tiny-stories-f16.gguf");
    ok(&["quantize", &f16, &shards, "copy", "--split-max-size", "1M"]);
    let names: Vec<String> = contents(&shards).into_iter().map(|(name, _)| name).collect();
    let n = names.len();
    assert!(n > 5, "{names:?}");
    let expected: Vec<String> = (1..=n).map(|i| format!("m-{i:05}-of-{n:05}.gguf")).collect();
    assert_eq!(names, expected);
    for (i, path) in files(&shards).iter().enumerate() {
        // a tensor that is larger is alone in its file
        assert!(path.metadata().unwrap().len() < 1_200_000 || i == 0, "{}", path.display());
    }
    same_tensors(&shards, &f16);
    let c = Container::open(Path::new(&shards), LoadMode::Read).unwrap();
    let number = |key: &str| c.meta.uint(key);
    assert_eq!((number("split.no"), number("split.count")), (Some(0), Some(n as u64)));
    assert_eq!(number("split.tensors.count"), Some(c.tensors.len() as u64));
    // the same tensors in each, of another type, from the first file's name
    ok(&["quantize", &at(Path::new(&shards), &expected[0]), &again, "q8_0", "--keep-split"]);
    let k = Container::open(Path::new(&again), LoadMode::Read).unwrap();
    let places = |c: &Container| c.tensors.iter().map(|t| (t.name.clone(), t.file)).collect::<Vec<_>>();
    assert_eq!(places(&k), places(&c));
    assert!(files(&again)[n - 1].ends_with(format!("k-{n:05}-of-{n:05}.gguf")));
    same_tensors(&again, &tiny("tiny-stories-Q8_0.gguf"));
    assert_eq!(story(&again), story(&tiny("tiny-stories-Q8_0.gguf")));
    // joined, nothing of the parts is left
    ok(&["quantize", &again, &joined, "copy"]);
    same_tensors(&joined, &again);
    let j = Container::open(Path::new(&joined), LoadMode::Read).unwrap();
    assert!(!j.meta.entries.iter().any(|(k, _)| k.starts_with("split.")));
    // one file may be all there is
    let one = at(dir.path(), "whole");
    ok(&["quantize", &f16, &one, "q4_0", "--split-max-size", "2G"]);
    assert_eq!(contents(&one)[0].0, "whole-00001-of-00001.gguf");
    same_tensors(&one, &tiny("tiny-stories-Q4_0.gguf"));
    refused(&["quantize", &f16, &joined, "q8_0", "--keep-split"], &["a file is in the way"]);
    refused(&["quantize", &f16, &one, "q8_0", "--split-max-size", "2K"], &["500M"]);
}

#[test]
fn metadata_can_be_overridden() {
    let dir = tempfile::tempdir().unwrap();
    let (f16, out) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "m.gguf"));
    let set = |kv: &[&str]| {
        let mut args = vec!["quantize", &f16, &out, "q8_0"];
        kv.iter().for_each(|kv| args.extend(["--override-kv", kv]));
        args.into_iter().map(String::from).collect::<Vec<_>>()
    };
    let run = |kv: &[&str]| ok(&set(kv).iter().map(String::as_str).collect::<Vec<_>>());
    run(&[
        "llama.rope.freq_base=float:20000",
        "general.name=str:mine",
        "my.flag=bool:true",
        "general.file_type=int:99",
    ]);
    let c = Container::open(Path::new(&out), LoadMode::Read).unwrap();
    assert_eq!(c.meta.float("llama.rope.freq_base"), Some(20000.0));
    assert_eq!((c.meta.str("general.name"), c.meta.bool("my.flag")), (Some("mine"), Some(true)));
    assert_eq!(c.meta.uint("general.file_type"), Some(99));
    same_tensors(&out, &tiny("tiny-stories-Q8_0.gguf"));
    for (bad, words) in [
        ("x", "KEY=TYPE:VALUE"),
        ("general.name=int:3", "general.name"),
        ("general.alignment=int:64", "follows from the layout"),
    ] {
        let args = set(&[bad]);
        refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), &["--override-kv", words]);
    }
}

#[test]
fn options_without_effect_are_refused_and_the_policys_variable_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (f16, out) = (tiny("tiny-stories-f16.gguf"), at(dir.path(), "out"));
    refused(&["quantize", &f16, &out, "--to", "packed", "--pure"], &["--pure has no effect"]);
    refused(&["quantize", &f16, &out, "q4_k_m", "--policy", "qkv"], &["--policy has no effect", "--to packed"]);
    let set = program::isobit(["quantize", &f16, &out, "q4_k_m"]).env("ISOBIT_Q8K128_POLICY", "qkv").output().unwrap();
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
}

// ---------------------------------------------------------------- killed and resumed

/// Makes `out` by this command, killed after each of these delays; the old content or the new one must be there.
fn killed_at_random(delays: usize, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (out, fresh) = (at(dir.path(), "m.gguf"), at(dir.path(), "fresh.gguf"));
    let f16 = tiny("tiny-stories-f16.gguf");
    let start = Instant::now();
    ok(&["quantize", &f16, &fresh, "q4_k_m"]);
    let whole = start.elapsed();
    let (old, new) = (std::fs::read(Q4_K_M).unwrap(), std::fs::read(&fresh).unwrap());
    assert!(old != new, "the metadata differ");
    let (mut state, mut kept, mut replaced) = (seed, 0, 0);
    for i in 0..delays {
        std::fs::write(&out, &old).unwrap();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = whole.mul_f64((state >> 40) as f64 / (1 << 24) as f64 * 1.2);
        let args = ["quantize", &f16, &out, "q4_k_m", "--resume"];
        let mut child = program::isobit(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(delay);
        // it may have ended by itself
        let _ = child.kill();
        child.wait().unwrap();
        let found = std::fs::read(&out).unwrap();
        assert!(
            found == old || found == new,
            "kill {i} after {delay:?} (seed {seed}): neither the old nor the new file"
        );
        if found == old {
            kept += 1
        } else {
            replaced += 1
        }
        ok(&["inspect", &out]);
        if i % 3 == 2 {
            ok(&args);
            assert!(std::fs::read(&out).unwrap() == new, "kill {i} (seed {seed}): resumed to other bytes");
        }
    }
    println!("{delays} kills within {whole:?}: {kept} left the old file, {replaced} the new one");
}

#[test]
fn killed_at_any_moment_the_old_file_or_the_new_one_is_there() {
    killed_at_random(6, 1);
}

#[test]
#[ignore = "fifty kills take a while"]
fn killed_at_fifty_moments_the_old_file_or_the_new_one_is_there() {
    killed_at_random(50, 7);
}

/// Starts a job and kills it when its journal has so many finished pieces. False when it was too fast.
fn kill_after_pieces(args: &[&str], journal: &str, pieces: usize) -> bool {
    let mut child = program::isobit(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let lines = std::fs::read_to_string(journal).map_or(0, |t| t.lines().count());
        if lines > pieces || child.try_wait().unwrap().is_some() || Instant::now() > end {
            break;
        }
    }
    let early = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    child.wait().unwrap();
    early && Path::new(journal).exists()
}

#[test]
fn a_resumed_job_gives_the_same_bytes_even_where_finished_pieces_were_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let hf = tiny("hf");
    // files of a split model are called after it
    std::fs::create_dir(dir.path().join("fresh")).unwrap();
    let (fresh, out) = (at(&dir.path().join("fresh"), "out"), at(dir.path(), "out"));
    for flags in [
        &["q6_k"][..],
        &["--to", "packed", "--policy", "attn"],
        &["--to", "blocks", "--policy", "off"],
        &["q8_0", "--split-max-size", "1M"],
    ] {
        let args = |o: &str| {
            [&["quantize", &hf, o, "-t", "1"], flags].concat().iter().map(|s| s.to_string()).collect::<Vec<_>>()
        };
        // gives the number of tensors that were begun
        let run = |o: &str, extra: &[&str]| {
            let args = args(o);
            let mut all: Vec<&str> = args.iter().map(String::as_str).collect();
            all.extend(extra);
            let o = isobit(&all);
            let err = String::from_utf8_lossy(&o.stderr);
            assert!(o.status.success(), "{all:?}: {err}");
            err.lines().filter(|l| l.starts_with('[')).count()
        };
        let all = run(&fresh, &[]);
        let (journal, part) = (format!("{out}.part.journal"), format!("{out}.part"));
        let first = args(&out);
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let mut stopped = false;
        for _ in 0..20 {
            stopped = kill_after_pieces(&first, &journal, 8) && Path::new(&part).exists();
            if stopped {
                break;
            }
            remove(&out);
        }
        assert!(stopped, "the job could not be interrupted in twenty tries");
        // damage what is finished: its hash must give it away
        let victim =
            if Path::new(&part).is_dir() { files(&part).into_iter().next().unwrap() } else { PathBuf::from(&part) };
        let mut bytes = std::fs::read(&victim).unwrap();
        bytes[3] ^= 0x10;
        std::fs::write(&victim, &bytes).unwrap();
        // every other piece at least is a tensor, and one of them was damaged
        let noted = std::fs::read_to_string(&journal).unwrap().lines().count() - 1;
        let begun = run(&out, &["--resume"]);
        assert!(begun > 0 && begun + noted / 2 - 1 <= all, "{flags:?}: {begun} of {all} begun, {noted} pieces noted");
        assert_eq!(contents(&out), contents(&fresh), "{flags:?}");
        assert!(!Path::new(&part).exists() && !Path::new(&journal).exists());
        remove(&out);
        remove(&fresh);
    }
}

fn files(dir: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

/// Names and hashes of a file, or of the files of a directory.
fn contents(path: &str) -> Vec<(String, u64)> {
    let hash = |p: &Path| {
        std::fs::read(p)
            .unwrap()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
    };
    if !Path::new(path).is_dir() {
        return vec![(String::new(), hash(Path::new(path)))];
    }
    files(path).iter().map(|p| (p.file_name().unwrap().to_str().unwrap().to_string(), hash(p))).collect()
}

fn remove(path: &str) {
    // one of the two, or neither
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_dir_all(path);
}

// ---------------------------------------------------------------- packed

#[test]
fn policies_decide_what_a_packed_model_has_in_q8k128_and_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let hf = tiny("hf");
    for (policy, q8k128) in
        [("off", 0), ("l0_qkv", 3), ("early-qkv", 12), ("qkv", 12), ("attention", 16), ("q8k", 24), ("all", 28)]
    {
        let out = at(dir.path(), policy);
        ok(&["quantize", &hf, &out, "--to", "packed", "--policy", policy]);
        let t = tensors(&out);
        let count = |ty: &str| t.values().filter(|t| t.0 == ty).count();
        assert_eq!(count("Q8K128"), q8k128, "{policy}");
        assert_eq!(count("Q4_K"), if policy == "all" { 0 } else { 4 }, "{policy}");
        assert_eq!(count("F16"), 10, "{policy}: embedding and norms are kept");
    }
    let (a, b) = (at(dir.path(), "attention"), at(dir.path(), "blocks"));
    ok(&["quantize", &hf, &b, "--to", "blocks", "--policy", "attn"]);
    same_tensors(&a, &b);
    assert!(story(&a).starts_with("Once upon a time") && story(&a) == story(&b));
    assert!(ok(&["inspect", &a]).contains("Q8K128"));
    ok(&["verify", &b, "-d", "cpu", "-d", "cpu:portable"]);
    let ppl = ok(&["perplexity", &a, "-f", &tiny("valid.txt"), "--chunks", "2", "-d", "cpu"]);
    assert!(ppl.contains("PPL = "), "{ppl}");
}

#[test]
fn a_gguf_file_can_be_packed_and_back_without_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let (p, g) = (at(dir.path(), "p"), at(dir.path(), "g.gguf"));
    ok(&["quantize", &tiny("tiny-stories-f16.gguf"), &p, "--to", "packed", "q6k"]);
    assert_eq!(tensors(&p).values().filter(|t| t.0 == "Q6_K").count(), 28);
    ok(&["quantize", &p, &g, "copy"]);
    same_tensors(&p, &g);
    assert_eq!(story(&p), story(&g));
}

#[test]
fn the_log_says_what_every_tensor_is() {
    let dir = tempfile::tempdir().unwrap();
    let out = at(dir.path(), "p");
    ok(&["quantize", &tiny("hf"), &out, "--to", "packed"]);
    let o = program::isobit(["run", &out, "-p", "A", "-n", "1", "-d", "cpu"]).env("RUST_LOG", "info").output().unwrap();
    let err = String::from_utf8_lossy(&o.stderr);
    for line in [
        "model.layers.0.self_attn.q_proj.weight: Q8K128",
        "model.layers.1.self_attn.q_proj.weight: Q8_K",
        "model.layers.1.mlp.down_proj.weight: Q4_K",
    ] {
        assert!(err.contains(line), "no {line:?} in {err}");
    }
}

#[test]
fn packed_files_made_elsewhere_are_read_as_they_were_meant() {
    let c = Container::open(Path::new(&format!("{DATA}/packed/packed.safetensors")), LoadMode::Read).unwrap();
    let types: BTreeMap<&str, &str> = c.tensors.iter().map(|t| (t.name.as_str(), t.dtype.name())).collect();
    assert!(types.values().any(|t| *t == "Q8K128") && types.values().any(|t| *t == "Q8_K"), "{types:?}");
    assert!(types.values().any(|t| *t == "Q4_K") && types.values().any(|t| *t == "F32"), "{types:?}");
    assert!(!types.keys().any(|n| n.ends_with("_meta")), "{types:?}");
    let blocks = std::fs::read(format!("{DATA}/vectors/q8k128/blocks.bin")).unwrap();
    let (_, one) = tensors(&format!("{DATA}/packed/w.weight.q8k128")).into_iter().next().unwrap();
    assert_eq!((&one.0[..], &one.1[..]), ("Q8K128", &[512, 20][..]));
    assert!(one.2 == blocks);
    let packed = tensors(&format!("{DATA}/packed/packed.safetensors"));
    assert!(packed.values().any(|t| t.2 == blocks));
}

/// A safetensors file of these entries: key, dtype, shape, bytes.
fn safetensors(entries: &[(&str, &str, Vec<usize>, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (key, dtype, shape, bytes) in entries {
        let place = [data.len(), data.len() + bytes.len()];
        header.insert(key.to_string(), json!({"dtype": dtype, "shape": shape, "data_offsets": place}));
        data.extend(bytes);
    }
    let text = Value::Object(header).to_string();
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat()
}

fn words(w: &[i32]) -> Vec<u8> {
    w.iter().flat_map(|v| v.to_le_bytes()).collect()
}

const HEAD: [i32; 6] = [0x4b51_3838, 1, 2, 256, 1, 0x18];

/// A good Q8K matrix of 2 x 256 with its header and meta.
fn q8k(head: &[i32], blocks: usize) -> (&'static str, &'static str, Vec<usize>, Vec<u8>) {
    let bytes = [words(head), vec![0; blocks]].concat();
    ("w.weight.q8k", "U8", vec![bytes.len()], bytes)
}

fn meta(key: &'static str, w: &[i32]) -> (&'static str, &'static str, Vec<usize>, Vec<u8>) {
    (key, "I32", vec![w.len()], words(w))
}

/// The fault of a lone packed file of these entries.
fn fault(entries: &[(&str, &str, Vec<usize>, Vec<u8>)]) -> PackedFault {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    std::fs::write(&path, safetensors(entries)).unwrap();
    fault_of(&path)
}

fn fault_of(path: &Path) -> PackedFault {
    match Container::open(path, LoadMode::Read) {
        Err(FormatError::Packed { fault, .. }) => fault,
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn good_packed_matrices_are_accepted_so_that_the_faults_below_mean_something() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    let q8k128 = ("v.weight.q8k128", "U8", vec![4 * 148], vec![0; 4 * 148]);
    let entries =
        [q8k(&HEAD, 584), meta("w.weight.q8k_meta", &[2, 256, 24]), q8k128, meta("v.weight.q8k128_meta", &[2, 256])];
    std::fs::write(&path, safetensors(&entries)).unwrap();
    let c = Container::open(&path, LoadMode::Read).unwrap();
    assert_eq!(c.tensors.len(), 2);
    assert_eq!(c.tensor("w.weight").unwrap().shape, [256, 2]);
}

#[test]
fn a_header_that_is_too_short_is_named() {
    let short = fault(&[q8k(&HEAD[..5], 0), meta("w.weight.q8k_meta", &[2, 256, 24])]);
    assert_eq!(short, PackedFault::ShortHeader { found: 20 });
}

#[test]
fn every_wrong_word_of_a_header_is_named() {
    let with = |i: usize, v: i32| {
        let mut head = HEAD;
        head[i] = v;
        fault(&[q8k(&head, 584), meta("w.weight.q8k_meta", &[2, 256, 24])])
    };
    assert_eq!(with(0, 0x4b51_3831), PackedFault::WrongMagic { expected: 0x4b51_3838, found: 0x4b51_3831 });
    assert_eq!(with(1, 2), PackedFault::WrongVersion { found: 2 });
    assert_eq!(with(2, 0), PackedFault::EmptyShape { rows: 0, k: 256 });
    assert_eq!(with(3, 0), PackedFault::EmptyShape { rows: 2, k: 0 });
    assert_eq!(with(3, 128), PackedFault::RaggedRows { k: 128, block: 256 });
    assert_eq!(with(4, 2), PackedFault::WrongBlocksPerRow { expected: 1, found: 2 });
    assert_eq!(with(5, 0x28), PackedFault::WrongFormat { expected: 0x18, found: 0x28 });
    assert_eq!(with(2, 3), PackedFault::ShapesDisagree { header: (3, 256), meta: (2, 256) });
}

#[test]
fn a_length_that_is_not_the_shapes_is_named() {
    for blocks in [583, 585, 0, 292] {
        let f = fault(&[q8k(&HEAD, blocks), meta("w.weight.q8k_meta", &[2, 256, 24])]);
        assert_eq!(f, PackedFault::WrongLength { expected: 608, found: 24 + blocks as u64 });
    }
    let blob = ("v.weight.q4k", "U8", vec![287], vec![0; 287]);
    let f = fault(&[blob, meta("v.weight.q4k_meta", &[2, 256])]);
    assert_eq!(f, PackedFault::WrongLength { expected: 288, found: 287 });
}

#[test]
fn a_matrix_in_two_formats_is_named() {
    let blob = || ("w.weight.q8k128", "U8", vec![592], vec![0; 592]);
    let good = [q8k(&HEAD, 584), meta("w.weight.q8k_meta", &[2, 256, 24])];
    let two = [&good[..], &[blob(), meta("w.weight.q8k128_meta", &[2, 256])]].concat();
    assert!(matches!(fault(&two), PackedFault::SeveralFormats { found } if found.len() == 2));
    let plain = ("w.weight", "F32", vec![1], vec![0; 4]);
    assert!(matches!(fault(&[&good[..], &[plain]].concat()), PackedFault::SeveralFormats { .. }));
}

#[test]
fn missing_and_wrong_meta_tensors_are_named() {
    assert_eq!(fault(&[q8k(&HEAD, 584)]), PackedFault::NoMeta);
    assert_eq!(fault(&[meta("w.weight.q8k_meta", &[2, 256, 24])]), PackedFault::NoBlocks);
    let wrong = |m| fault(&[q8k(&HEAD, 584), m]);
    assert!(matches!(wrong(meta("w.weight.q8k_meta", &[2, 256])), PackedFault::WrongMeta { .. }));
    let u32s = ("w.weight.q8k_meta", "U32", vec![3], words(&[2, 256, 24]));
    assert!(matches!(wrong(u32s), PackedFault::WrongMeta { .. }));
    let square = ("w.weight.q8k_meta", "I32", vec![3, 1], words(&[2, 256, 24]));
    assert!(matches!(wrong(square), PackedFault::WrongMeta { .. }));
    assert_eq!(wrong(meta("w.weight.q8k_meta", &[2, 256, 16])), PackedFault::WrongHeaderSize { found: 16 });
    assert_eq!(wrong(meta("w.weight.q8k_meta", &[-2, 256, 24])), PackedFault::EmptyShape { rows: -2, k: 256 });
    assert_eq!(wrong(meta("w.weight.q8k_meta", &[2, 100, 24])), PackedFault::RaggedRows { k: 100, block: 256 });
}

#[test]
fn blocks_that_are_not_bytes_and_permutations_are_named() {
    let blob = ("v.weight.q8k128", "I8", vec![592], vec![0; 592]);
    assert!(matches!(fault(&[blob, meta("v.weight.q8k128_meta", &[2, 256])]), PackedFault::WrongBlob { .. }));
    let blob = ("v.weight.q8k128", "U8", vec![4, 148], vec![0; 592]);
    assert!(matches!(fault(&[blob, meta("v.weight.q8k128_meta", &[2, 256])]), PackedFault::WrongBlob { .. }));
    let perm = ("v.weight.perm", "U8", vec![8], vec![0; 8]);
    let blob = ("v.weight.q8k128", "U8", vec![592], vec![0; 592]);
    assert_eq!(fault(&[blob, perm, meta("v.weight.q8k128_meta", &[2, 256])]), PackedFault::Permuted);
}

#[test]
fn block_files_are_as_strict_as_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.weight.q8k128");
    let kind = packed::kind_of(BlockType::Q8K128).unwrap();
    let good = [&packed::header(kind, 2, 256)[..], &[0; 592]].concat();
    std::fs::write(&path, &good).unwrap();
    assert_eq!(Container::open(&path, LoadMode::Read).unwrap().tensors[0].shape, [256, 2]);
    for (n, want) in [
        (0, PackedFault::ShortHeader { found: 0 }),
        (23, PackedFault::ShortHeader { found: 23 }),
        (615, PackedFault::WrongLength { expected: 616, found: 615 }),
    ] {
        std::fs::write(&path, &good[..n]).unwrap();
        assert_eq!(fault_of(&path), want);
    }
    // the name says one format, the header another
    let other = dir.path().join("w.weight.q8k");
    std::fs::write(&other, &good).unwrap();
    assert!(matches!(fault_of(&other), PackedFault::WrongMagic { .. }));
}

#[test]
fn a_directory_with_a_matrix_twice_or_a_permutation_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let out = at(dir.path(), "b");
    ok(&["quantize", &tiny("hf"), &out, "--to", "blocks"]);
    let one = at(Path::new(&out), "model.layers.0.self_attn.q_proj.weight.q8k128");
    let perm = one.replace(".q8k128", ".perm");
    std::fs::write(&perm, [0; 8]).unwrap();
    refused(&["run", &out, "-p", "A", "-d", "cpu"], &["permuted"]);
    std::fs::remove_file(&perm).unwrap();
    let two = one.replace(".q8k128", ".q8k");
    let kind = packed::kind_of(BlockType::Q8_K).unwrap();
    std::fs::write(&two, [&packed::header(kind, 256, 256)[..], &vec![0; 256 * 292]].concat()).unwrap();
    refused(&["run", &out, "-p", "A", "-d", "cpu"], &["stored more than once", "q8k128 (file)", "q8k (file)"]);
    std::fs::remove_file(&one).unwrap();
    std::fs::remove_file(&two).unwrap();
    refused(&["run", &out, "-p", "A", "-d", "cpu"], &["model.layers.0.self_attn.q_proj.weight is missing"]);
}

/// Splits a directory's one safetensors file in two with an index.
fn split(dir: &str) {
    let file = format!("{dir}/model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Map<String, Value> = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
    let (mut parts, mut map) = ([vec![], vec![]], serde_json::Map::new());
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    for (i, (key, e)) in header.iter().enumerate() {
        let part = usize::from(2 * i > header.len());
        let place = |j: usize| 8 + n + e["data_offsets"][j].as_u64().unwrap() as usize;
        let shape = e["shape"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect();
        parts[part].push((key.as_str(), e["dtype"].as_str().unwrap(), shape, bytes[place(0)..place(1)].to_vec()));
        map.insert(key.clone(), json!(names[part]));
    }
    for (name, part) in names.iter().zip(&parts) {
        std::fs::write(format!("{dir}/{name}"), safetensors(part)).unwrap();
    }
    std::fs::write(
        format!("{dir}/model.safetensors.index.json"),
        json!({"metadata": {}, "weight_map": map}).to_string(),
    )
    .unwrap();
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_shard_that_is_missing_swapped_or_truncated_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let out = at(dir.path(), "p");
    ok(&["quantize", &tiny("hf"), &out, "--to", "packed"]);
    let whole = story(&out);
    split(&out);
    assert_eq!(story(&out), whole);
    let shard = |i: usize| format!("{out}/model-0000{i}-of-00002.safetensors");
    let (one, two) = (std::fs::read(shard(1)).unwrap(), std::fs::read(shard(2)).unwrap());
    let run = ["run", &out, "-p", "A", "-d", "cpu"];
    std::fs::remove_file(shard(2)).unwrap();
    refused(&run, &["model-00002-of-00002.safetensors", "opening it"]);
    std::fs::write(shard(2), &two[..two.len() - 1]).unwrap();
    refused(&run, &["model-00002-of-00002.safetensors", "the file ends inside the data"]);
    std::fs::write(shard(1), &two).unwrap();
    std::fs::write(shard(2), &one).unwrap();
    refused(&run, &["a tensor is not where the index says"]);
    std::fs::write(shard(1), &one).unwrap();
    refused(&run, &["in two files"]);
    std::fs::write(shard(2), &two).unwrap();
    assert_eq!(story(&out), whole);
}

//! Hugging Face directories: several files and one, and what is wrong with them.

use super::*;

/// One safetensors file with the given (name, dtype, shape); the data count up from `first`.
fn weights(tensors: &[(&str, safetensors::Dtype, &[usize])], first: u8) -> Vec<u8> {
    let mut next = first;
    let content: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, dtype, shape)| {
            (0..shape.iter().product::<usize>() * dtype.bitsize() / 8)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect()
        })
        .collect();
    let views = tensors.iter().zip(&content).map(|((name, dtype, shape), data)| {
        (*name, safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), data).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

fn several() -> Vec<u8> {
    use safetensors::Dtype::{BF16, BOOL, F4, F16, F32, I64};
    weights(
        &[
            ("model.embed_tokens.weight", F32, &[5, 3]),
            ("model.norm.weight", BF16, &[4]),
            ("model.layers.0.q.weight", F16, &[2, 3]),
            ("mask", BOOL, &[3]),
            ("packed", F4, &[2, 4]),
            ("ids", I64, &[]),
        ],
        9,
    )
}

type Files = BTreeMap<&'static str, Vec<u8>>;

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn index_of(map: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k:?}:{v:?}")).collect();
    format!("{{\"metadata\":{{\"total_size\":1}},\"weight_map\":{{{}}}}}", entries.join(",")).into_bytes()
}

/// A model in two shards, after `change` had its way with the files.
fn model_dir(change: impl FnOnce(&mut Files)) -> tempfile::TempDir {
    use safetensors::Dtype::{BF16, F32};
    let mut files: Files = BTreeMap::from([
        ("config.json", b"{\"model_type\":\"llama\",\"hidden_size\":4}".to_vec()),
        ("generation_config.json", b"{\"eos_token_id\":2}".to_vec()),
        ("tokenizer_config.json", b"{\"add_bos_token\":true}".to_vec()),
        ("tokenizer.json", b"{\"version\":\"1.0\"}".to_vec()),
        (ONE, weights(&[("embed", BF16, &[5, 4]), ("norm", F32, &[4])], 1)),
        (TWO, weights(&[("q", BF16, &[3, 4])], 100)),
        (INDEX, index_of(&[("embed", ONE), ("norm", ONE), ("q", TWO)])),
    ]);
    change(&mut files);
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    dir
}

fn dir_message(change: impl FnOnce(&mut Files)) -> String {
    let dir = model_dir(change);
    let e = Container::open(dir.path(), LoadMode::Read).unwrap_err();
    e.to_string()
}

#[test]
fn a_directory_with_two_shards_and_an_index_opens_as_one_model() {
    for mode in [LoadMode::Read, LoadMode::Mmap] {
        let dir = model_dir(|_| ());
        let c = Container::open(dir.path(), mode).unwrap();
        assert_eq!((c.kind, c.version), (ContainerKind::HuggingFace, 0));
        assert_eq!(c.files, [dir.path().join(ONE), dir.path().join(TWO)]);
        assert_eq!(c.config.as_ref().unwrap()["hidden_size"], 4);
        assert_eq!(c.generation_config.as_ref().unwrap()["eos_token_id"], 2);
        assert_eq!(c.tokenizer_config.as_ref().unwrap()["add_bos_token"], true);
        assert_eq!(c.tokenizer_json.as_deref(), Some(&b"{\"version\":\"1.0\"}"[..]));
        assert!(c.meta.entries.is_empty());
        // [out, in] of the file is (in, out) here.
        assert_eq!(c.tensor("embed").unwrap().shape, [4, 5]);
        assert_eq!(c.tensor("norm").unwrap().dtype.name(), "F32");
        let q = c.tensor("q").unwrap();
        assert_eq!((q.file, q.bytes, q.elems()), (1, 24, 12));
        assert_eq!(whole(&c, q), (101..125).collect::<Vec<u8>>());
        assert_eq!(c.total_bytes(), 40 + 16 + 24);
    }
}

#[test]
fn a_directory_with_one_safetensors_file_needs_no_index() {
    let single = |f: &mut Files| {
        f.remove(INDEX);
        f.remove(ONE);
        f.remove("tokenizer.json");
        let file = f.remove(TWO).unwrap();
        f.insert("model.safetensors", file);
    };
    let dir = model_dir(single);
    let c = Container::open(dir.path(), LoadMode::Read).unwrap();
    assert_eq!(c.files, [dir.path().join("model.safetensors")]);
    assert_eq!((c.tensors.len(), c.tokenizer_json.is_none()), (1, true));
    let lone = Container::open(&c.files[0], LoadMode::Read).unwrap();
    assert_eq!((lone.kind, lone.config.is_none()), (ContainerKind::Safetensors, true));
}

#[test]
fn a_missing_file_of_the_index_is_an_error_with_its_name() {
    let message = dir_message(|f| drop(f.remove(TWO)));
    assert!(message.contains(TWO), "{message}");
}

#[test]
fn an_index_that_leaves_the_directory_is_refused() {
    for bad in ["../x.safetensors", "/x.safetensors", "a/x.safetensors", "a\\x.safetensors", "x.bin", "..safetensors"] {
        let message = dir_message(|f| {
            f.insert(INDEX, index_of(&[("embed", ONE), ("norm", ONE), ("q", bad)]));
        });
        assert!(message.contains(INDEX) && message.contains("could leave the directory"), "{message}");
        assert!(message.contains("\"q\""), "{message}");
    }
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    use safetensors::Dtype::BF16;
    let message = dir_message(|f| drop(f.insert(TWO, weights(&[("q", BF16, &[3, 4]), ("embed", BF16, &[1])], 0))));
    assert!(message.contains("\"embed\"") && message.contains("in two files"), "{message}");
    assert!(message.contains(ONE) && message.contains(TWO), "{message}");
}

#[test]
fn an_index_that_is_wrong_about_a_tensor_is_refused() {
    let message = dir_message(|f| {
        f.insert(INDEX, index_of(&[("embed", ONE), ("norm", TWO), ("q", TWO)]));
    });
    assert!(message.contains("\"norm\"") && message.contains("not where the index says"), "{message}");
    let message = dir_message(|f| {
        f.insert(INDEX, index_of(&[("embed", ONE), ("k", ONE), ("q", TWO)]));
    });
    assert!(message.contains("\"k\"") && message.contains("none of the files"), "{message}");
    let message = dir_message(|f| {
        f.insert(INDEX, index_of(&[("embed", ONE), ("q", TWO), ("embed", ONE)]));
    });
    assert!(message.contains("occurs twice"), "{message}");
}

#[test]
fn broken_json_beside_the_weights_is_an_error_with_its_file() {
    for name in ["config.json", "generation_config.json", "tokenizer_config.json", INDEX] {
        let message = dir_message(|f| drop(f.insert(name, b"{\"a\":".to_vec())));
        assert!(message.contains(name) && message.contains("line 1"), "{message}");
        let message = dir_message(|f| drop(f.insert(name, vec![b'['; 100_000])));
        assert!(message.contains(name), "{message}");
    }
    let message = dir_message(|f| drop(f.insert("config.json", b"0,".repeat(500_000))));
    assert!(message.contains("too many values"), "{message}");
    let message = dir_message(|f| drop(f.insert("config.json", vec![b' '; 17 << 20])));
    assert!(message.contains("longer than this reader allows"), "{message}");
}

#[test]
fn json_that_would_swell_in_memory_stays_within_the_allowance() {
    let list = |item: &str, n: usize| format!("[{}0]", item.repeat(n)).into_bytes();
    let map = |n: usize| {
        let entries: String = (0..n).map(|i| format!("\"{i}\":0,")).collect();
        format!("{{{}\"x\":0}}", entries).into_bytes()
    };
    let cases = [
        (list("0,", 300_000), true),
        (list("0,", 340_000), false),
        (list("{\"\":0},", 49_000), true),
        (list("{\"\":0},", 60_000), false),
        (list("[],", 200_000), true),
        (map(180_000), true),
        (map(300_000), false),
        (format!("\"{}\"", "x".repeat(15 << 20)).into_bytes(), true),
    ];
    for (i, (json, accepted)) in cases.into_iter().enumerate() {
        let len = json.len() as i64;
        let dir = model_dir(|f| drop(f.insert("config.json", json)));
        let (result, peak) = peak_of(|| Container::open(dir.path(), LoadMode::Read));
        assert_eq!(result.is_ok(), accepted, "case {i}: {:?}", result.err());
        assert!(peak <= len + ALLOWANCE, "case {i}: {peak} bytes for {len}");
        println!("case {i}: {peak} bytes of memory for {len}");
    }
}

#[test]
fn a_directory_without_a_model_or_with_several_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let e = Container::open(dir.path(), LoadMode::Read).unwrap_err().to_string();
    assert!(e.contains("no model in it"), "{e}");
    let file = bytes("gguf_bad/00_ok_minimal.gguf");
    std::fs::write(dir.path().join("a.gguf"), &file).unwrap();
    let c = Container::open(dir.path(), LoadMode::Read).unwrap();
    assert_eq!(c.files, [dir.path().join("a.gguf")]);
    std::fs::write(dir.path().join("b.gguf"), &file).unwrap();
    let e = Container::open(dir.path(), LoadMode::Read).unwrap_err().to_string();
    assert!(e.contains("several models") && e.contains("\"b.gguf\""), "{e}");
    let message = dir_message(|f| f.retain(|n, _| !n.starts_with("model")));
    assert!(message.contains("config.json without weights"), "{message}");
    let message = dir_message(|f| drop(f.remove(INDEX)));
    assert!(message.contains("several safetensors files and no index"), "{message}");
}

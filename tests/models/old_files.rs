//! GGUF files of old conversions: those of DeepSeek's models, whose keys and values of all heads are made by one matrix, and
//! those of Mixtral, which have a tensor for each expert.

use crate::arch::{ids, logits, open, refused};
use crate::checkpoint::model;
use crate::program;
use crate::written::{Held, gguf};
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::gguf_write::Entry;
use isobit::internals::formats::meta::Value;
use isobit::internals::formats::{Container, Dtype, LoadMode};
use std::path::Path;

/// V2-Lite's form and V3's, as files of new conversions. 4 heads, of 20 rows of values and of 24 and 16 of keys, and 24 and 16
/// rotated elements of a query; latent vectors of 32 and of 64.
const FORMS: [&str; 2] = [
    "--latent 0,32,16,16,20 --experts 6 --used 3 --expert-ffn 40 --shared 80",
    "--larger --latent 24,64,16,24,20 --experts 8 --used 2 --expert-ffn 40 --shared 40 --rope yarn --original-ctx 64",
];
const SHAPE: &str =
    "--arch deepseek2 --dim 64 --layers 3 --ffn 96 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --dense 1";

/// What an old file would have been of a new one whose matrices of keys and of values are F32, with matrices of both of type
/// `both`; and the new file again, with these matrices as the blocks of the old one say.
fn old_and_new(c: &Container, both: BlockType) -> [Vec<u8>; 2] {
    let dtype = |block| Dtype::from_block(block).expect("one of GGUF's");
    let uint = |key: &str| c.meta.uint(&format!("deepseek2.{key}")).unwrap_or_else(|| panic!("{key}"));
    let (heads, rank) = (uint("attention.head_count") as usize, uint("attention.kv_lora_rank") as usize);
    let value = uint("attention.value_length_mla") as usize;
    let (mut old, mut new): (Vec<Held>, Vec<Held>) = (vec![], vec![]);
    let mut keys: Vec<f32> = vec![];
    for t in &c.tensors {
        let mut bytes = vec![0; t.bytes as usize];
        c.read(t, 0, &mut bytes).expect("there");
        let floats = || bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<f32>>();
        if t.name.ends_with(".attn_k_b.weight") {
            // [head][rank][nope]
            keys = floats();
            continue;
        }
        let Some(stem) = t.name.strip_suffix(".attn_v_b.weight") else {
            let entry = Entry { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() };
            old.push((entry.clone(), bytes.clone()));
            new.push((entry, bytes));
            continue;
        };
        let (values, nope) = (floats(), keys.len() / heads / rank);
        let (mut rows, mut made, mut kept) = (vec![], vec![0.0; keys.len()], vec![]);
        for h in 0..heads {
            for row in 0..nope + value {
                let column = |i: usize| keys[(h * rank + i) * nope + row];
                let x: Vec<f32> = match row.checked_sub(nope) {
                    None => (0..rank).map(column).collect(),
                    Some(row) => values[(h * value + row) * rank..][..rank].to_vec(),
                };
                let (mut blocks, mut decoded) = (vec![0; both.row_bytes(rank).expect("whole blocks")], vec![0.0; rank]);
                both.encode_row(&x, &mut blocks);
                both.decode_row(&blocks, &mut decoded);
                if row < nope {
                    decoded.iter().enumerate().for_each(|(i, v)| made[(h * rank + i) * nope + row] = *v);
                } else {
                    kept.extend_from_slice(&blocks);
                }
                rows.extend(blocks);
            }
        }
        let entry = |what: &str, block, shape: &[usize]| Entry {
            name: format!("{stem}.{what}.weight"),
            dtype: dtype(block),
            shape: shape.iter().map(|n| *n as u64).collect(),
        };
        old.push((entry("attn_kv_b", both, &[rank, heads * (nope + value)]), rows));
        let floats = if both.is_float() { both } else { BlockType::F32 };
        let mut turned = vec![0; floats.row_bytes(made.len()).expect("floats")];
        floats.encode_row(&made, &mut turned);
        new.push((entry("attn_k_b", floats, &[nope, rank, heads]), turned));
        new.push((entry("attn_v_b", both, &[rank, value, heads]), kept));
    }
    let mut meta = c.meta.clone();
    let of_heads = [
        ("attention.key_length", uint("attention.key_length_mla")),
        ("attention.value_length", value as u64),
        ("attention.head_count_kv", heads as u64),
    ];
    for (key, n) in of_heads {
        let entry = meta.entries.iter_mut().find(|(k, _)| *k == format!("deepseek2.{key}"));
        entry.unwrap_or_else(|| panic!("{key}")).1 = Value::U32(n as u32);
    }
    meta.entries.retain(|(key, _)| !key.ends_with("_mla"));
    [gguf(&meta, &old), gguf(&c.meta, &new)]
}

fn words(path: &Path) -> Vec<u32> {
    let found = logits(&open(path), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}"));
    found.iter().flatten().map(|v| v.to_bits()).collect()
}

#[test]
fn a_file_of_an_old_conversion_gives_the_bits_of_a_new_one() {
    for form in FORMS {
        let (dir, path) = model(&format!("{SHAPE} {form} --type f32"));
        for both in [BlockType::F32, BlockType::F16, BlockType::BF16, BlockType::Q8_0, BlockType::Q4_0] {
            let case = format!("{form}, {both:?}");
            let paths = ["old.gguf", "new.gguf"].map(|name| dir.path().join(name));
            for (path, bytes) in paths.iter().zip(old_and_new(&open(&path), both)) {
                std::fs::write(path, bytes).expect("written");
            }
            let [old, new] = paths.each_ref().map(|p| open(p));
            let known = |c: &Container| {
                let mut keys = c.meta.entries.clone();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                keys
            };
            assert_eq!(known(&old), known(&new), "{case}");
            assert!(words(&paths[0]) == words(&paths[1]), "{case}");
        }
        // and is converted to one
        let (old, again) = (dir.path().join("old.gguf"), dir.path().join("again.gguf"));
        let [bytes, _] = old_and_new(&open(&path), BlockType::F32);
        std::fs::write(&old, bytes).expect("written");
        let done = program::isobit(["quantize"]).args([&old, &again]).arg("f32").output().expect("it starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let query = |path: &Path| open(path).meta.uint("deepseek2.attention.key_length_mla");
        assert!(query(&again).is_some() && query(&again) == query(&path), "{form}");
        assert!(open(&again).tensor("blk.1.attn_k_b.weight").is_some() && words(&again) == words(&old), "{form}");
    }
}

/// A file of a mixture with its routers in `router`, and, if they are to stand `alone`, with a tensor for each expert.
fn mixture(c: &Container, router: BlockType, alone: bool) -> Vec<u8> {
    let mut list: Vec<Held> = vec![];
    for t in &c.tensors {
        let mut bytes = vec![0; t.bytes as usize];
        c.read(t, 0, &mut bytes).expect("there");
        let mut entry = Entry { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() };
        if let Some((stem, count)) = t.name.strip_suffix("_exps.weight").zip(t.shape.get(2)).filter(|_| alone) {
            let each = bytes.len() / *count as usize;
            entry.shape.truncate(2);
            for (i, part) in bytes.chunks(each).enumerate() {
                list.push((Entry { name: format!("{stem}.{i}.weight"), ..entry.clone() }, part.to_vec()));
            }
            continue;
        }
        if t.name.ends_with("ffn_gate_inp.weight") {
            let floats: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            entry.dtype = Dtype::from_block(router).expect("one of GGUF's");
            bytes = vec![0; router.row_bytes(floats.len()).expect("whole blocks")];
            router.encode_row(&floats, &mut bytes);
        }
        list.push((entry, bytes));
    }
    gguf(&c.meta, &list)
}

#[test]
fn a_file_with_a_tensor_for_each_expert_gives_the_bits_of_one_with_one_for_all() {
    let shape = "--dim 64 --layers 2 --ffn 96 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --experts 5 --used 2";
    for kind in ["f32", "q8_0", "q4_0"] {
        let (dir, path) = model(&format!("{shape} --type {kind}"));
        // F16 as the first conversions have it
        for router in [BlockType::F32, BlockType::F16] {
            let [old, new] = [("old.gguf", true), ("new.gguf", false)].map(|(name, alone)| {
                let made = dir.path().join(name);
                std::fs::write(&made, mixture(&open(&path), router, alone)).expect("written");
                made
            });
            assert!(open(&old).tensor("blk.1.ffn_down_exps.weight").is_some(), "{kind}");
            assert!(words(&old) == words(&new), "{kind}, {router:?}");
        }
    }
    // one is missing
    let (dir, path) = model(&format!("{shape} --type f32"));
    let mut bytes = mixture(&open(&path), BlockType::F32, true);
    let at = bytes.windows(16).position(|w| w == b"blk.1.ffn_down.2").expect("there");
    bytes[at + 15] = b'7';
    let old = dir.path().join("old.gguf");
    std::fs::write(&old, bytes).expect("written");
    let error = Container::open(&old, LoadMode::Read).expect_err("refused").to_string();
    assert!(error.contains("expert 2") && error.contains("blk.1.ffn_down"), "{error}");
}

#[test]
fn an_old_conversion_whose_sizes_do_not_fit_is_refused() {
    let (dir, path) = model(&format!("{SHAPE} {} --type f32", FORMS[0]));
    let [old, _] = old_and_new(&open(&path), BlockType::F32);
    let path = dir.path().join("changed.gguf");
    let change = |from: &str, to: &str| {
        let mut bytes = old.clone();
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).expect("the text is in the file");
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, bytes).expect("writes");
        refused(&path)
    };
    for key in ["attention.kv_lora_rank", "attention.value_length", "rope.dimension_count"] {
        let error = change(key, &format!("{}x", &key[..key.len() - 1]));
        assert!(error.contains("key_length_mla is missing, and no attn_kv_b"), "{key}: {error}");
    }
    let error = change("blk.1.attn_kv_b", "blk.1.attn_kv_x");
    assert!(error.contains("tensor blk.1.attn_k_b.weight is missing"), "{error}");
}

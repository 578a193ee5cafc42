//! `isobit quantize` to msModelSlim's directories, beside formulas that are written again here, element by element.

use crate::asked::{at, isobit, ok, refused, tensors};
use crate::checkpoint;
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::models::Hyper;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
const WEIGHTS: &str = "quant_model_weights.safetensors";

type Tensors = BTreeMap<String, (String, Vec<u64>, Vec<u8>)>;

fn tiny(name: &str) -> String {
    format!("{DATA}/tiny/{name}")
}

/// Writes a directory and gives its path and the tensors of its file as they are.
fn written(dir: &Path, source: &str, words: &str) -> (String, Tensors) {
    let out = at(dir, &words.replace([' ', '-', '/', '.'], "_"));
    let mut args = vec!["quantize", source, &out];
    args.extend(words.split_whitespace());
    ok(&args);
    let tensors = tensors(&format!("{out}/{WEIGHTS}"));
    (out, tensors)
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn floats(t: &(String, Vec<u64>, Vec<u8>)) -> Vec<f32> {
    let ty = BlockType::parse(&t.0).unwrap_or_else(|| panic!("{} is no float", t.0));
    let mut x = vec![0f32; t.1.iter().product::<u64>() as usize];
    ty.decode_row(&t.2, &mut x);
    x
}

fn codes(t: &(String, Vec<u64>, Vec<u8>)) -> Vec<i32> {
    assert_eq!(t.0, "I8");
    t.2.iter().map(|b| i32::from(*b as i8)).collect()
}

/// The matrices of the layers, by their names without `.weight`.
fn matrices(source: &Tensors) -> Vec<(String, usize, Vec<f32>)> {
    let layers = source.iter().filter(|(name, t)| name.starts_with("model.layers.") && t.1.len() == 2);
    let list: Vec<_> = layers
        .map(|(name, t)| (name.strip_suffix(".weight").unwrap().to_string(), t.1[0] as usize, floats(t)))
        .collect();
    assert!(list.len() >= 7, "{} matrices", list.len());
    list
}

/// What the description says of the tensors, which must be all there are.
fn described(out: &str, tensors: &Tensors) -> Value {
    let d = json(&format!("{out}/quant_model_description.json"));
    let named: Vec<&String> = d.as_object().unwrap().keys().filter(|k| tensors.contains_key(*k)).collect();
    assert_eq!(named.len(), tensors.len(), "the description names every tensor");
    assert_eq!(d["version"], "1.0.0");
    d
}

#[test]
fn codes_scales_and_offsets_of_weights_are_those_of_the_formulas() {
    let (dir, source) = (tempfile::tempdir().unwrap(), tensors(&tiny("hf")));
    for (words, bits, group, symmetric) in [
        ("w8a16", 8, 0, false),
        ("w8a16 --group 32", 8, 32, false),
        ("w4a16 --group 64", 4, 64, false),
        ("W4A16 --symmetric", 4, 0, true),
        ("w8a8-dynamic", 8, 0, true),
    ] {
        let (out, made) = written(dir.path(), &tiny("hf"), words);
        let d = described(&out, &made);
        let scheme = words.split(' ').next().unwrap().to_uppercase().replace('-', "_");
        assert_eq!((&d["model_quant_type"], &d["group_size"]), (&Value::from(scheme.clone()), &Value::from(group)));
        let (low, high) = if bits == 8 { (-128f32, 127f32) } else { (-8.0, 7.0) };
        for (stem, k, x) in matrices(&source) {
            let (n, group) = (x.len() / k, if group == 0 { k } else { group });
            let weight = &made[&format!("{stem}.weight")];
            let [scale, offset] = ["scale", "offset"].map(|what| &made[&format!("{stem}.weight_{what}")]);
            assert_eq!(scale.1, [(k / group) as u64, n as u64], "{words} {stem}");
            let [scale, offset] = [floats(scale), floats(offset)];
            // the first of two columns in the low nibble
            let codes: Vec<i32> = match bits {
                8 => codes(weight),
                _ => weight.2.iter().flat_map(|b| [(b << 4) as i8 >> 4, *b as i8 >> 4]).map(i32::from).collect(),
            };
            assert_eq!(codes.len(), x.len());
            for (g, group) in x.chunks(group).enumerate() {
                let (min, max) = group.iter().fold((0f32, 0f32), |m, v| (m.0.min(*v), m.1.max(*v)));
                let (d, o) = match symmetric {
                    true => (max.max(-min) / high, 0.0),
                    false => ((max - min) / (high - low), 0.0),
                };
                let o = if symmetric { o } else { (low - min / d).round_ties_even() };
                assert_eq!((scale[g], offset[g]), (d, o), "{words} {stem} group {g}");
                for (i, v) in group.iter().enumerate() {
                    let q = ((v / d).round_ties_even() + o).clamp(low, high);
                    assert_eq!(codes[g * group.len() + i], q as i32, "{words} {stem} group {g} element {i}");
                }
            }
            assert_eq!(d[format!("{stem}.weight_scale")], scheme);
        }
        // everything else is as it was
        for name in ["model.embed_tokens.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight"] {
            assert!(made[name] == source[name], "{words} {name}");
            assert_eq!(d[name], "FLOAT");
        }
    }
}

#[test]
fn a_gguf_file_and_the_directory_it_was_made_of_give_the_same_codes() {
    let dir = tempfile::tempdir().unwrap();
    let f16 = tiny("tiny-stories-f16.gguf");
    let (from_hf, a) = written(dir.path(), &tiny("hf"), "w8a16 --group 32");
    let (from_gguf, b) = written(dir.path(), &f16, "w8a16 --group 32 --threads 2");
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, t) in &a {
        // a GGUF file keeps its norms in F32
        assert!(*t == b[name] || floats(t) == floats(&b[name]), "{name}");
    }
    let hyper = |dir: &str| Hyper::read(&Container::open(Path::new(dir), LoadMode::Read).unwrap()).unwrap();
    let (mut a, mut b) = (hyper(&from_hf), hyper(&from_gguf));
    for h in [&mut a, &mut b] {
        (h.name, h.tied) = (String::new(), None);
    }
    assert_eq!(a, b);
    assert!(Path::new(&format!("{from_gguf}/metadata.gguf")).is_file(), "the tokeniser");
    assert!(Path::new(&format!("{from_hf}/tokenizer.json")).is_file());
}

#[test]
fn fixed_scales_come_from_the_text_and_fold_offset_and_bias_into_quant_bias() {
    let (dir, source) = (tempfile::tempdir().unwrap(), tensors(&tiny("hf")));
    let text = tiny("valid.txt");
    let words = format!("w8a8 --calibrate {text} --calibrate-tokens 300 --kv c8");
    let out = at(dir.path(), "static");
    ok(&[&["quantize", &tiny("hf"), &out][..], &words.split_whitespace().collect::<Vec<_>>()].concat());
    let made = tensors(&format!("{out}/{WEIGHTS}"));
    let d = described(&out, &made);
    assert_eq!((&d["kv_cache_type"], &d["kv_quant_type"]), (&Value::from("C8"), &Value::from("C8")));
    for (stem, k, x) in matrices(&source) {
        let get = |what: &str| &made[&format!("{stem}.{what}")];
        let [scale, offset] = ["input_scale", "input_offset"].map(|what| floats(get(what))[0]);
        assert!(scale > 0.0 && offset.fract() == 0.0 && (-128.0..=127.0).contains(&offset), "{stem} {scale} {offset}");
        let codes = codes(get("weight"));
        // beside weights of F16: the bits of an f32, its sign drawn out
        let deq = get("deq_scale");
        assert_eq!((&deq.0[..], &deq.1[..]), ("I64", &[(x.len() / k) as u64][..]));
        let bias = get("quant_bias");
        assert_eq!(bias.0, "I32");
        for (r, row) in x.chunks(k).enumerate() {
            let s = row.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
            let wide = i64::from_le_bytes(deq.2[8 * r..8 * r + 8].try_into().unwrap());
            assert_eq!((wide >> 32, f32::from_bits(wide as u32)), (0, scale * s), "{stem} row {r}");
            let sum: i32 = codes[r * k..][..k].iter().sum();
            let b = i32::from_le_bytes(bias.2[4 * r..4 * r + 4].try_into().unwrap());
            assert_eq!(f64::from(b), -f64::from(sum) * f64::from(offset), "{stem} row {r}");
        }
    }
    // matrices that read the same thing share its scale
    for (a, b) in [("self_attn.q_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj")] {
        let of = |p: &str| made[&format!("model.layers.1.{p}.input_scale")].2.clone();
        assert_eq!(of(a), of(b));
        assert_ne!(of(a), made["model.layers.1.mlp.down_proj.input_scale"].2);
    }
    let h = Hyper::read(&Container::open(Path::new(&tiny("hf")), LoadMode::Read).unwrap()).unwrap();
    for what in ["k_proj.kv_cache_scale", "k_proj.kv_cache_offset", "v_proj.kv_cache_scale", "v_proj.kv_cache_offset"] {
        let name = format!("model.layers.0.self_attn.{what}");
        assert_eq!(floats(&made[&name]).len(), h.kv_heads * h.head_dim, "{name}");
        assert_eq!(d[name], "C8");
    }
    // of a GGUF file, whose heads are in another order, channel for channel the same
    let (_, other) = {
        let out = at(dir.path(), "gguf");
        let f16 = tiny("tiny-stories-f16.gguf");
        ok(&[&["quantize", &f16, &out][..], &words.split_whitespace().collect::<Vec<_>>()].concat());
        (out.clone(), tensors(&format!("{out}/{WEIGHTS}")))
    };
    for (name, t) in made.iter().filter(|(name, _)| name.contains("kv_cache_scale")) {
        for (a, b) in floats(t).iter().zip(floats(&other[name])) {
            assert!((a - b).abs() <= 2e-3 * a, "{name}: {a} and {b}");
        }
    }
}

#[test]
fn smooth_quant_moves_factors_from_norms_to_columns_and_keeps_the_norm() {
    let (dir, source) = (tempfile::tempdir().unwrap(), tensors(&tiny("hf")));
    let words = format!("w8a8-dynamic --calibrate {} --calibrate-tokens 200 --smooth 0.5", tiny("valid.txt"));
    let out = at(dir.path(), "smooth");
    ok(&[&["quantize", &tiny("hf"), &out][..], &words.split_whitespace().collect::<Vec<_>>()].concat());
    let made = tensors(&format!("{out}/{WEIGHTS}"));
    let mut moved = 0;
    for (norm, readers) in [
        ("input_layernorm", ["self_attn.q_proj", "self_attn.k_proj"]),
        ("post_attention_layernorm", ["mlp.gate_proj", "mlp.up_proj"]),
    ] {
        let norm = format!("model.layers.2.{norm}");
        let old = &source[&format!("{norm}.weight")];
        assert!(made[&format!("{norm}.weight")] == *old);
        let new = &made[&format!("{norm}.module.weight")];
        assert_eq!((&new.0, &new.1), (&old.0, &old.1));
        assert!(floats(&made[&format!("{norm}.module.bias")]).iter().all(|v| *v == 0.0));
        let factors: Vec<f32> = floats(old).iter().zip(floats(new)).map(|(a, b)| a / b).collect();
        moved += factors.iter().filter(|f| (**f - 1.0).abs() > 0.1).count();
        for stem in readers.map(|r| format!("model.layers.2.{r}")) {
            let x = floats(&source[&format!("{stem}.weight")]);
            let (codes, scale) =
                (codes(&made[&format!("{stem}.weight")]), floats(&made[&format!("{stem}.weight_scale")]));
            for (i, (v, q)) in x.iter().zip(codes).enumerate() {
                let (row, column) = (i / factors.len(), i % factors.len());
                let wanted = v * factors[column];
                assert!((q as f32 * scale[row] - wanted).abs() <= scale[row] * 0.5001, "{stem} {row} {column}");
            }
        }
        let stem = "model.layers.2.self_attn.o_proj";
        let (codes, scale) = (codes(&made[&format!("{stem}.weight")]), floats(&made[&format!("{stem}.weight_scale")]));
        let x = floats(&source[&format!("{stem}.weight")]);
        assert!((codes[0] as f32 * scale[0] - x[0]).abs() <= scale[0] * 0.5001, "what no norm feeds stays");
    }
    assert!(moved > 50, "{moved} factors are other than 1");
}

#[test]
fn two_rows_of_four_bits_share_bytes_and_have_their_compensation() {
    let (dir, source) = (tempfile::tempdir().unwrap(), tensors(&tiny("hf")));
    let (out, made) = written(dir.path(), &tiny("hf"), "w4a8-dynamic");
    described(&out, &made);
    for (stem, k, x) in matrices(&source) {
        let (n, weight) = (x.len() / k, &made[&format!("{stem}.weight")]);
        assert_eq!(weight.1, [k as u64, n as u64 / 2]);
        let scale = floats(&made[&format!("{stem}.weight_scale")]);
        let bias = &made[&format!("{stem}.scale_bias")];
        let parts = if stem.ends_with("o_proj") || stem.ends_with("down_proj") { 16 } else { 1 };
        assert_eq!(bias.1, [parts as u64, n as u64], "{stem}");
        let bias = floats(bias);
        for r in 0..n {
            let nibble = |c: usize| {
                let byte = weight.2[r / 2 * k + c];
                i32::from(if r % 2 == 0 { (byte << 4) as i8 >> 4 } else { byte as i8 >> 4 })
            };
            for c in 0..k {
                assert!((nibble(c) as f32 * scale[r] - x[r * k + c]).abs() <= scale[r] * 0.5001, "{stem} {r} {c}");
            }
            for part in 0..parts {
                let sum: i32 = (part * k / parts..(part + 1) * k / parts).map(nibble).sum();
                assert_eq!(bias[r * parts + part], (8.0 * f64::from(sum) * f64::from(scale[r])) as f32);
            }
        }
    }
}

#[test]
fn every_family_is_written_from_both_of_its_forms_but_a_chatglm_from_gguf() {
    let text = tiny("valid.txt");
    let words = ["w8a8", "--calibrate", &text, "--calibrate-tokens", "40", "--smooth", "0.5", "--kv", "c8"];
    for preset in ["tiny", "phi3-tiny", "qwen2-tiny", "qwen3-tiny", "chatglm-tiny"] {
        for form in ["", " --format hf", " --format chatglm"] {
            if preset != "chatglm-tiny" && form.ends_with("chatglm") {
                continue;
            }
            let (dir, source) = checkpoint::model(&format!("--preset {preset} --layers 2 --type f16{form}"));
            let (source, out) = (source.to_str().unwrap(), at(dir.path(), "out"));
            if preset == "chatglm-tiny" && form.is_empty() {
                refused(&["quantize", source, &out, "w8a16"], &["a ChatGLM in a GGUF file", "give its directory"]);
                continue;
            }
            ok(&[&["quantize", source, &out][..], &words].concat());
            let made = tensors(&format!("{out}/{WEIGHTS}"));
            let d = described(&out, &made);
            assert_eq!(made.keys().filter(|n| n.ends_with("module.weight")).count(), 4, "{preset}{form}");
            let caches = made.keys().filter(|n| n.contains("k_proj.kv_cache_")).count();
            assert_eq!(caches, 4, "{preset}{form}");
            let scored = ok(&["perplexity", &out, "-f", &text, "-c", "32", "--chunks", "1", "-d", "cpu"]);
            assert!(scored.contains("PPL = "), "{preset}{form}: {scored}");
            assert!(d.as_object().unwrap().values().any(|v| v == "W8A8"), "{preset}{form}");
        }
    }
}

#[test]
fn a_config_made_of_metadata_is_read_as_that_of_the_directory_before() {
    let hyper = |path: &str| Hyper::read(&Container::open(Path::new(path), LoadMode::Read).unwrap()).unwrap();
    for args in [
        "--preset tiny --rope llama3 --original-ctx 8192 --ctx 65536",
        "--preset qwen2-tiny --rope yarn",
        "--preset qwen3-tiny",
        "--preset phi3-tiny --rope longrope --head-dim 96 --rotary 0.75",
    ] {
        let (dir, source) = checkpoint::model(&format!("{args} --layers 1 --type f16 --format hf"));
        let (source, gguf, out) = (source.to_str().unwrap(), at(dir.path(), "m.gguf"), at(dir.path(), "out"));
        ok(&["quantize", source, &gguf, "f16"]);
        ok(&["quantize", &gguf, &out, "w8a16"]);
        let (mut a, mut b) = (hyper(source), hyper(&out));
        for h in [&mut a, &mut b] {
            (h.name, h.arch, h.tied) = (String::new(), String::new(), None);
        }
        assert_eq!(a, b, "{args}");
    }
    let (dir, source) = checkpoint::model("--preset tiny --layers 1 --type f16 --format hf --rope llama3");
    let (gguf, out) = (at(dir.path(), "m.gguf"), at(dir.path(), "out"));
    ok(&["quantize", source.to_str().unwrap(), &gguf, "f16"]);
    refused(&["quantize", &gguf, &out, "w8a16"], &["rope_freqs.weight", "Llama 3.1"]);
}

#[test]
fn what_cannot_be_written_is_refused_in_one_line_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (f16, text, out) = (tiny("tiny-stories-f16.gguf"), tiny("valid.txt"), at(dir.path(), "out"));
    let gguf = at(dir.path(), "out.gguf");
    for (args, words) in [
        (&["quantize", &f16, &out, "w9a9"][..], &["w8a16", "w4a8-dynamic"][..]),
        (&["quantize", &f16, &out, "w8a16", "--group", "96"], &["a group of 96 does not divide"]),
        (&["quantize", &f16, &out, "w8a16", "--group", "33"], &["a multiple of 32"]),
        (&["quantize", &f16, &out, "w8a8"], &["--calibrate FILE", "w8a8-dynamic"]),
        (&["quantize", &f16, &out, "w8a8", "--calibrate", "no.txt"], &["no.txt"]),
        (&["quantize", &f16, &gguf, "w8a16"], &["written as a directory"]),
        (&["quantize", &f16, &out, "w8a16", "--smooth", "0.5", "--calibrate", &text], &["--smooth has no effect"]),
        (&["quantize", &f16, &out, "w8a8-dynamic", "--smooth", "1.5", "--calibrate", &text], &["from 0 to 1"]),
        (&["quantize", &f16, &out, "w8a8-dynamic", "--calibrate", &text], &["--calibrate has no effect"]),
        (&["quantize", &f16, &out, "w8a8-dynamic", "--group", "32"], &["--group has no effect"]),
        (&["quantize", &f16, &out, "w8a16", "--pure"], &["--pure has no effect"]),
        (&["quantize", &f16, &out, "w8a16", "--to", "packed"], &["--to has no effect"]),
        (&["quantize", &f16, &out, "q8_0", "--group", "32"], &["--group has no effect"]),
        (
            &["quantize", &tiny("tiny-stories-Q8_0.gguf"), &out, "w8a16"],
            &["Q8_0", "quantised already", "--allow-requantize"],
        ),
        (&["quantize", &tiny("hf/model.safetensors"), &out, "w8a16"], &["config.json"]),
    ] {
        refused(args, words);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?}");
    }
    std::fs::create_dir(&out).unwrap();
    std::fs::write(at(Path::new(&out), "mine"), b"x").unwrap();
    refused(&["quantize", &f16, &out, "w8a8", "--calibrate", &text], &["not empty"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_is_kept_of_a_quantised_source_becomes_f16() {
    let dir = tempfile::tempdir().unwrap();
    let out = at(dir.path(), "out");
    ok(&["quantize", &tiny("tiny-stories-Q8_0.gguf"), &out, "w8a16", "--allow-requantize"]);
    let made = tensors(&format!("{out}/{WEIGHTS}"));
    assert_eq!(made["model.embed_tokens.weight"].0, "F16");
    assert_eq!(made["model.layers.0.mlp.up_proj.weight"].0, "I8");
}

#[test]
fn a_dry_run_lists_the_matrices_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = at(dir.path(), "out");
    let o = isobit(&["quantize", &tiny("hf"), &out, "w4a16", "--group", "32", "--dry-run", "--json"]);
    let v: Value = serde_json::from_slice(&o.stdout).unwrap();
    let list = v["tensors"].as_array().unwrap();
    assert_eq!(list.iter().filter(|t| t["kept"] == false).count(), matrices(&tensors(&tiny("hf"))).len());
    assert_eq!(list.len(), tensors(&tiny("hf")).len());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

//! `shaders`, `tokenize`, `inspect` and `perplexity`: what they print.

use super::*;

#[cfg(feature = "gpu")]
#[test]
fn shaders_writes_every_shader_and_an_index_and_stays_out_of_the_help() {
    use isobit::internals::host::shaders::SHADERS;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("expanded");
    isobit(&["shaders", "--out", out.to_str().unwrap(), "--sets", "cover"]).ok();
    let index = std::fs::read_to_string(out.join("index.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = index.lines().map(|l| l.split('\t').collect()).collect();
    assert_eq!(rows[0], ["shader", "wgsl", "sha256", "entry", "enable", "overrides", "spirv", "default"]);
    for s in SHADERS {
        let row = rows.iter().find(|r| r[0] == s.name).unwrap_or_else(|| panic!("{} is not in the index", s.name));
        assert_eq!(std::fs::read_to_string(out.join(row[1])).unwrap(), s.source);
        assert_eq!((row[3], row[4], row[6]), ("main", if s.subgroups { "subgroups" } else { "" }, ""));
    }
    assert!(rows.iter().any(|r| r[0] == "cache_write_k" && r[5] == "cache_type=7"), "{index}");
    // what runs unmeasured, and what only a measurement, a user's word or no model at all brings in
    for (names, default) in [
        (
            &["q4k_matvec4", "q4k_matmul", "q4k_matmul8", "q4k_gate_up4", "attention_chunks", "attention_tile_wide"][..],
            "1",
        ),
        (&["q4k_matvec", "q4k_staged", "q4k_gate_up", "norm_quantize_subgroup", "q8_0_encode", "float_probe"], ""),
    ] {
        for name in names {
            let row = rows.iter().find(|r| r[0] == *name).unwrap_or_else(|| panic!("{name} is not in the index"));
            assert_eq!(row[7], default, "{name}");
        }
    }
    assert!(!isobit(&["--help"]).ok().out.contains("shaders"));
}

#[cfg(feature = "gpu")]
#[test]
fn shaders_compiles_other_files_and_says_where_one_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let out = dir.path().join("out");
    let (good, out) = (file("good.wgsl", "@compute @workgroup_size(1)\nfn main() {}\n"), out.to_str().unwrap());
    isobit(&["shaders", "--out", out, "--spirv", &good]).ok();
    let words = std::fs::read(format!("{out}/good.spv")).unwrap();
    assert_eq!(words[..4], 0x0723_0203u32.to_le_bytes(), "SPIR-V begins so");
    let bad = file("bad.wgsl", "@compute @workgroup_size(1)\nfn main() { let x = ; }\n");
    isobit(&["shaders", "--out", out, "--spirv", &bad]).refused_with(2, &["bad.wgsl", "line 2"]);
    let twice = file("other/good.wgsl", "");
    isobit(&["shaders", "--out", out, &good, &twice]).refused_with(2, &["good.wgsl", "another name"]);
    isobit(&["shaders", "--out", out, "absent.wgsl"]).refused_with(2, &["absent.wgsl"]);
}

#[test]
fn tokenize_gives_the_ids_of_the_reference_cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokenizer/tiny_cases.json");
    let cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 20);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        // the reference reads control tokens in the text
        let v = isobit(&["tokenize", MODEL, "-p", text, "--no-bos", "--special", "--json"]).json();
        assert_eq!(v["ids"], case["ids"], "{text:?}");
    }
}

#[test]
fn tokenize_puts_the_beginning_of_text_token_in_front_unless_told_not_to() {
    let ids =
        |flags: &[&str]| isobit(&[&["tokenize", "-p", "hi there", "--json"], flags].concat()).json()["ids"].clone();
    assert_eq!(ids(&[]), serde_json::json!([0, 73, 74, 447]));
    assert_eq!(ids(&["--no-bos"]), serde_json::json!([73, 74, 447]));
}

#[test]
fn tokenize_prints_a_line_for_each_token_and_bytes_that_are_no_text() {
    let out = isobit(&["tokenize", "-p", "hi 日", "--no-bos"]).ok().out;
    let lines: Vec<&str> = out.lines().map(str::trim).collect();
    assert_eq!(lines[..2], ["73  \"h\"", "74  \"i\""]);
    assert!(lines.iter().any(|l| l.ends_with(r#""\xe6""#)), "{lines:?}");
}

// inspect

#[test]
fn inspect_shows_what_the_model_holds() {
    let out = isobit(&["inspect", MODEL]).ok().out;
    for word in ["arch=llama", "tensors=38", "Q4_K", "layers=4 dim=256", "token_embd.weight: Q6_K dims=(256, 2048)"] {
        assert!(out.contains(word), "no {word:?} in {out}");
    }
    let all = isobit(&["inspect", MODEL, "--tensors"]).ok().out;
    assert!(all.contains("blk.3.ffn_down.weight") && !out.contains("blk.3.ffn_down.weight"));
}

#[test]
fn inspect_json_counts_tensors_bytes_and_the_cache() {
    let v = isobit(&["inspect", "--json", "--tensors"]).json();
    assert_eq!((v["format"].as_str(), v["architecture"].as_str()), (Some("gguf"), Some("llama")));
    assert_eq!((v["tensor_count"].as_u64(), v["runs"].as_bool()), (Some(38), Some(true)));
    assert_eq!(v["cache_bytes_per_token"]["f16"], 2048);
    let tensors = v["tensors"].as_array().unwrap();
    assert_eq!(tensors.iter().map(|t| t["bytes"].as_u64().unwrap()).sum::<u64>(), v["bytes"].as_u64().unwrap());
    let types = v["types"].as_array().unwrap();
    assert_eq!(types.iter().map(|t| t["tensors"].as_u64().unwrap()).sum::<u64>(), 38);
}

#[test]
fn inspect_reads_a_lone_safetensors_file_and_says_why_it_does_not_run() {
    let dir = folder();
    let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 8]].concat();
    let file = put(dir.path(), "x.safetensors", &bytes);
    let out = isobit(&["inspect", &file]).ok().out;
    assert!(out.contains("tensors=1") && out.contains("does not run") && out.contains("config.json"), "{out}");
    run(&[&file, "-p", "hi"]).refused_with(2, &["x.safetensors", "config.json"]);
}

#[test]
fn inspect_says_how_the_activations_of_quantised_matrices_become_codes() {
    let dir = folder();
    put(dir.path(), "config.json", b"{\"model_type\":\"llama\"}");
    for name in ["quant_model_weights.safetensors", "quant_model_description.json"] {
        let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/msmodelslim");
        put(dir.path(), name, &std::fs::read(format!("{stored}/{name}")).unwrap());
    }
    let path = dir.path().to_str().unwrap();
    let out = isobit(&["inspect", path, "--tensors"]).ok().out;
    for words in [
        "W8A16:     2 tensors",
        "W8A8:     3 tensors",
        "activations of W8A8: 2 matrices with a scale for each token, 1 with a fixed one",
        "self_attn.o_proj.weight: W8A8 dims=(64, 16) activations=dynamic limit=127",
        "self_attn.q_proj.weight: W8A8 dims=(64, 16) activations=static scale=0.0",
    ] {
        assert!(out.contains(words), "no {words:?} in {out}");
    }
    let v = isobit(&["inspect", path, "--tensors", "--json"]).json();
    assert_eq!(v["activations"], serde_json::json!({"dynamic": 2, "static": 1}));
    let of = |name: &str| {
        let all = v["tensors"].as_array().unwrap();
        all.iter().find(|t| t["name"] == format!("model.layers.0.{name}.weight")).unwrap()["activations"].clone()
    };
    assert_eq!(of("mlp.down_proj"), serde_json::json!({"kind": "dynamic", "limit": 127}));
    assert_eq!(of("self_attn.q_proj")["kind"], "static");
    assert!(of("mlp.up_proj").is_null());
}

// perplexity

#[test]
fn perplexity_is_the_same_number_on_every_level_and_batch() {
    let dir = folder();
    let text = put(
        dir.path(),
        "text.txt",
        "The king had three sons, and the youngest was called Jack. ".repeat(12).as_bytes(),
    );
    let of = |flags: &[&str]| isobit(&[&["perplexity", "-f", &text, "-c", "64", "--json"], flags].concat()).json();
    let want = of(&["--device", "cpu:scalar"]);
    for key in ["ppl", "nll", "stderr", "tokens", "chunks"] {
        assert!(number(&want, &format!("/{key}")) > 0.0, "{want}");
    }
    assert!((number(&want, "/ppl").ln() - number(&want, "/nll")).abs() < 1e-12);
    for flags in ["--device cpu", "--device cpu --ubatch 1", "--device cpu --ubatch 9 --threads 1"] {
        assert_eq!(of(&words(flags))["ppl"], want["ppl"], "{flags}");
    }
    let line = isobit(&["perplexity", "-f", &text, "-c", "64", "--device", "cpu"]).ok().out;
    let expected = format!("Final estimate: PPL = {:.4} +/- {:.5}\n", number(&want, "/ppl"), number(&want, "/stderr"));
    assert_eq!(line, expected);
    assert_eq!(number(&of(&["--device", "cpu", "--chunks", "1"]), "/chunks"), 1.0);
}

#[test]
fn perplexity_of_a_text_that_is_too_short_says_so() {
    let dir = folder();
    let text = put(dir.path(), "short.txt", b"The king");
    let refused = |flags: &[&str]| isobit(&[&["perplexity", "-f", &text, "--device", "cpu"], flags].concat());
    refused(&[]).refused_with(2, &["short.txt", "tokens", "window of 512"]);
    refused(&["-c", "2"]).refused_with(2, &["-c is 2", "at least 4"]);
}

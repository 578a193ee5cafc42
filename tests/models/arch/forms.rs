//! GGUF files and directories of the same weights, and what `quantize` makes of one: the same bits and the same ids.

use super::*;

const GEMMA4: &str = "--arch gemma4 --tied --layers 9 --window 20 --dim 72 --head-dim 64 --uneven 32,2,3,4,2,24,0";
const GEMMA4_EXPERTS: &str = "--arch gemma4 --layers 4 --window 20 --head-dim 64 --kv-heads 1 --uneven 32,4,2,0,1,0,1 --experts 6 --used 2 --expert-ffn 40";

#[test]
fn both_file_forms_of_the_same_weights_give_the_same_bits() {
    for args in [
        "--arch phi3",
        "--arch phi3 --rope longrope --original-ctx 100",
        "--arch qwen2 --tied",
        "--arch qwen2 --rope yarn",
        "--arch qwen3 --head-dim 32",
        "--arch chatglm",
        "--arch olmo2 --head-dim 24",
        "--arch olmo2 --layers 5 --window 20 --rope yarn --original-ctx 64",
        "--arch exaone4 --tied",
        "--arch exaone4 --layers 5 --window 20",
        "--arch glm4 --head-dim 24",
        "--arch gemma2 --tied --layers 4 --window 20 --dim 72 --head-dim 32",
        "--arch gemma3 --tied --layers 7 --window 20 --dim 72 --head-dim 32 --rope linear",
        GEMMA4,
        GEMMA4_EXPERTS,
        "--arch qwen2moe --experts 6 --used 3 --expert-ffn 40 --shared 72",
        "--arch qwen3moe --experts 5 --used 2 --expert-ffn 40",
        "--arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 40 --shared 80 --dense 1",
        "--arch gpt-oss --layers 3 --window 20 --experts 6 --used 3 --rope yarn --original-ctx 64",
        "--arch deepseek2 --layers 3 --experts 6 --used 3 --expert-ffn 40 --shared 80 --dense 1",
        DEEPSEEK,
        "--arch starcoder2 --tied --window 20",
        "--arch stablelm --rope yarn --original-ctx 64",
        "--arch stablelm --larger",
        "--arch cohere2 --tied --layers 5 --window 20",
        "--arch command-r --tied --larger",
        "--arch phi2 --dim 160 --heads 2 --kv-heads 2",
        "--arch gpt2 --tied --kv-heads 4",
        "--arch falcon --tied --kv-heads 1",
        "--arch falcon --tied --larger --heads 8",
    ] {
        let (_a, gguf) = model(&format!("{SMALL} {args}"));
        let (_b, hf) = model(&format!("{SMALL} {args} --format hf --shards 3"));
        for n_ctx in [64, 128] {
            let [a, b] = [&gguf, &hf].map(|p| logits(&open(p), &ids(40), n_ctx).unwrap_or_else(|e| panic!("{e:#}")));
            assert!(
                a.iter().flatten().map(|v| v.to_bits()).eq(b.iter().flatten().map(|v| v.to_bits())),
                "{args}, context {n_ctx}"
            );
        }
    }
}

#[test]
fn both_file_forms_of_a_llama_agree_though_their_heads_are_in_another_order() {
    for args in [
        "--arch llama",
        "--arch smollm3 --layers 5",
        "--arch granite --head-dim 32",
        "--experts 5 --used 2",
        "--arch granitemoe --experts 5 --used 3 --shared 56",
    ] {
        let (_a, gguf) = model(&format!("{SMALL} {args}"));
        let (_b, hf) = model(&format!("{SMALL} {args} --format hf"));
        let [a, b] = [&gguf, &hf].map(|p| logits(&open(p), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")));
        let (worst, flips, diff) = distance(&a, &b);
        assert!(worst < 1e-9 && flips == 0 && diff < 1e-4, "{args}: {worst} {flips} {diff}");
    }
}

/// A directory whose config.json was changed, and the GGUF file that `isobit quantize` makes of it.
fn directory_and_file(args: &str, change: &dyn Fn(&mut serde_json::Value)) -> (TempDir, [PathBuf; 2]) {
    let (dir, hf) = model(&format!("{SMALL} --format hf {args}"));
    let file = hf.join("config.json");
    let mut v: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("json");
    change(&mut v);
    std::fs::write(&file, v.to_string()).expect("writes");
    let gguf = dir.path().join("made.gguf");
    let made = program::isobit(["quantize"]).args([&hf, &gguf]).arg("f32").output().expect("it starts");
    assert!(made.status.success(), "{args}: {}", String::from_utf8_lossy(&made.stderr));
    (dir, [hf, gguf])
}

#[test]
fn a_directory_and_the_file_quantize_makes_of_it_give_the_same_bits() {
    use serde_json::json;
    type Change<'a> = &'a dyn Fn(&mut serde_json::Value);
    let drop_key = |c: &mut serde_json::Value, key: &str| drop(c.as_object_mut().expect("an object").remove(key));
    let yarn = "--arch qwen2 --rope yarn";
    let long = "--arch phi3 --rope longrope --original-ctx 100";
    let gemma = "--arch gemma3 --tied --layers 7 --window 20 --dim 72 --head-dim 32";
    let glm = "--arch glm4moe --layers 3 --experts 6 --used 2 --expert-ffn 40 --shared 80 --dense 1";
    let gemma2 = "--arch gemma2 --tied --layers 4 --window 20 --dim 72 --head-dim 32";
    let cases: [(&str, Change); 61] = [
        ("--arch qwen2 --rope llama3", &|_| {}),
        ("--arch qwen2", &|c| c["rope_scaling"] = json!({"type": "linear", "factor": 2.3})),
        (yarn, &|_| {}),
        (yarn, &|c| c["rope_scaling"]["beta_fast"] = 20.1.into()),
        (yarn, &|c| c["rope_scaling"]["beta_slow"] = 1.7.into()),
        (yarn, &|c| c["rope_scaling"]["attention_factor"] = 1.3.into()),
        (yarn, &|c| {
            (c["rope_scaling"]["mscale"], c["rope_scaling"]["mscale_all_dim"]) = (0.7.into(), 0.9.into());
        }),
        (yarn, &|c| drop_key(&mut c["rope_scaling"], "factor")),
        (yarn, &|c| {
            (c["rope_scaling"]["factor"], c["original_max_position_embeddings"]) = (3.7.into(), 32.into());
        }),
        (long, &|_| {}),
        (long, &|c| c["rope_scaling"]["attention_factor"] = 1.27.into()),
        (long, &|c| c["rope_scaling"]["factor"] = 3.3.into()),
        (long, &|c| c["rope_scaling"]["type"] = "yarn".into()),
        (long, &|c| c["rope_scaling"]["type"] = "su".into()),
        (long, &|c| c["rope_scaling"]["original_max_position_embeddings"] = 60.into()),
        ("--arch phi3 --rotary 0.5", &|_| {}),
        ("--arch phi3 --rotary 0.5", &|c| {
            c["partial_rotary_factor"] = serde_json::Value::Null;
            c["rope_parameters"] = json!({"rope_theta": 10000.0, "partial_rotary_factor": 0.5});
        }),
        ("--arch phi3", &|c| drop_key(c, "rms_norm_eps")),
        ("--arch phi3", &|c| c["sliding_window"] = 128.into()),
        ("--arch qwen2", &|c| c["sliding_window"] = 32.into()),
        // shorter than what is read
        ("--arch phi3", &|c| c["sliding_window"] = 20.into()),
        ("--arch qwen2", &|c| {
            (c["sliding_window"], c["use_sliding_window"]) = (20.into(), true.into());
            c["max_window_layers"] = 1.into();
        }),
        ("--arch qwen3 --head-dim 128", &|c| drop_key(c, "head_dim")),
        ("--arch qwen3", &|c| c["rope_theta"] = 12345.678.into()),
        ("--arch olmo2 --head-dim 24", &|_| {}),
        ("--arch olmo2 --layers 5 --window 20 --rope yarn --original-ctx 64", &|_| {}),
        ("--arch olmo2 --layers 2 --window 20", &|c| c["layer_types"] = json!(["full_attention", "sliding_attention"])),
        ("--arch exaone4 --rope llama3", &|_| {}),
        ("--arch exaone4 --layers 5 --window 20", &|_| {}),
        ("--arch exaone4 --layers 3 --window 20", &|c| c["sliding_window_pattern"] = "LG".into()),
        ("--arch glm4 --head-dim 24", &|_| {}),
        ("--arch glm4", &|c| drop_key(c, "attention_bias")),
        (gemma, &|_| {}),
        (gemma, &|c| {
            drop_key(c, "rope_theta");
            c["rope_scaling"] = json!({"rope_type": "linear", "factor": 8.0});
        }),
        (gemma, &|c| {
            c["rope_parameters"] = json!({"full_attention": {"rope_type": "default", "rope_theta": 1.1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 12345.6}});
        }),
        (gemma, &|c| c["sliding_window_pattern"] = 3.into()),
        ("--arch qwen2moe --experts 6 --used 3 --expert-ffn 40 --shared 72", &|_| {}),
        ("--arch qwen3moe --experts 5 --used 2 --expert-ffn 40", &|_| {}),
        ("--arch gpt-oss --layers 3 --window 20 --experts 6 --used 3 --rope yarn --original-ctx 64", &|_| {}),
        (glm, &|_| {}),
        (glm, &|c| c["routed_scaling_factor"] = 2.25.into()),
        (glm, &|c| c["norm_topk_prob"] = false.into()),
        (glm, &|c| (c["n_group"], c["topk_group"]) = (3.into(), 2.into())),
        // the last layer guesses at further tokens: it is not computed
        (glm, &|c| c["num_hidden_layers"] = 2.into()),
        ("--arch starcoder2 --tied --window 20", &|_| {}),
        ("--arch stablelm", &|_| {}),
        ("--arch stablelm --larger", &|_| {}),
        ("--arch cohere2 --tied --layers 5 --window 20", &|_| {}),
        ("--arch command-r --tied --larger", &|c| c["logit_scale"] = 0.8333333333333334.into()),
        ("--arch command-r --tied", &|c| drop_key(c, "logit_scale")),
        ("--arch phi2 --dim 160 --heads 2 --kv-heads 2", &|_| {}),
        ("--arch gpt2 --tied --kv-heads 4 --ffn 256", &|c| drop_key(c, "n_inner")),
        ("--arch falcon --tied --kv-heads 1", &|c| c["num_kv_heads"] = 4.into()),
        ("--arch falcon --tied --larger --heads 8", &|_| {}),
        (gemma, &|c| c["final_logit_softcapping"] = 4.into()),
        (GEMMA4, &|_| {}),
        (GEMMA4, &|c| c["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 0.5.into()),
        (GEMMA4_EXPERTS, &|_| {}),
        (gemma2, &|_| {}),
        (gemma2, &|c| {
            c["attn_logit_softcapping"] = serde_json::Value::Null;
            drop_key(c, "final_logit_softcapping");
        }),
        (gemma2, &|c| c["layer_types"] = json!(vec!["full_attention"; 4])),
    ];
    for (i, (args, change)) in cases.into_iter().enumerate() {
        let (_dir, paths) = directory_and_file(args, change);
        let [a, b] = paths.each_ref().map(|p| hyper(&open(p)));
        assert_eq!((a.window, a.n_rot, a.head_dim, a.eps), (b.window, b.n_rot, b.head_dim, b.eps), "case {i}: {args}");
        // a model without a window need not say which layers have none
        let layers = |h: &Hyper| if h.window.is_some() { h.window_layers.clone() } else { Vec::new() };
        assert_eq!(layers(&a), layers(&b), "case {i}: {args}");
        assert_eq!((a.attention_softcap, a.logit_softcap), (b.attention_softcap, b.logit_softcap), "case {i}: {args}");
        for n_ctx in [48, 112] {
            let [a, b] =
                paths.each_ref().map(|p| logits(&open(p), &ids(40), n_ctx).unwrap_or_else(|e| panic!("{e:#}")));
            let same = a.iter().flatten().map(|v| v.to_bits()).eq(b.iter().flatten().map(|v| v.to_bits()));
            assert!(same, "case {i}: {args}, context {n_ctx}");
        }
    }
    // what the directory does not run is not converted either
    let (dir, hf) = model(&format!("{SMALL} --format hf {yarn}"));
    let changes: [(Change, &str); 3] = [
        (&|c| c["rope_scaling"]["truncate"] = false.into(), "truncate"),
        (&|c| c["hidden_act"] = "gelu".into(), "hidden_act"),
        (&|c| c["partial_rotary_factor"] = 0.5.into(), "partial_rotary_factor"),
    ];
    let kept = std::fs::read(hf.join("config.json")).expect("there");
    for (change, key) in changes {
        let mut v: serde_json::Value = serde_json::from_slice(&kept).expect("json");
        change(&mut v);
        std::fs::write(hf.join("config.json"), v.to_string()).expect("writes");
        let made = program::isobit(["quantize"]).args([&hf, &dir.path().join("x.gguf")]).output().expect("it starts");
        let error = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.code() == Some(2) && error.contains(key), "{error}");
    }
}

#[test]
fn a_directory_of_latent_attention_and_the_file_quantize_makes_of_it_give_the_same_bits() {
    type Change<'a> = &'a dyn Fn(&mut serde_json::Value);
    let lite = "--arch deepseek2 --layers 3 --experts 6 --used 3 --expert-ffn 40 --shared 80 --dense 1";
    let cases: [(&str, Change); 4] = [
        (lite, &|_| {}),
        (DEEPSEEK, &|_| {}),
        (DEEPSEEK, &|c| c["model_type"] = "kimi_k2".into()),
        (DEEPSEEK, &|c| {
            c["model_type"] = "glm4_moe_lite".into();
            c["mlp_layer_types"] = serde_json::json!(["dense", "sparse", "sparse"]);
            let left_out = ["rms_norm_eps", "first_k_dense_replace", "topk_method", "scoring_func"];
            let config = c.as_object_mut().expect("an object");
            config.retain(|key, _| !left_out.contains(&key.as_str()));
        }),
    ];
    for (i, (args, change)) in cases.into_iter().enumerate() {
        let (_dir, paths) = directory_and_file(args, change);
        let [a, b] = paths.each_ref().map(|p| hyper(&open(p)));
        assert_eq!((&a.mla, a.eps, &a.experts), (&b.mla, b.eps, &b.experts), "case {i}");
        assert_eq!(a.attention_scale.to_bits(), b.attention_scale.to_bits(), "case {i}");
        let [a, b] = paths.each_ref().map(|p| logits(&open(p), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")));
        let same = a.iter().flatten().map(|v| v.to_bits()).eq(b.iter().flatten().map(|v| v.to_bits()));
        assert!(same, "case {i}");
    }
}

#[test]
fn a_llama_directory_and_the_file_quantize_makes_of_it_rotate_by_the_same_table() {
    for args in [
        "--arch llama --rope llama3",
        "--arch llama --rope yarn",
        "--arch smollm3 --layers 5 --rope yarn",
        "--arch granite --head-dim 32",
        "--experts 5 --used 2",
        "--arch granitemoe --experts 5 --used 3",
        "--arch granitemoe --experts 5 --used 2 --shared 56",
    ] {
        let (_dir, paths) = directory_and_file(args, &|_| {});
        let words = paths.each_ref().map(|p| {
            let (c, mut words) = (open(p), Vec::new());
            isobit::internals::models::rope_table(&c, &hyper(&c), 256).expect("a table").words(0, 256, &mut words);
            words
        });
        assert_eq!(words[0], words[1], "{args}");
        let [a, b] = paths.each_ref().map(|p| logits(&open(p), &ids(40), 64).unwrap_or_else(|e| panic!("{e:#}")));
        let (worst, flips, diff) = distance(&a, &b);
        assert!(worst < 1e-9 && flips == 0 && diff < 1e-4, "{args}: {worst} {flips} {diff}");
    }
}

#[test]
fn both_file_forms_tokenise_alike() {
    let texts = [
        "<|user|>\n the other tree <|end|>\n<|assistant|>\nthe rest",
        "<|im_start|>user\nThere's a line 2024.\r\n\r\n  then<|im_end|>\n",
        "these threads  and the rest, ähm 漢字 \u{1f600}",
    ];
    let known = isobit::internals::formats::synthetic::Arch::ALL;
    for arch in known.map(|a| a.name()) {
        let args =
            format!("--preset tiny --arch {arch} --vocab 3000 --dim 64 --heads 2 --kv-heads 2 --ffn 64 --type f32");
        let (_a, gguf) = model(&args);
        let (_b, hf) = model(&format!("{args} --format hf"));
        let (gguf, hf) = (open(&gguf), open(&hf));
        let a = Tokenizer::from_gguf(&gguf.meta).unwrap_or_else(|e| panic!("{arch}: {e:#}"));
        let json = hf.tokenizer_json.as_deref().expect("the directory has one");
        let b = Tokenizer::from_tokenizer_json(json, hf.tokenizer_config.as_ref(), None, hf.config.as_ref())
            .unwrap_or_else(|e| panic!("{arch}: {e:#}"));
        assert_eq!(a.eos().first(), b.eos().first(), "{arch}");
        let first = |t: &Tokenizer| if t.adds_bos() { t.start().to_vec() } else { vec![] };
        assert_eq!(first(&a), first(&b), "{arch}");
        assert_eq!(a.adds_bos(), b.adds_bos(), "{arch}");
        for text in texts {
            let ids = a.encode(text, a.adds_bos(), true).expect("encodes");
            assert_eq!(ids, b.encode(text, b.adds_bos(), true).expect("encodes"), "{arch}: {text:?}");
            assert!(ids.len() < text.len(), "{arch}: merges are used");
        }
    }
}

//! LFM2, most of whose layers are short convolutions: logits against Hugging Face transformers, planted errors, and what a
//! file may say of it. That words are equal everywhere and in every batch `hybrid` sees to, for all that remember states.

use crate::arch::{agrees, hyper, ids, logits, open, recorded, set_in_directory};
use crate::checkpoint::{SMALL, model};
use crate::family::{Change, numbers_are_refused, quantised, with_config};
use crate::hybrid::{divergence, logits_as};
use isobit::internals::formats::meta::Value;
use isobit::internals::ops::cache::CacheType;
use isobit::internals::ops::strands::FRESH;

#[test]
fn lfm2_agrees_with_transformers() {
    agrees("lfm2");
}

#[test]
fn lfm2moe_agrees_with_transformers() {
    agrees("lfm2moe");
}

#[test]
fn the_comparison_sees_every_tensor_of_a_convolution_and_a_state_that_is_lost() {
    for (part, value, count) in [
        (".conv.conv.weight", 0.3f32, 4),
        (".conv.in_proj.weight", 0.01, 4),
        (".conv.out_proj.weight", 0.0, 4),
        (".operator_norm.weight", 1.0, 6),
        (".q_layernorm.weight", 1.0, 2),
        (".k_layernorm.weight", 1.0, 2),
        ("model.embedding_norm.weight", 1.0, 1),
    ] {
        let r = recorded("lfm2");
        let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
        assert_eq!(set_in_directory(&path, part, value), count, "{part}");
        let found = logits(&open(&path), &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
        let worst = divergence("lfm2", found);
        println!("{part}: worst KL {worst:.2e}");
        assert!(worst > 1e-7, "{part}: {worst:e}");
    }
    let r = recorded("lfm2");
    let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
    let c = open(&path);
    let (h, ids, mut strands) = (hyper(&c), ids(r.tokens), None);
    let right = divergence("lfm2", logits_as(&c, &h, &ids, |p| strands = p.strands, |_| {}));
    assert!(strands.is_some() && right < 1e-9, "{right:e}");
    // every step, the second one too, begins with nothing before it
    let lost = logits_as(
        &c,
        &h,
        &ids,
        |_| {},
        |s| {
            let words = s.inputs.iter_mut().find(|(id, _)| Some(*id) == strands).expect("it has them");
            words.1[2] = FRESH;
        },
    );
    let worst = divergence("lfm2", lost);
    println!("every step begins anew: worst KL {worst:.2e}");
    assert!(worst > 1e-7, "{worst:e}");
}

#[test]
fn a_file_is_quantised_but_for_its_convolutions() {
    let (dir, path) = model(&format!("{SMALL} --arch lfm2 --layers 3"));
    let made = dir.path().join("made.gguf");
    let c = quantised(&path, &made, "q8_0");
    for (name, dtype) in [
        ("blk.0.shortconv.conv.weight", "F32"),
        ("blk.0.shortconv.in_proj.weight", "Q8_0"),
        ("blk.1.shortconv.out_proj.weight", "Q8_0"),
        ("blk.2.attn_q.weight", "Q8_0"),
        ("blk.2.attn_q_norm.weight", "F32"),
        ("token_embd_norm.weight", "F32"),
    ] {
        assert_eq!(c.tensor(name).expect(name).dtype.name(), dtype, "{name}");
    }
    let h = hyper(&c);
    let of_one = 2 * h.head_dim * 4 * 2;
    let cached = h.cache_bytes(CacheType::F32, CacheType::F32);
    assert_eq!((h.kv_heads, cached), (2, Some(of_one)), "one layer of three has keys and values");
    assert_eq!(h.recurrent_text().as_deref(), Some("2 of 3 layers, convolutions over 3 tokens"));
    logits(&c, &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
}

#[test]
fn numbers_of_a_file_that_make_no_model_are_refused_by_name() {
    let (_dir, path) = model(&format!("{SMALL} --arch lfm2 --layers 3"));
    numbers_are_refused(
        &path,
        "lfm2",
        [
            ("shortconv.l_cache", Value::U32(4), "shortconv.l_cache is 4, which is not supported (supported: 3)"),
            ("shortconv.l_cache", Value::Str("x".into()), "shortconv.l_cache is of type"),
            (
                "attention.head_count_kv",
                Value::I32Array(vec![0, 0]),
                "2 layers are said to have attention or a convolution",
            ),
            ("attention.head_count_kv", Value::I32Array(vec![0, 0, 0]), "all layers are convolutions"),
            ("attention.head_count_kv", Value::I32Array(vec![0, 1, 2]), "layers of different numbers of heads"),
            ("attention.head_count_kv", Value::I32Array(vec![0, 0, 3]), "4 heads cannot share 3 key-value heads"),
            ("attention.head_count_kv", Value::I32Array(vec![0, 0, -2]), "expected whole numbers, one of each layer"),
            ("attention.head_count_kv", Value::F32(2.0), "expected whole numbers, one of each layer"),
            // all of attention: the file has no such tensors
            ("attention.head_count_kv", Value::U32(2), "blk.0.attn_q.weight is missing"),
        ],
    );
}

#[test]
fn configs_that_make_no_model_are_refused_by_name_and_old_ones_are_read() {
    let (_dir, path) = model(&format!("{SMALL} --format hf --arch lfm2 --layers 3"));
    let read = |change: &dyn Fn(&mut serde_json::Value)| with_config(&path, change);
    let refused: [(Change, &str); 8] = [
        (|c| c["conv_L_cache"] = 4.into(), "conv_L_cache = 4 is not supported (supported: 3)"),
        (|c| c["conv_bias"] = true.into(), "conv_bias = true is not supported"),
        (|c| c["layer_types"][1] = "other".into(), "layer_types has \"other\", expected conv or full_attention"),
        (|c| c["layer_types"] = serde_json::json!(["conv"]), "1 layers are said to have attention or a convolution"),
        (|c| drop(c.as_object_mut().unwrap().remove("layer_types")), "layer_types is missing"),
        (|c| c["block_multiple_of"] = 0.into(), "block_multiple_of is 0, expected 1 to 1048576"),
        (|c| c["block_ffn_dim_multiplier"] = 1e9.into(), "block_ffn_dim_multiplier is 1000000000.0"),
        (|c| c["norm_eps"] = 2.into(), "the norms' epsilon is 2.0"),
    ];
    for (change, expected) in refused {
        let adjusted = |c: &mut serde_json::Value| {
            c["block_auto_adjust_ff_dim"] = true.into();
            change(c);
        };
        let error = format!("{:#}", read(&adjusted).expect_err(expected));
        assert!(error.contains(expected), "{error}");
    }
    // as the first configs have it: the width before it is adjusted, and which layers have attention
    let old = read(&|c| {
        let fields = c.as_object_mut().expect("an object");
        fields.retain(|key, _| !["layer_types", "intermediate_size", "block_auto_adjust_ff_dim"].contains(&&key[..]));
        c["full_attn_idxs"] = serde_json::json!([2]);
        c["block_ff_dim"] = 10752.into();
        c["block_multiple_of"] = 256.into();
        c["block_ffn_dim_multiplier"] = 1.0.into();
    });
    let old = old.unwrap_or_else(|e| panic!("{e:#}"));
    // two thirds, which are a multiple of 256 here
    assert_eq!((old.ffn, old.conv.map(|c| c.layers)), (7168, Some(vec![true, true, false])));
}

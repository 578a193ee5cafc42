//! Gemma 4, whose layers differ: logits against Hugging Face transformers, planted errors, the same words everywhere, and what
//! a file may say of it.

use crate::arch::{agrees, hyper, ids, logits, logits_of, open, recorded, same_words_everywhere};
use crate::checkpoint::{SMALL, model};
use crate::family::{
    Change, configs_are_refused, late_layers_have_the_same_bits, numbers_are_refused, quantised, sees, with_config,
};
use crate::hybrid::divergence;
use crate::program;
use isobit::internals::formats::meta::Value;
use isobit::internals::models::hyper::RopeScaling;
use isobit::internals::models::{Hyper, PlanOptions, Rotation};
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::Role;

/// As the small models are: layers that read the keys and values of earlier ones, and vectors of a token for each layer.
const SHARING: &str = "--arch gemma4 --tied --layers 9 --window 20 --dim 96 --head-dim 64 --uneven 32,2,3,4,2,32,0";
/// As the model of experts is: keys that are values, and other numbers of heads.
const EXPERTS: &str = "--arch gemma4 --tied --layers 4 --window 20 --head-dim 64 --kv-heads 1 --uneven 32,4,2,0,1,0,1 \
                       --experts 6 --used 2 --expert-ffn 40";

#[test]
fn gemma4_agrees_with_transformers_where_layers_read_the_keys_of_earlier_ones() {
    agrees("gemma4");
}

#[test]
fn gemma4_agrees_with_transformers_with_experts_beside_the_feed_forward() {
    agrees("gemma4_experts");
}

#[test]
fn the_comparison_sees_every_tensor_that_others_do_not_have() {
    for (name, part, value, count) in [
        ("gemma4", ".per_layer_input_gate.weight", 0.01f32, 9),
        ("gemma4", ".per_layer_projection.weight", 0.01, 9),
        ("gemma4", ".post_per_layer_input_norm.weight", 1.0, 9),
        ("gemma4", ".layer_scalar", 1.0, 9),
        ("gemma4", "model.embed_tokens_per_layer.weight", 0.0, 1),
        ("gemma4", "model.per_layer_model_projection.weight", 0.01, 1),
        ("gemma4", "model.per_layer_projection_norm.weight", 1.0, 1),
        ("gemma4", ".self_attn.q_norm.weight", 1.0, 9),
        ("gemma4", ".self_attn.k_norm.weight", 1.0, 5),
        ("gemma4_experts", ".router.scale", 1.0, 4),
        ("gemma4_experts", ".router.per_expert_scale", 1.0, 4),
        ("gemma4_experts", ".pre_feedforward_layernorm_2.weight", 1.0, 4),
        ("gemma4_experts", ".post_feedforward_layernorm_1.weight", 1.0, 4),
        ("gemma4_experts", ".post_feedforward_layernorm_2.weight", 1.0, 4),
        ("gemma4_experts", ".post_feedforward_layernorm.weight", 1.0, 4),
    ] {
        sees(name, part, value, count);
    }
}

#[test]
fn the_comparison_sees_other_rotations_scales_and_windows() {
    type Change = fn(&mut Hyper);
    let cases: [(&str, Change); 8] = [
        ("one pair more is rotated", |h| h.rope_scaling = RopeScaling::Proportional { pairs: 9 }),
        ("heads with a window are rotated in part", |h| h.uneven.local.as_mut().unwrap().n_rot = 30),
        ("a layer is rotated by the other base", |h| h.local_rope = Some((9e3, RopeScaling::None))),
        ("the main base", |h| h.rope_base = 9e5),
        ("scores are scaled", |h| h.attention_scale = 0.98),
        ("logits have another cap", |h| h.logit_softcap = 7.01),
        ("the embedding is scaled otherwise", |h| h.embedding_scale *= 1.01),
        ("the window is one wider", |h| h.window = h.window.map(|w| w + 1)),
    ];
    for (what, change) in cases {
        let r = recorded("gemma4");
        let (_dir, path) = model(&format!("{SMALL} --format hf {}", r.args));
        let c = open(&path);
        let mut h = hyper(&c);
        assert_eq!(h.rotations.iter().filter(|r| **r == Rotation::Local).count(), 6);
        change(&mut h);
        let found = logits_of(&c, &h, &ids(r.tokens), r.tokens).unwrap_or_else(|e| panic!("{e:#}"));
        let worst = divergence("gemma4", found);
        println!("{what}: worst KL {worst:.2e}");
        assert!(worst > 1e-7, "{what}: {worst:e}");
    }
}

#[test]
fn gemma4_has_the_same_words_on_every_device() {
    let small = "--preset tiny --arch gemma4 --tied --layers 6 --window 20 --dim 288 --ffn 320 --head-dim 64";
    let sharing = format!("{small} --uneven 32,2,3,2,2,32,0");
    let whole = same_words_everywhere(&format!("{sharing} --type q8_0"), 1, CacheType::F16, None);
    let split = same_words_everywhere(&format!("{sharing} --type q8_0"), 1, CacheType::F16, Some(40 << 10));
    assert_eq!(whole.digest, split.digest);
    same_words_everywhere(&format!("{sharing} --type f16"), 1, CacheType::TQ3_1, None);
    let experts = format!("{small} --kv-heads 1 --uneven 32,4,2,0,1,0,1 --experts 6 --used 2 --expert-ffn 96");
    same_words_everywhere(&format!("{experts} --type q8_0"), 2, CacheType::Q8_0, None);
    // heads of 512 beside those of 256, as the released models have them
    let heads = "--preset tiny --arch gemma4 --tied --layers 3 --window 20 --heads 2 --kv-heads 1 --head-dim 512 --uneven 256,1,2,1,1,32,0";
    same_words_everywhere(&format!("{heads} --type f16"), 1, CacheType::F16, None);
}

#[test]
fn layers_that_read_the_keys_of_others_have_no_cache() {
    let (_dir, path) = model(&format!("{SMALL} {SHARING}"));
    let c = open(&path);
    let h = hyper(&c);
    let reads: Vec<_> = (0..9).map(|l| h.read_of(l)).collect();
    assert_eq!(reads, [None, None, None, None, None, Some(2), Some(4), Some(4), Some(2)]);
    let built = isobit::internals::models::build(&c, &h, &PlanOptions::default()).expect("a plan");
    let cached = |l: usize| built.layers[l].pages[0].len();
    assert_eq!((0..9).map(cached).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0, 0, 0, 0]);
    // keys and values of four layers of two heads of 32, and of one of two of 64, in halves
    assert_eq!(h.cache_bytes(CacheType::F16, CacheType::F16), Some(2 * 2 * (4 * 2 * 32 + 2 * 64)));
    let caches = built.plan.buffers.iter().filter(|b| b.role == Role::Cache);
    assert_eq!(caches.map(|b| b.words).sum::<usize>(), built.cache_words);
}

#[test]
fn layers_that_write_no_keys_are_computed_for_wanted_tokens_alone_with_the_same_bits() {
    late_layers_have_the_same_bits(SHARING, 5);
}

#[test]
fn a_file_is_quantised_but_for_what_makes_the_vectors_and_inspected() {
    let (dir, path) = model(&format!("{SMALL} {SHARING}"));
    let made = dir.path().join("made.gguf");
    let c = quantised(&path, &made, "q8_0");
    for (name, dtype) in [
        ("per_layer_token_embd.weight", "Q8_0"),
        ("per_layer_model_proj.weight", "F32"),
        ("per_layer_proj_norm.weight", "F32"),
        ("blk.0.inp_gate.weight", "Q8_0"),
        ("blk.8.attn_q.weight", "Q8_0"),
        ("blk.8.layer_output_scale.weight", "F32"),
        ("rope_freqs.weight", "F32"),
    ] {
        assert_eq!(c.tensor(name).expect(name).dtype.name(), dtype, "{name}");
    }
    logits(&c, &ids(20), 64).unwrap_or_else(|e| panic!("{e:#}"));
    let said = program::isobit(["inspect"]).arg(&made).output().expect("it starts");
    let said = String::from_utf8_lossy(&said.stdout).to_string();
    let expected = "layers that differ: 2 key-value heads of 32 in layers with a window, feed-forwards of 96 to 192, the last 4 of \
                    9 read earlier keys and values, a vector of 32 of each token for each layer";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn numbers_of_a_file_that_make_no_model_are_refused_by_name() {
    let (_dir, path) = model(&format!("{SMALL} {SHARING}"));
    let list = |n: usize, v: i32| Value::I32Array(vec![v; n]);
    let mut odd = vec![2; 9];
    odd[1] = 1;
    numbers_are_refused(
        &path,
        "gemma4",
        [
            ("attention.head_count_kv", list(8, 2), "head_count_kv has 8 numbers, expected one for each of 9 layers"),
            ("attention.head_count_kv", list(9, -2), "head_count_kv is of type"),
            ("attention.head_count_kv", Value::I32Array(odd), "head_count_kv is 1 in layer 1, expected 2"),
            ("attention.head_count_kv", list(9, 3), "4 heads cannot share 3 key-value heads"),
            ("feed_forward_length", list(9, 0), "the feed-forward length is 0"),
            ("feed_forward_length", Value::F32(2.0), "feed_forward_length is of type f32"),
            ("attention.key_length_swa", Value::U32(31), "key heads of 31 and value heads of 32"),
            ("rope.dimension_count_swa", Value::U32(34), "34 rotated dimensions do not fit a head of 32"),
            ("attention.shared_kv_layers", Value::U32(9), "9 of 9 layers have no keys and values of their own"),
            (
                "attention.shared_kv_layers",
                Value::U32(8),
                "layer 2 has no keys and values, and no layer of its kind before it",
            ),
            ("attention.shared_kv_layers", Value::U32(3), "tensor blk.5.attn_k.weight is missing"),
            ("embedding_length_per_layer_input", Value::U32(1 << 20), "expected at most 65536"),
            ("embedding_length_per_layer_input", Value::U32(0), "has no place in a gemma4 model"),
            (
                "attention.sliding_window",
                Value::U32(0),
                "sliding_window is missing, which says where layers are rotated",
            ),
            (
                "attention.sliding_window_pattern",
                Value::Array(vec![Value::Bool(true); 8]),
                "expected one for each of 8 layers",
            ),
        ],
    );
}

#[test]
fn configs_that_make_no_model_are_refused_by_name_and_others_are_read() {
    let (_dir, path) = model(&format!("{SMALL} --format hf {EXPERTS}"));
    let read = |change: &dyn Fn(&mut serde_json::Value)| with_config(&path, change);
    let refused: [(Change, &str); 8] = [
        (|c| c["use_bidirectional_attention"] = "all".into(), "use_bidirectional_attention is not supported"),
        (|c| c["attention_bias"] = true.into(), "attention_bias = true is not supported"),
        (
            |c| c["rope_parameters"]["full_attention"]["rope_type"] = "yarn".into(),
            "RoPE scaling of type yarn is not supported",
        ),
        (
            |c| c["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 2.into(),
            "partial_rotary_factor is 2.0",
        ),
        (
            |c| c["rope_parameters"]["sliding_attention"]["rope_type"] = "linear".into(),
            "sliding_attention is not supported",
        ),
        (
            |c| c["sliding_window"] = serde_json::Value::Null,
            "sliding_window is null, which is not supported for gemma4",
        ),
        (
            |c| c["num_kv_shared_layers"] = 3.into(),
            "layer 1 has no keys and values, and no layer of its kind before it",
        ),
        (|c| c["top_k_experts"] = 7.into(), "7 of 6 experts, expected 1 to all"),
    ];
    configs_are_refused(&path, &refused);
    let usual = read(&|_| {}).expect("a model");
    // as transformers writes what differs since 5.20
    let newer = read(&|c| {
        let fields = c.as_object_mut().expect("an object");
        fields.retain(|key, _| !["global_head_dim", "num_global_key_value_heads"].contains(&key.as_str()));
        let own = serde_json::json!({"head_dim": 64, "num_key_value_heads": 1});
        c["per_layer_config"] = serde_json::json!({"1": own, "3": own});
    });
    assert_eq!(newer.expect("a model"), usual);
    // images may see each other both ways
    assert_eq!(read(&|c| c["use_bidirectional_attention"] = "vision".into()).expect("a model"), usual);
}

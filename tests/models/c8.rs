//! The cache type c8: integers of a byte by a scale and an offset of each channel, which the model brings.

use crate::checkpoint::model;
use crate::common::{self, golden};
use crate::written::{Held, gguf};
use isobit::internals::blocks::BlockType;
use isobit::internals::cpu::{CpuDevice, CpuOptions};
use isobit::internals::formats::gguf_write::Entry;
use isobit::internals::formats::{Container, Dtype, LoadMode};
use isobit::internals::fuse::{Fuse, fuse};
use isobit::internals::generate::tokenizer::Tokenizer;
use isobit::internals::generate::verify::{Report, Script, digest_of, prompt, verify};
use isobit::internals::generate::{Session, SessionOptions, Want};
use isobit::internals::models::{Hyper, PlanOptions, Recent, build};
use isobit::internals::ops::attention::{AttentionParams, attention};
use isobit::internals::ops::cache::{CacheType, CacheWriteParams, cache_write_k, cache_write_v, element};
use isobit::internals::ops::channel_quantize::{ChannelQuantizeParams, channel_quantize};
use isobit::internals::ops::channel_scale::{ChannelScaleParams, channel_scale};
use isobit::internals::ops::places::{self, Places};
use isobit::internals::record::{Device, Op, Step};
use isobit::internals::simd::Level;
use pollster::block_on;
use safetensors::SafeTensors;
use std::borrow::Cow;
use std::path::Path;

const C8: (CacheType, CacheType) = (CacheType::C8, CacheType::C8);
const F16: (CacheType, CacheType) = (CacheType::F16, CacheType::F16);

type Vectors = Vec<(String, Vec<f32>)>;

fn embedded() -> Container {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/tiny-stories-Q4_K_M.gguf");
    Container::open(&path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"))
}

fn hyper(c: &Container) -> Hyper {
    Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"))
}

fn options(n_ctx: usize, (k_type, v_type): (CacheType, CacheType)) -> SessionOptions {
    let plan = PlanOptions { n_ctx, ubatch: 64, k_type, v_type, ..PlanOptions::default() };
    SessionOptions { plan, memory: None, fuse: Fuse::On }
}

fn cpu(level: Option<Level>, max_binding: Option<u64>) -> Box<dyn Device> {
    Box::new(CpuDevice::new(CpuOptions { level, threads: 0, max_binding }).expect("threads start"))
}

/// The twins, every SIMD level and every adapter.
fn everything(max_binding: Option<u64>) -> Vec<Box<dyn Device>> {
    let mut list = vec![cpu(Some(Level::detect()), max_binding), cpu(None, max_binding)];
    list.extend(Level::available().into_iter().map(|l| cpu(Some(l), max_binding)));
    list.extend(common::boxed_gpus(max_binding));
    list
}

fn ids(c: &Container, n: usize) -> Vec<u32> {
    prompt(Tokenizer::from_gguf(&c.meta).ok().as_ref(), hyper(c).vocab, n)
}

/// The same file with more vectors of F32.
fn with(c: &Container, more: &Vectors) -> Container {
    let dtype = Dtype::from_block(BlockType::F32).expect("it is one of GGUF's");
    let own = c.tensors.iter().map(|t| {
        let mut bytes = vec![0; t.bytes as usize];
        c.read(t, 0, &mut bytes).unwrap_or_else(|e| panic!("{e}"));
        (Entry { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() }, bytes)
    });
    let new = more.iter().map(|(name, values)| {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        (Entry { name: name.clone(), dtype, shape: vec![values.len() as u64] }, bytes)
    });
    let list: Vec<Held> = own.chain(new).collect();
    let bytes = gguf(&c.meta, &list);
    Container::from_bytes("c8.gguf", Cow::Owned(bytes)).unwrap_or_else(|e| panic!("{e}"))
}

/// Scales and offsets for every channel from the keys and values of some tokens, as a calibration makes them: the least
/// becomes -128, the greatest 127.
fn measured(c: &Container, ids: &[u32]) -> Vectors {
    let h = hyper(c);
    let mut device = cpu(Some(Level::detect()), None);
    let o = SessionOptions { fuse: Fuse::Off, ..options(ids.len(), (CacheType::F32, CacheType::F32)) };
    block_on(async {
        let mut s = Session::new(device.as_mut(), c, &h, o, |_| {}).await?;
        s.feed(ids, Want::Last, |_, _| Ok(())).await?;
        let (page, hd) = (s.n_ctx(), h.head_dim);
        let caches = s.commands().iter().filter_map(|c| match c.op {
            Op::CacheWriteK(_) => Some(("attn_k", c.layer?, *c.binds.last()?)),
            Op::CacheWriteV(_) => Some(("attn_v", c.layer?, *c.binds.last()?)),
            _ => None,
        });
        let caches = caches.collect::<Vec<_>>();
        assert_eq!(caches.len(), 2 * h.layers, "one page");
        let mut list = Vec::new();
        for (name, layer, id) in caches {
            let words = s.device().read(id).await?;
            let at = |head: usize, pos: usize, e: usize| match name {
                "attn_k" => ((head * page / 32 + pos / 32) * hd + e) * 32 + pos % 32,
                _ => (head * page + pos) * hd + e,
            };
            let (mut scales, mut offsets) = (Vec::new(), Vec::new());
            for channel in 0..h.kv_heads * hd {
                let values = (0..ids.len()).map(|pos| f32::from_bits(words[at(channel / hd, pos, channel % hd)]));
                let (least, most) = values.fold((0f32, 0f32), |(a, b), v| (a.min(v), b.max(v)));
                let scale = ((most - least) / 255.0).max(1e-6);
                scales.push(scale);
                offsets.push((-128.0 - least / scale).round());
            }
            list.push((format!("blk.{layer}.{name}.kv_cache_scale"), scales));
            list.push((format!("blk.{layer}.{name}.kv_cache_offset"), offsets));
        }
        anyhow::Ok(list)
    })
    .unwrap_or_else(|e| panic!("{e:#}"))
}

fn verified(c: &Container, o: SessionOptions, devices: &mut [Box<dyn Device>], script: &Script) -> Report {
    let r = block_on(verify(devices, c, &hyper(c), o, script, || {})).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(r.mismatches, 0, "{:?}", r.first);
    assert!(r.ok() && r.words > 0, "{:?} against {}", r.digests, r.digest);
    r
}

fn digest(c: &Container, o: SessionOptions, script: &Script) -> String {
    let mut device = cpu(Some(Level::detect()), None);
    let h = hyper(c);
    block_on(async {
        let mut s = Session::new(device.as_mut(), c, &h, o, |_| {}).await?;
        digest_of(&mut s, script, 0).await
    })
    .unwrap_or_else(|e| panic!("{e:#}"))
}

// ---------------------------------------------------------------- values

fn file(name: &str) -> Vec<u8> {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/msmodelslim/{}"), name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn floats(file: &SafeTensors, name: &str) -> Vec<f32> {
    let t = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(t.dtype(), safetensors::Dtype::F32, "{name}");
    t.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn codes_and_values_are_those_of_the_sample_made_elsewhere() {
    let (expected, weights) = (file("expected.safetensors"), file("quant_model_weights.safetensors"));
    let expected = SafeTensors::deserialize(&expected).expect("the sample");
    let weights = SafeTensors::deserialize(&weights).expect("the sample");
    for side in ["k_proj", "v_proj"] {
        let of = |suffix: &str| floats(&weights, &format!("model.layers.0.self_attn.{side}.kv_cache_{suffix}"));
        let (scale, offset) = (of("scale"), of("offset"));
        let mut x = floats(&expected, &format!("c8_{side}_in"));
        let (dim, n) = (scale.len(), x.len() / scale.len());
        assert_eq!((dim, n), (8, 6));
        let p = ChannelQuantizeParams { n_tokens: n as u32, dim: dim as u32 };
        channel_quantize(&p, &scale, &offset, &mut x);
        let codes = expected.tensor(&format!("c8_{side}_q")).expect("codes");
        let codes: Vec<f32> = codes.data().iter().map(|&b| f32::from(b as i8)).collect();
        assert_eq!(x, codes, "{side}");
        assert!(codes.iter().any(|c| *c > 20.0) && codes.iter().any(|c| *c < -20.0), "{codes:?}");

        // the cache holds them as they are: all in one head of 64
        let mut row = codes.clone();
        row.resize(64, 0.0);
        let w =
            CacheWriteParams { n_tokens: 1, kv_heads: 1, head_dim: 64, page_first: 0, page_len: 64, ring: 0, table: 0 };
        let words = CacheType::C8.words(64).expect("whole blocks");
        let mut page = vec![0; 64 * words];
        cache_write_v(CacheType::C8, &w, Places::new(&in_order(5, 1)), &row, &mut page);
        let held: Vec<f32> = (0..64).map(|e| element(CacheType::C8, 2, |i| page[5 * words + i], e)).collect();
        assert_eq!(held, row, "{side}");

        let p = ChannelScaleParams { n_tokens: n as u32, heads: 1, kv_heads: 1, head_dim: dim as u32, less_offset: 1 };
        channel_scale(&p, &scale, &offset, &mut x);
        let want = floats(&expected, &format!("c8_{side}_deq"));
        for (got, want) in x.iter().zip(&want) {
            assert!((got - want).abs() <= 1e-6 * want.abs().max(1.0), "{side}: {got} for {want}");
        }
    }
}

/// Where tokens of one sequence lie whose chunks are in order.
fn in_order(pos: usize, n_tokens: usize) -> Vec<u32> {
    let mut words = Vec::new();
    places::in_order(pos, n_tokens, 0, &mut words);
    words
}

/// The offsets of keys are left out, those of values taken off at the end: what comes is what the values that the codes
/// stand for give.
#[test]
fn attention_over_codes_is_attention_over_what_they_stand_for() {
    let (heads, kv_heads, hd, n) = (6usize, 2usize, 64usize, 150usize);
    let wave = |i: usize, a: usize, b: f32| ((i * a % 1009) as f32 / 504.5 - 1.0) * b;
    let (width, kv_width) = (heads * hd, kv_heads * hd);
    let mut q: Vec<f32> = (0..n * width).map(|i| wave(i, 37, 2.0)).collect();
    let mut k: Vec<f32> = (0..n * kv_width).map(|i| wave(i, 71, 3.0) + (i % 5) as f32).collect();
    let mut v: Vec<f32> = (0..n * kv_width).map(|i| wave(i, 89, 1.0) - (i % 3) as f32 * 0.5).collect();
    let channels = |span: f32| {
        let scale: Vec<f32> = (0..kv_width).map(|c| span * (1.0 + (c % 7) as f32 * 0.1) / 255.0).collect();
        let offset: Vec<f32> = (0..kv_width).map(|c| (c % 90) as f32 - 60.0).collect();
        (scale, offset)
    };
    let ((ks, ko), (vs, vo)) = (channels(12.0), channels(5.0));
    let p = ChannelQuantizeParams { n_tokens: n as u32, dim: kv_width as u32 };
    channel_quantize(&p, &ks, &ko, &mut k);
    channel_quantize(&p, &vs, &vo, &mut v);
    let scaled = |heads: usize, less_offset: u32, scale: &[f32], offset: &[f32], x: &mut [f32]| {
        let p = ChannelScaleParams {
            n_tokens: n as u32,
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            head_dim: hd as u32,
            less_offset,
        };
        channel_scale(&p, scale, offset, x);
    };
    let attended = |t: CacheType, q: &[f32], k: &[f32], v: &[f32]| {
        let page = 192usize;
        let w = CacheWriteParams {
            n_tokens: n as u32,
            kv_heads: kv_heads as u32,
            head_dim: hd as u32,
            page_first: 0,
            page_len: page as u32,
            ring: 0,
            table: 0,
        };
        let words = kv_heads * page * t.words(hd).expect("whole blocks");
        let (mut keys, mut values) = (vec![0; words], vec![0; words]);
        let at = in_order(0, n);
        let at = Places::new(&at);
        cache_write_k(t, &w, at, k, v, &mut keys);
        cache_write_v(t, &w, at, v, &mut values);
        let p = AttentionParams {
            n_tokens: n as u32,
            chunk0: 0,
            chunks: 0,
            heads: heads as u32,
            kv_heads: kv_heads as u32,
            head_dim: hd as u32,
            page_first: 0,
            page_len: page as u32,
            scale: 0.125,
            scope: 0,
            window: 0,
            table: 0,
            softcap: 0.0,
            inv_softcap: 0.0,
            sinks: 0,
        };
        let mut out = vec![0f32; n * width];
        attention((t, t), &p, q, &keys, &values, at, &mut [], &mut out);
        out
    };
    let (mut known_k, mut known_v) = (k.clone(), v.clone());
    scaled(kv_heads, 1, &ks, &ko, &mut known_k);
    scaled(kv_heads, 1, &vs, &vo, &mut known_v);
    let want = attended(CacheType::F32, &q, &known_k, &known_v);
    scaled(heads, 0, &ks, &ko, &mut q);
    let mut got = attended(CacheType::C8, &q, &k, &v);
    scaled(heads, 1, &vs, &vo, &mut got);
    let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    println!("the worst of {} outputs is {worst:e} off", want.len());
    assert!(worst < 2e-3, "{worst}");
    // the test sees an offset that is not taken off
    let without = attended(CacheType::C8, &q, &k, &v);
    assert!(without.iter().zip(&want).any(|(a, b)| (a - b).abs() > 0.1));
}

// ---------------------------------------------------------------- models

#[test]
fn every_device_and_batch_split_gives_the_golden_digest_with_a_c8_cache() {
    let c = embedded();
    let c = with(&c, &measured(&c, &ids(&c, 64)));
    let script = Script { prompt: ids(&c, 64), generate: 64, batches: vec![0, 7] };
    let r = verified(&c, options(128, C8), &mut everything(None), &script);
    println!("c8/c8: {} commands, {} words, digest {}", r.commands, r.words, r.digest);
    assert_eq!(r.digest, golden::C8, "the golden digest of c8/c8");
    assert_eq!(r.digest, digest(&c, SessionOptions { fuse: Fuse::Off, ..options(128, C8) }, &script), "not fused");
}

#[test]
fn a_model_with_scales_gives_what_it_gave_without_them_with_any_other_cache() {
    let c = embedded();
    let c = with(&c, &measured(&c, &ids(&c, 64)));
    let script = Script { prompt: ids(&c, 64), generate: 64, batches: vec![] };
    for t in [CacheType::F16, CacheType::Q8_0] {
        let found = digest(&c, options(128, (t, t)), &script);
        assert_eq!(found, golden::digest(t, t, Recent::Off), "{}", t.name());
    }
}

/// A synthetic model with scales, everywhere; then fused nowhere and in one page.
fn agrees(args: &str, types: (CacheType, CacheType), max_binding: Option<u64>) {
    let (_dir, path) = model(args);
    let c = Container::open(&path, LoadMode::Read).unwrap_or_else(|e| panic!("{args}: {e}"));
    let c = with(&c, &measured(&c, &ids(&c, 60)));
    let mut o = options(144, types);
    (o.plan.ubatch, o.plan.max_out) = (16, 1);
    let script = Script { prompt: ids(&c, 70), generate: 3, batches: vec![3] };
    let r = verified(&c, o, &mut everything(max_binding), &script);
    println!("{args}: head of {}, {} words, digest {}", hyper(&c).head_dim, r.words, r.digest);
    let whole = digest(&c, SessionOptions { fuse: Fuse::Off, ..o }, &script);
    assert_eq!(r.digest, whole, "{args}: plain, and in one page");
}

#[test]
fn heads_of_every_size_grouped_and_split_agree_on_every_device() {
    agrees("--preset tiny --type q8_0 --heads 4 --kv-heads 1 --head-dim 32", C8, None);
    agrees("--preset tiny --type f16 --heads 4 --kv-heads 4 --head-dim 64", C8, Some(40 << 10));
    agrees("--preset tiny --type f16 --heads 2 --kv-heads 1 --head-dim 256", C8, None);
}

#[test]
fn other_architectures_with_one_side_of_another_type_agree_on_every_device() {
    agrees("--preset qwen3-tiny --type q8_0", (CacheType::C8, CacheType::F16), None);
    agrees("--preset phi3-tiny", (CacheType::F16, CacheType::C8), Some(40 << 10));
    let chatglm = "--preset chatglm-tiny --type q8_0 --heads 4 --head-dim 128";
    agrees(chatglm, (CacheType::Q8_0R, CacheType::C8), None);
}

#[test]
fn a_decode_layer_with_a_c8_cache_is_ten_commands() {
    let c = embedded();
    let c = with(&c, &measured(&c, &ids(&c, 64)));
    for types in [C8, (CacheType::C8, CacheType::F16), (CacheType::F16, CacheType::C8)] {
        let mut plan = build(&c, &hyper(&c), &options(128, types).plan).expect("builds").plan;
        fuse(&mut plan, Fuse::On, usize::MAX / 8);
        let step = Step { n_tokens: 1, n_out: 1, ..Step::default() };
        let commands = plan.recording.commands.iter();
        let layer = commands.filter(|c| c.layer == Some(1) && c.args_for(&step).is_some());
        let layer: Vec<&str> = layer.map(|c| c.op.stem()).collect();
        // with values as they are, attention still makes the blocks
        assert_eq!(layer.len(), if types.1 == CacheType::C8 { 10 } else { 8 }, "{layer:?}");
        assert_eq!(layer.iter().filter(|s| **s == "rope_channel_cache_write").count(), 1, "{layer:?}");
    }
}

/// Logits of every token but the first, beside those with an f16 cache: the mean divergence.
fn divergence(c: &Container, types: (CacheType, CacheType), ids: &[u32]) -> f64 {
    let rows = |types| {
        let mut device = cpu(Some(Level::detect()), None);
        let mut o = options(ids.len(), types);
        o.plan.max_out = 64;
        let h = hyper(c);
        let mut list: Vec<Vec<f64>> = Vec::new();
        block_on(async {
            let mut s = Session::new(device.as_mut(), c, &h, o, |_| {}).await?;
            s.feed(ids, Want::From(0), |_, row| {
                let most = row.iter().fold(f32::MIN, |m, x| m.max(*x));
                let all: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
                list.push(row.iter().map(|x| f64::from(x - most) - all.ln()).collect());
                Ok(())
            })
            .await
        })
        .unwrap_or_else(|e| panic!("{e:#}"));
        list
    };
    let (f16, other) = (rows(F16), rows(types));
    let one = |(p, q): (&Vec<f64>, &Vec<f64>)| p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    f16.iter().zip(&other).map(one).sum::<f64>() / f16.len() as f64
}

#[test]
fn a_c8_cache_with_scales_of_other_tokens_comes_between_q8_0_and_q4_0() {
    let c = embedded();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny/valid.txt");
    let text = std::fs::read_to_string(text).expect("the text is there");
    let tok = Tokenizer::from_gguf(&c.meta).expect("a tokeniser");
    let ids = tok.encode(&text, true, false).expect("the text is tokenised");
    // calibrated on one part, asked about another
    let (seen, all) = (&ids[1024..1536], &ids[..512]);
    let c = with(&c, &measured(&c, seen));
    let list = [C8, (CacheType::Q8_0, CacheType::Q8_0), (CacheType::Q4_0, CacheType::Q4_0)];
    let [c8, q8, q4] = list.map(|types| divergence(&c, types, all));
    println!("mean divergence from f16: c8 {c8:.2e}, q8_0 {q8:.2e}, q4_0 {q4:.2e}");
    assert!(q8 < c8 && c8 < q4 / 3.0, "{c8}, {q8}, {q4}");
}

// ---------------------------------------------------------------- refusals

fn refused(c: &Container, plan: PlanOptions) -> String {
    build(c, &hyper(c), &plan).expect_err("no plan").to_string()
}

#[test]
fn a_model_without_scales_is_refused_by_the_tensor_that_is_missing() {
    let c = embedded();
    let plan = |types| options(64, types).plan;
    let found = refused(&c, plan(C8));
    assert!(found.contains("cached keys of type c8") && found.contains("blk.0.attn_k.kv_cache_scale"), "{found}");
    let found = refused(&c, plan((CacheType::F16, CacheType::C8)));
    assert!(found.contains("cached values of type c8") && found.contains("blk.0.attn_v.kv_cache_scale"), "{found}");
    // one of all is missing
    let mut list = measured(&c, &ids(&c, 64));
    let at = list.iter().position(|(name, _)| name == "blk.1.attn_v.kv_cache_offset").expect("it is there");
    list.remove(at);
    assert!(refused(&with(&c, &list), plan(C8)).contains("blk.1.attn_v.kv_cache_offset"));
    build(&with(&c, &list), &hyper(&c), &plan(F16)).expect("no other cache asks for it");
}

#[test]
fn scales_that_are_no_scales_are_refused_by_tensor_and_element() {
    let c = embedded();
    let all = measured(&c, &ids(&c, 64));
    for (name, value, expected) in [
        ("blk.0.attn_k.kv_cache_scale", 0.0, "holds 0 at element 3, expected numbers from 2^-40 to 2^40"),
        ("blk.1.attn_v.kv_cache_scale", -1.0, "holds -1 at element 3"),
        ("blk.1.attn_v.kv_cache_scale", 1e-13, "element 3"),
        ("blk.0.attn_v.kv_cache_scale", 2e12, "element 3"),
        ("blk.0.attn_v.kv_cache_scale", f32::NAN, "holds NaN at element 3"),
        ("blk.0.attn_k.kv_cache_offset", f32::INFINITY, "holds inf at element 3"),
        (
            "blk.0.attn_k.kv_cache_offset",
            -40000.0,
            "holds -40000 at element 3, expected numbers of magnitude 32768 at most",
        ),
    ] {
        let mut list = all.clone();
        list.iter_mut().find(|(n, _)| n == name).expect("it is there").1[3] = value;
        let found = refused(&with(&c, &list), options(64, C8).plan);
        assert!(found.contains(name) && found.contains(expected), "{found}");
    }
    let mut list = all;
    list[0].1.pop();
    let found = refused(&with(&c, &list), options(64, C8).plan);
    assert!(found.contains("has shape"), "{found}");
    assert!(refused(&with(&c, &list), options(64, F16).plan).contains("has shape"), "whatever the cache");
}

#[test]
fn a_copy_of_recent_positions_beside_codes_is_refused_and_not_made_unasked() {
    let c = embedded();
    let c = with(&c, &measured(&c, &ids(&c, 64)));
    for types in [C8, (CacheType::C8, CacheType::F16), (CacheType::F16, CacheType::C8)] {
        let found = refused(&c, PlanOptions { recent: Recent::On, ..options(64, types).plan });
        assert!(found.contains("recent positions beside a c8 cache"), "{found}");
    }
    assert!(!Recent::Auto.applies(CacheType::TQ3_1, CacheType::C8));
    build(&c, &hyper(&c), &options(64, (CacheType::C8, CacheType::TQ3_1)).plan).expect("none is made unasked");
}

#[test]
fn heads_without_whole_blocks_are_refused() {
    let (_dir, path) = model("--preset tiny --type f16 --heads 4 --kv-heads 4 --head-dim 40");
    let c = Container::open(&path, LoadMode::Read).unwrap_or_else(|e| panic!("{e}"));
    let found = refused(&c, options(64, C8).plan);
    assert!(found.contains("cached keys of type c8: blocks of 32 do not divide a head of 40"), "{found}");
}

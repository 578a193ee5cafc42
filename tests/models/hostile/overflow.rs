//! Models that make subnormals, and models that overflow: one outcome on every device.

#[path = "model.rs"]
mod model;

use super::{cpu, options};
use crate::common::{boxed_gpus, flushing};
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::{Container, LoadMode};
use isobit::internals::generate::{Session, Want};
use isobit::internals::models::Hyper;
use isobit::internals::ops::cache::CacheType;
use isobit::internals::record::Device;
use isobit::internals::simd::Level;
use model::Model;
use pollster::block_on;
use std::borrow::Cow;
use std::path::Path;

/// The twins, every SIMD level and every adapter.
fn everything() -> Vec<Box<dyn Device>> {
    let mut list = vec![cpu(None, 1)];
    list.extend(Level::available().into_iter().map(|level| cpu(Some(level), 2)));
    list.extend(boxed_gpus(None));
    list
}

/// The logits' words after a prompt on one device, or what went wrong.
fn logits(
    device: &mut dyn Device,
    c: &Container,
    ids: &[u32],
    caches: (CacheType, CacheType),
) -> Result<Vec<u32>, String> {
    let h = Hyper::read(c).unwrap_or_else(|e| panic!("{e:#}"));
    let o = options(h.context, 1, caches.0, caches.1);
    block_on(async {
        let mut session = Session::new(device, c, &h, o, |_| {}).await?;
        let mut words = Vec::new();
        session
            .feed(ids, Want::Last, |_, row| {
                words = row.iter().map(|v| v.to_bits()).collect();
                Ok(())
            })
            .await?;
        anyhow::Ok(words)
    })
    .map_err(|e| format!("{e:#}"))
}

/// Every device ends with the same error; gives it.
fn overflows(what: &str, c: &Container, ids: &[u32], caches: (CacheType, CacheType)) -> String {
    let mut first: Option<String> = None;
    for mut device in everything() {
        let name = device.info().name;
        let error = match logits(&mut *device, c, ids, caches) {
            Ok(_) => panic!("{what}: {name} gives logits"),
            Err(e) => e,
        };
        match &first {
            None => first = Some(error),
            Some(first) => assert_eq!(&error, first, "{what}: {name}"),
        }
    }
    let error = first.expect("there is a device");
    assert!(error.contains("NaN"), "{what}: {error}");
    error
}

const F16S: (CacheType, CacheType) = (CacheType::F16, CacheType::F16);

fn small(ty: BlockType, layers: usize) -> Model {
    Model::zeros(ty, [layers, 64, 2, 96, 300, 256], 32).noise(0.2)
}

#[test]
fn a_gate_that_overflows_in_one_element_is_an_error_everywhere() {
    let mut m = small(BlockType::Q8_0, 2);
    *m.at("blk.0.ffn_norm.weight", 0, 0) = 1e20;
    for name in ["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"] {
        for i in 0..64 {
            *m.at(name, 0, i) = 0.0;
        }
        for row in 0..96 {
            *m.at(name, row, 0) = 0.0;
        }
        *m.at(name, 0, 0) = 1.0;
    }
    overflows("gate", &m.open(), &[3, 4, 5, 6], F16S);
}

#[test]
fn products_of_gates_and_squares_in_norms_that_overflow_are_an_error_everywhere() {
    for ty in [BlockType::F16, BlockType::Q8_0] {
        let mut m = small(ty, 4);
        for l in 0..4 {
            for name in ["attn_norm", "ffn_norm"] {
                m.all(&format!("blk.{l}.{name}.weight")).fill(1e11);
            }
        }
        overflows("norms", &m.open(), &[3, 4, 5, 6], F16S);
    }
    let mut m = small(BlockType::F32, 2);
    m.all("token_embd.weight").iter_mut().for_each(|v| *v *= 2.5e19);
    overflows("embeddings", &m.open(), &[3, 4, 5, 6], F16S);
}

#[test]
fn scores_and_values_that_overflow_are_an_error_everywhere_and_with_every_cache() {
    for t in CacheType::ALL {
        let mut m = small(BlockType::F32, 2).channels();
        for name in ["blk.0.attn_q.weight", "blk.0.attn_k.weight"] {
            m.all(name).iter_mut().for_each(|v| *v *= 1e18);
        }
        overflows("scores", &m.open(), &[3, 4, 5, 6], (t, CacheType::F16));
        // two products of which each overflows, of either sign
        let mut m = small(BlockType::F32, 2).channels();
        m.all("blk.1.attn_norm.weight").fill(1e10);
        for row in 0..32 {
            *m.at("blk.1.attn_v.weight", row, 0) = 3e38;
            *m.at("blk.1.attn_v.weight", row, 1) = -3e38;
        }
        overflows("values", &m.open(), &[3, 4, 5, 6], (CacheType::F16, t));
    }
}

/// A token whose values overflow, long before the last: its poison must come out of the cache again.
#[test]
fn what_overflowed_at_an_early_position_is_an_error_at_the_last() {
    for t in [CacheType::F16, CacheType::TQ3_1, CacheType::Q8_0R, CacheType::C8] {
        let mut m = small(BlockType::F32, 1).channels();
        // two squares whose sum is beyond the largest number
        *m.at("token_embd.weight", 7, 0) = 1.7e19;
        *m.at("token_embd.weight", 7, 1) = 1.7e19;
        let mut ids: Vec<u32> = (0..150).map(|i| 8 + i % 200).collect();
        let clean = logits(&mut *cpu(None, 1), &m.open(), &ids, (t, t));
        assert!(clean.is_ok(), "{clean:?}");
        ids[70] = 7;
        overflows("an early token", &m.open(), &ids, (t, t));
    }
}

#[test]
fn a_flipped_bit_in_a_norm_is_an_error_everywhere() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny/tiny-stories-Q8_0.gguf");
    for at in [62_895, 2_330_927, 1_248_447] {
        let mut bytes = std::fs::read(&path).expect("the file is there");
        bytes[at] ^= 0x40;
        let c = Container::from_bytes("flip.gguf", Cow::Owned(bytes)).unwrap_or_else(|e| panic!("{e}"));
        overflows(&format!("bit at {at}"), &c, &[257, 12, 30, 5, 9], F16S);
    }
    assert!(Container::open(&path, LoadMode::Read).is_ok());
}

/// The join of chunks whose maxima rise by up to 60: its products leave the normal numbers, and a driver that makes them
/// 0 gave other logits.
#[test]
fn maxima_that_rise_from_chunk_to_chunk_give_one_digest_whatever_becomes_of_subnormals() {
    // per chunk: keys of two tokens, and the value of the second
    const CHUNKS: [(u32, u32, u32); 32] = [
        (0, 0, 0x2baf5c29),
        (30, 30, 0),
        (60, 60, 0),
        (30, 2, 0x317fadc7),
        (30, 9, 0x313ccc11),
        (30, 11, 0x312f5b55),
        (30, 16, 0x3130efad),
        (30, 17, 0x314430c6),
        (30, 21, 0x3114d26d),
        (30, 22, 0x3129702f),
        (30, 24, 0x31500494),
        (30, 26, 0x31687d08),
        (30, 27, 0x318e6d08),
        (30, 29, 0x311db026),
        (34, 34, 0x30b30c88),
        (36, 36, 0x30a90533),
        (39, 39, 0x30936be6),
        (41, 41, 0x311cfa18),
        (43, 43, 0x308a7699),
        (43, 43, 0x317f1fb7),
        (47, 47, 0x30ca9736),
        (49, 49, 0x30ca99d3),
        (53, 53, 0x31062089),
        (55, 55, 0x3100a3e1),
        (57, 57, 0x310c597e),
        (60, 60, 0x32784393),
        (60, 60, 0x33dda1f0),
        (60, 60, 0x34c0b9a3),
        (60, 60, 0x37750c1f),
        (60, 60, 0x3af9f1db),
        (60, 60, 0x3bc088fe),
        (60, 60, 0x3cbfaf2e),
    ];
    let mut m = Model::zeros(BlockType::F32, [1, 64, 1, 64, 96, 2112], 2);
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        m.all(name).fill(128.0);
        m.all(name)[0] = 1.0;
    }
    for row in 0..96 {
        *m.at("token_embd.weight", row, 0) = 1024.0;
        *m.at("token_embd.weight", row, 2) = -200.0 / 2048.0;
        *m.at("output.weight", row, 5) = (row % 7 + 1) as f32;
    }
    *m.at("output.weight", 7, 0) = 0.001;
    for (name, row, column, value) in [
        ("blk.0.attn_q.weight", 2, 0, 1.0),
        ("blk.0.attn_k.weight", 2, 2, 2048.0),
        ("blk.0.attn_v.weight", 0, 1, 1.0),
        ("blk.0.attn_output.weight", 5, 0, 1.0),
    ] {
        *m.at(name, row, column) = value;
    }
    let mut ids = Vec::new();
    for (i, (first, second, value)) in CHUNKS.into_iter().enumerate() {
        let (a, b) = (1 + 2 * i, 2 + 2 * i);
        *m.at("token_embd.weight", a, 2) = first as f32 / 2048.0;
        *m.at("token_embd.weight", b, 2) = second as f32 / 2048.0;
        *m.at("token_embd.weight", b, 1) = f32::from_bits(value);
        ids.extend([0; 62]);
        ids.extend([a as u32, b as u32]);
    }
    ids.extend([0; 5]);
    let c = m.open();
    let caches = (CacheType::F32, CacheType::F32);
    let want = logits(&mut *cpu(None, 1), &c, &ids, caches).expect("finite");
    #[cfg(target_arch = "x86_64")]
    assert_eq!(flushing(|| logits(&mut *cpu(None, 1), &c, &ids, caches)).expect("finite"), want, "flushing");
    for mut device in everything() {
        let name = device.info().name;
        let found = logits(&mut *device, &c, &ids, caches).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(found, want, "{name}");
    }
}

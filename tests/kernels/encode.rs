//! The encoders at every SIMD level and on every adapter: the golden vectors, and the bytes of `blocks` over inputs
//! chosen to be awkward.

use crate::common;
use crate::common::rows::{awkward, quantised};
use isobit::internals::blocks::BlockType;
use isobit::internals::quantize::Encoder;
use isobit::internals::quantize::device::DeviceEncoder;
use isobit::internals::record::Device;
use isobit::internals::simd::{Level, encode};

fn file(name: &str) -> Vec<u8> {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/{}"), name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The same bytes, or where the first other one is.
fn same(got: &[u8], want: &[u8]) -> Result<(), String> {
    match got.iter().zip(want).position(|(a, b)| a != b) {
        None if got.len() == want.len() => Ok(()),
        None => Err(format!("{} bytes, expected {}", got.len(), want.len())),
        Some(i) => Err(format!("byte {i} is {:02x}, expected {:02x}", got[i], want[i])),
    }
}

fn encoded(level: Level, ty: BlockType, x: &[f32]) -> Vec<u8> {
    let mut out = vec![0xaa; ty.row_bytes(x.len()).unwrap()];
    encode::encode_row(level, ty, x, &mut out);
    out
}

#[test]
fn every_level_gives_the_golden_blocks() {
    let x = floats(&file("input/x.f32"));
    let vectors = [
        (BlockType::Q8_0, "q8_0/quantized.bin"),
        (BlockType::Q4_0, "q4_0/quantized.bin"),
        (BlockType::Q4_1, "q4_1/quantized.bin"),
        (BlockType::Q5_0, "q5_0/quantized.bin"),
        (BlockType::Q5_1, "q5_1/quantized.bin"),
        (BlockType::Q4_K, "q4_k/quantized.bin"),
        (BlockType::Q5_K, "q5_k/quantized.bin"),
        (BlockType::Q6_K, "q6_k/quantized.bin"),
        (BlockType::Q2_K, "q2_k/quantized.bin"),
        (BlockType::Q3_K, "q3_k/quantized.bin"),
        (BlockType::IQ4_NL, "iq4_nl/quantized.bin"),
        (BlockType::IQ4_XS, "iq4_xs/quantized.bin"),
        (BlockType::TQ1_0, "tq1_0/quantized.bin"),
        (BlockType::TQ2_0, "tq2_0/quantized.bin"),
        (BlockType::MXFP4, "mxfp4/quantized.bin"),
        (BlockType::NVFP4, "nvfp4/quantized.bin"),
        (BlockType::Q1_0, "q1_0/quantized.bin"),
        (BlockType::Q2_0, "q2_0/quantized.bin"),
        (BlockType::Q8_K, "q8_k/quantized_x.bin"),
        (BlockType::Q8K128, "q8k128/blocks.bin"),
    ];
    for (ty, name) in vectors {
        let want = file(name);
        for level in Level::available() {
            same(&encoded(level, ty, &x), &want).unwrap_or_else(|e| panic!("{} {name}: {e}", level.name()));
        }
    }
}

#[test]
fn every_level_gives_the_bytes_of_the_plain_encoders() {
    let x = awkward();
    for ty in quantised() {
        let mut want = vec![0; ty.row_bytes(x.len()).unwrap()];
        ty.encode_row(&x, &mut want);
        for level in Level::available() {
            same(&encoded(level, ty, &x), &want)
                .unwrap_or_else(|e| panic!("{} {}: {e} (blocks of {} bytes)", level.name(), ty.name(), ty.bytes()));
        }
    }
}

#[test]
fn one_changed_element_changes_the_bytes_or_the_comparison_is_worthless() {
    // one row: a type may have one scale for all of it
    let mut x = awkward();
    x.drain(..x.len() - 256);
    for ty in quantised() {
        let before = encoded(Level::detect(), ty, &x);
        let last = x.len() - 3;
        // beside the greatest of a whole row 5 is nothing
        let other = if ty.meets_rows() { 3.0e38 } else { 5.0 };
        let kept = std::mem::replace(&mut x[last], other);
        assert!(same(&encoded(Level::detect(), ty, &x), &before).is_err(), "{}", ty.name());
        x[last] = kept;
    }
}

#[test]
fn float_rows_decode_alike_at_every_level_and_the_first_bad_element_is_found() {
    for ty in [BlockType::F16, BlockType::BF16] {
        // every bit pattern, finite ones for the values, all for the faults
        let bytes: Vec<u8> = (0..=u16::MAX).flat_map(|b| b.to_le_bytes()).collect();
        let mut want = vec![0.0; 1 << 16];
        ty.decode_row(&bytes, &mut want);
        let first = want.iter().position(|v| !v.is_finite());
        for level in Level::available() {
            let mut got = vec![0.0; 1 << 16];
            assert_eq!(encode::decode_floats(level, ty, &bytes, &mut got), first, "{} {}", level.name(), ty.name());
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                assert_eq!(g.to_bits(), w.to_bits(), "{} {} {i:04x}", level.name(), ty.name());
            }
            for bad in [0usize, 7, 8, 31, 32, 100, 1030] {
                let mut clean = vec![0u8; 2 * 1031];
                assert_eq!(encode::decode_floats(level, ty, &clean, &mut got[..1031]), None);
                clean[2 * bad + 1] = 0x7f;
                clean[2 * bad] = 0x80;
                assert_eq!(encode::decode_floats(level, ty, &clean, &mut got[..1031]), Some(bad));
            }
        }
    }
    let x = [1.0f32, -2.5, f32::NAN];
    let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(encode::decode_floats(Level::detect(), BlockType::F32, &bytes, &mut [0.0; 3]), Some(2));
}

/// Golden vectors and awkward inputs through a device; odd lengths leave half a unit.
fn check_device(device: Box<dyn Device>) {
    let name = device.info().name;
    let mut e = DeviceEncoder::new(device);
    let golden = floats(&file("input/x.f32"));
    let awkward = awkward();
    for (ty, vector) in [
        (BlockType::Q8_0, "q8_0/quantized.bin"),
        (BlockType::Q4_0, "q4_0/quantized.bin"),
        (BlockType::Q8K128, "q8k128/blocks.bin"),
    ] {
        assert!(e.takes(ty));
        let mut run = |x: &[f32]| {
            let mut out = vec![0xaa; ty.row_bytes(x.len()).unwrap()];
            e.encode(ty, x, &mut out).unwrap();
            out
        };
        same(&run(&golden), &file(vector)).unwrap_or_else(|e| panic!("{name} {vector}: {e}"));
        for x in [&awkward[..], &golden[..ty.elems()], &golden[..3 * ty.elems()]] {
            let mut want = vec![0; ty.row_bytes(x.len()).unwrap()];
            ty.encode_row(x, &mut want);
            same(&run(x), &want).unwrap_or_else(|e| panic!("{name} {} of {}: {e}", ty.name(), x.len()));
        }
    }
    assert!(!e.takes(BlockType::Q4_K));
    assert!(e.encode(BlockType::Q4_K, &[0.0; 256], &mut [0; 144]).is_err());
}

#[test]
fn the_twins_give_the_golden_blocks() {
    check_device(Box::new(common::cpu(None, 1)));
}

#[cfg(feature = "gpu")]
mod gpu {
    #[test]
    fn every_adapter_gives_the_golden_blocks() {
        for device in crate::common::gpus() {
            super::check_device(Box::new(device));
        }
    }
}

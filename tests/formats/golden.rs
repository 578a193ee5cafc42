//! The block formats against vectors made by outside references (`tests/data/README.md` says which, and how).
//!
//! Values are compared as bits, blocks as bytes: there is no tolerance, except where a test is about the quantisers'
//! quality.

use isobit::internals::blocks::{
    BlockType, NumberKind, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, iq4_nl, iq4_xs, mxfp4, nvfp4, q2k, q3k,
    q4_1, q4k, q5k, q6k, q8k, q8k128, w4a16, w8a16,
};
use isobit::internals::formats::{Container, LoadMode};
use sha2::{Digest, Sha256};

// ---------------------------------------------------------------- comparing

/// Equal lengths and equal bits, NaN equal to itself only by its bits.
fn same_bits(got: &[f32], want: &[f32]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} values, expected {}", got.len(), want.len()));
    }
    match got.iter().zip(want).position(|(g, w)| g.to_bits() != w.to_bits()) {
        None => Ok(()),
        Some(i) => Err(format!(
            "value {i} is {:e} ({:08x}), expected {:e} ({:08x})",
            got[i],
            got[i].to_bits(),
            want[i],
            want[i].to_bits()
        )),
    }
}

fn same_bytes(ty: BlockType, got: &[u8], want: &[u8]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} bytes, expected {}", got.len(), want.len()));
    }
    let Some(i) = got.iter().zip(want).position(|(g, w)| g != w) else {
        return Ok(());
    };
    let wrong = got.iter().zip(want).filter(|(g, w)| g != w).count();
    Err(format!(
        "{wrong} bytes differ, first in block {} at byte {}: {:02x}, expected {:02x}",
        i / ty.bytes(),
        i % ty.bytes(),
        got[i],
        want[i]
    ))
}

/// The bytes of a file under `tests/data/vectors`.
fn file(name: &str) -> Vec<u8> {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/{}"), name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn words<const W: usize, T>(name: &str, f: impl Fn([u8; W]) -> T) -> Vec<T> {
    let bytes = file(name);
    let (words, rest) = bytes.as_chunks::<W>();
    assert!(rest.is_empty() && !words.is_empty(), "{name}: {} bytes", bytes.len());
    words.iter().map(|&w| f(w)).collect()
}

fn floats(name: &str) -> Vec<f32> {
    words(name, f32::from_le_bytes)
}

fn decoded(ty: BlockType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / ty.bytes() * ty.elems()];
    ty.decode_row(bytes, &mut out);
    out
}

/// Encoded row by row, as a file is, into a buffer of ones so that an unwritten byte shows.
fn encoded(ty: BlockType, x: &[f32], row: usize) -> Vec<u8> {
    x.chunks_exact(row)
        .flat_map(|row| {
            let mut out = vec![0xff; ty.row_bytes(row.len()).unwrap()];
            ty.encode_row(row, &mut out);
            out
        })
        .collect()
}

/// Fails with the name of what was compared.
fn check(what: &str, result: Result<(), String>) {
    if let Err(e) = result {
        panic!("{what}: {e}");
    }
}

/// Random cases that are the same everywhere; the state is the seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        isobit::internals::random::next(&mut self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in -1..1.
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Roughly Gaussian, standard deviation 1.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.signed() * 0.5).sum()
    }
}

const QUANTISED: [(BlockType, &str); 8] = [
    (BlockType::Q4_0, "q4_0"),
    (BlockType::Q4_1, "q4_1"),
    (BlockType::Q5_0, "q5_0"),
    (BlockType::Q5_1, "q5_1"),
    (BlockType::Q8_0, "q8_0"),
    (BlockType::Q4_K, "q4_k"),
    (BlockType::Q5_K, "q5_k"),
    (BlockType::Q6_K, "q6_k"),
];

/// Types with vectors of one producer: the folder, and the sum (SHA-256) of `quantized.bin` decoded, as little-endian
/// f32.
const SUMMED: [(BlockType, &str, &str); 10] = [
    (BlockType::Q2_K, "q2_k", "62cc8bb20af6d6f017490d844edda43e2d0c65a83860585d902273fbdb747b06"),
    (BlockType::Q3_K, "q3_k", "43ed0fcba48bef81467a446ea88bc3083871ff274aa2df36f51805a47e93e2eb"),
    (BlockType::IQ4_NL, "iq4_nl", "5aad635b3192b34f9c389e8bd4af9a8933beb4e320f97975e681fef0fe1d4514"),
    (BlockType::IQ4_XS, "iq4_xs", "463bea3d7ccbb74397a05adca6468292144b43ffa39eae3a21e32a8a373c696c"),
    (BlockType::TQ1_0, "tq1_0", "654a57db12cdeb167d9ec753fda7b5ed2d3d4b5581c40761ae61836271a36dda"),
    (BlockType::TQ2_0, "tq2_0", "654a57db12cdeb167d9ec753fda7b5ed2d3d4b5581c40761ae61836271a36dda"),
    (BlockType::MXFP4, "mxfp4", "11eedc0a74b6eb3d2e77191c8dc185dfae9bf2db75f9cbbcdff1852ca44d7409"),
    (BlockType::NVFP4, "nvfp4", "151317f04b0d111a0fb253cf243477363f5ac1938a879b6459b5c12e8a00a05a"),
    (BlockType::Q1_0, "q1_0", "4f1a08f8f0b6a55cf4191b9709168ade00dcd6a3be0120194b5502beb0c193e3"),
    (BlockType::Q2_0, "q2_0", "393192a48fc12904437cf9c26e4962aa87d15e170704e2ee1615e3023ad8ccad"),
];

/// Types of which importances change the blocks.
const WEIGHTED: [(BlockType, &str); 11] = [
    (BlockType::Q4_0, "q4_0"),
    (BlockType::Q4_1, "q4_1"),
    (BlockType::Q5_0, "q5_0"),
    (BlockType::Q5_1, "q5_1"),
    (BlockType::Q2_K, "q2_k"),
    (BlockType::Q3_K, "q3_k"),
    (BlockType::Q4_K, "q4_k"),
    (BlockType::Q5_K, "q5_k"),
    (BlockType::Q6_K, "q6_k"),
    (BlockType::IQ4_NL, "iq4_nl"),
    (BlockType::IQ4_XS, "iq4_xs"),
];

const BLOCKED: [BlockType; 22] = [
    BlockType::Q2_K,
    BlockType::Q3_K,
    BlockType::IQ4_NL,
    BlockType::IQ4_XS,
    BlockType::TQ1_0,
    BlockType::TQ2_0,
    BlockType::MXFP4,
    BlockType::NVFP4,
    BlockType::Q1_0,
    BlockType::Q2_0,
    BlockType::Q8_0,
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q4_K,
    BlockType::Q5_K,
    BlockType::Q6_K,
    BlockType::Q8_K,
    BlockType::Q8K128,
    BlockType::W8A16,
    BlockType::W4A16,
];

// ---------------------------------------------------------------- golden

#[test]
fn decoding_the_reference_blocks_gives_the_reference_bits() {
    for (ty, dir) in QUANTISED {
        let got = decoded(ty, &file(&format!("{dir}/quantized.bin")));
        check(dir, same_bits(&got, &floats(&format!("{dir}/dequantized.f32"))));
    }
    let got = decoded(BlockType::Q8_K, &file("q8_k/quantized_y.bin"));
    check("q8_k", same_bits(&got, &floats("q8_k/dequantized_y.f32")));
    let got = decoded(BlockType::Q8K128, &file("q8k128/blocks.bin"));
    check("q8k128", same_bits(&got, &floats("q8k128/dequantized.f32")));
}

#[test]
fn decoding_blocks_of_random_bits_gives_the_reference_bits() {
    for (ty, dir) in QUANTISED {
        let got = decoded(ty, &file(&format!("{dir}/random_blocks.bin")));
        check(dir, same_bits(&got, &floats(&format!("{dir}/random_blocks.f32"))));
    }
}

#[test]
fn decoding_blocks_of_the_reference_library_gives_its_bits() {
    for (ty, dir, sum) in SUMMED {
        let bytes: Vec<u8> =
            decoded(ty, &file(&format!("{dir}/quantized.bin"))).into_iter().flat_map(f32::to_le_bytes).collect();
        assert_eq!(format!("{:x}", Sha256::digest(bytes)), sum, "{dir}/quantized.bin decoded");
        for blocks in ["random_blocks", "edge_blocks"] {
            let got = decoded(ty, &file(&format!("{dir}/{blocks}.bin")));
            check(&format!("{dir}/{blocks}"), same_bits(&got, &floats(&format!("{dir}/{blocks}.f32"))));
        }
    }
}

/// A block's values without its float scale: sub-scale times code, all integers. For Q2_K also the minima, negated.
fn integers(ty: BlockType, block: &[u8]) -> Vec<Vec<i32>> {
    let one = f32_to_f16(1.0).to_le_bytes();
    let fields: &[&[(usize, &[u8])]] = match ty {
        BlockType::Q2_K => &[&[(80, &one), (82, &[0, 0])], &[(80, &[0, 0]), (82, &one)]],
        BlockType::Q3_K => &[&[(108, &one)]],
        BlockType::TQ1_0 => &[&[(52, &one)]],
        BlockType::TQ2_0 => &[&[(64, &one)]],
        BlockType::MXFP4 => &[&[(0, &[128])]],
        BlockType::NVFP4 => &[&[(0, &[64; 4])]],
        _ => &[&[(0, &one)]],
    };
    let with = |fields: &[(usize, &[u8])]| {
        let mut block = block.to_vec();
        for (at, bytes) in fields {
            block[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        decoded(ty, &block).into_iter().map(|v| v as i32).collect()
    };
    fields.iter().map(|f| with(f)).collect()
}

#[test]
fn integer_parts_give_the_reference_integer_dots() {
    let act = file("q8_k/quantized_y.bin");
    let act: Vec<&[i8]> = act.chunks_exact(292).map(|b| bytemuck::cast_slice(&b[4..260])).collect();
    for (ty, dir, _) in SUMMED {
        // [weight row][activation row][group], for Q2_K of two sums
        let group = match ty {
            BlockType::NVFP4 => 16,
            BlockType::IQ4_NL | BlockType::MXFP4 => 32,
            BlockType::Q2_0 => 64,
            _ => 128,
        };
        let bytes = file(&format!("{dir}/quantized.bin"));
        let mut got = Vec::new();
        for row in bytes.chunks_exact(bytes.len() / 20) {
            let blocks: Vec<_> = row.chunks_exact(ty.bytes()).map(|b| integers(ty, b)).collect();
            for act in act.chunks_exact(2) {
                let act = act.concat();
                for at in (0..512).step_by(group) {
                    for part in 0..blocks[0].len() {
                        let code = |e: usize| blocks[e / ty.elems()][part][e % ty.elems()];
                        let sum: i32 = (at..at + group).map(|e| code(e) * i32::from(act[e])).sum();
                        got.push(if part == 1 { -sum } else { sum });
                    }
                }
            }
        }
        assert_eq!(got, words(&format!("{dir}/dot_ints.i32"), i32::from_le_bytes), "{dir}");
    }
}

#[test]
fn encoding_with_importances_gives_the_reference_bytes() {
    let (x, importances) = (floats("input/x.f32"), floats("imatrix/weights.f32"));
    for (ty, dir) in WEIGHTED {
        let want = file(&format!("{dir}/quantized_im.bin"));
        let encoded = |importances: &[f32]| -> Vec<u8> {
            let row = |x: &[f32]| {
                let mut out = vec![0xff; ty.row_bytes(512).unwrap()];
                ty.encode_row_weighted(x, importances, &mut out);
                out
            };
            x.chunks_exact(512).flat_map(row).collect()
        };
        check(dir, same_bytes(ty, &encoded(&importances), &want));
        // others give other blocks
        let mut other = importances.clone();
        other[33] = 900.0;
        assert!(same_bytes(ty, &encoded(&other), &want).is_err(), "{dir}");
    }
}

#[test]
fn importances_of_zero_make_no_block_that_is_refused() {
    let x: Vec<f32> = (0..512).map(|i| (i % 37) as f32 * 0.25 - 3.0).collect();
    for (ty, _) in WEIGHTED {
        for width in [ty.elems(), 512] {
            let mut out = vec![0xff; ty.row_bytes(width).unwrap()];
            ty.encode_row_weighted(&x[..width], &vec![0.0; width], &mut out);
            assert_eq!(ty.find_bad_scale(&out), None, "{} of {width}", ty.name());
        }
    }
    // rows that are no whole number of eight blocks are as if they were longer
    for ty in [BlockType::Q4_0, BlockType::Q4_1, BlockType::Q5_0, BlockType::Q5_1, BlockType::IQ4_NL] {
        let importances: Vec<f32> = (0..320).map(|i| 1.0 + (i % 5) as f32).collect();
        let mut short = vec![0; ty.row_bytes(32).unwrap()];
        ty.encode_row_weighted(&x[..32], &importances[..32], &mut short);
        let mut long = vec![0; ty.row_bytes(320).unwrap()];
        // ten times the same block: the row's mean square is that of one
        ty.encode_row_weighted(&x[..32].repeat(10), &importances[..32].repeat(10), &mut long);
        assert!(long.chunks_exact(ty.bytes()).all(|b| b == &long[..ty.bytes()]), "{}", ty.name());
        check(ty.name(), same_bytes(ty, &long[..ty.bytes()], &short));
    }
}

#[test]
fn encoding_the_shared_rows_gives_the_reference_bytes() {
    let (x, y) = (floats("input/x.f32"), floats("input/y.f32"));
    assert_eq!((x.len(), y.len()), (20 * 512, 4 * 512));
    for (ty, dir) in QUANTISED {
        let want = file(&format!("{dir}/quantized.bin"));
        check(dir, same_bytes(ty, &encoded(ty, &x, 512), &want));
    }
    for (ty, dir, _) in SUMMED {
        let want = file(&format!("{dir}/quantized.bin"));
        check(dir, same_bytes(ty, &encoded(ty, &x, 512), &want));
    }
    for (ty, input, name) in [
        (BlockType::Q8_0, &y, "q8_0/quantized_y.bin"),
        (BlockType::Q8_K, &x, "q8_k/quantized_x.bin"),
        (BlockType::Q8_K, &y, "q8_k/quantized_y.bin"),
        (BlockType::Q8K128, &x, "q8k128/blocks.bin"),
    ] {
        check(name, same_bytes(ty, &encoded(ty, input, 512), &file(name)));
    }
}

#[test]
fn q4_1_has_the_references_values_at_the_edges_and_its_integer_sums() {
    let got = decoded(BlockType::Q4_1, &file("q4_1/edge_blocks.bin"));
    check("q4_1", same_bits(&got, &floats("q4_1/edge_blocks.f32")));
    // [weight row][activation row][block of 32][sum of q * a, sum of a]
    let want: Vec<i32> = words("q4_1/dot_ints.i32", i32::from_le_bytes);
    let (w, a) = (file("q4_1/quantized.bin"), file("q8_k/quantized_y.bin"));
    let w: &[q4_1::BlockQ4_1] = bytemuck::cast_slice(&w);
    let a: &[q8k::BlockQ8K] = bytemuck::cast_slice(&a);
    let mut got = Vec::new();
    for row in w.chunks(16) {
        for act in a.chunks(2) {
            for (b, block) in row.iter().enumerate() {
                let codes = &act[b / 8].qs[b % 8 * 32..][..32];
                let q = |e: usize| i32::from(block.qs[e % 16] >> (4 * (e / 16)) & 15);
                let dot = |f: &dyn Fn(usize) -> i32| (0..32).map(|e| f(e) * i32::from(codes[e])).sum::<i32>();
                got.extend([dot(&q), dot(&|_| 1)]);
            }
        }
    }
    assert_eq!(got, want);
}

#[test]
fn five_bit_blocks_of_zeros_ties_and_tiny_scales_are_the_references() {
    let x = floats("input/five_bits.f32");
    for (ty, dir) in [(BlockType::Q5_0, "q5_0"), (BlockType::Q5_1, "q5_1")] {
        check(dir, same_bytes(ty, &encoded(ty, &x, 32), &file(&format!("{dir}/five_bits.bin"))));
    }
}

/// The elements of a tensor of a safetensors file under `vectors/msmodelslim`, `W` bytes each.
fn tensor<const W: usize, T>(file: &str, name: &str, f: impl Fn([u8; W]) -> T) -> Vec<T> {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors/msmodelslim/{}.safetensors"), file);
    let c = Container::open(path.as_ref(), LoadMode::Read).unwrap();
    let t = c.tensor(name).unwrap_or_else(|| panic!("{path}: no {name}"));
    let mut bytes = vec![0; t.bytes as usize];
    c.read(t, 0, &mut bytes).unwrap();
    bytes.as_chunks::<W>().0.iter().map(|&b| f(b)).collect()
}

#[test]
fn blocks_of_msmodelslim_codes_scales_and_offsets_have_the_expected_values() {
    const K: usize = 64;
    // a scale and an offset for a row, or for every 32 elements of it
    for (linear, expected) in [("up_proj", "w8a16_channel"), ("gate_proj", "w8a16_group32")] {
        let part = |what: &str| format!("model.layers.0.mlp.{linear}.{what}");
        let codes = tensor("quant_model_weights", &part("weight"), i8::from_le_bytes);
        let scales = tensor("quant_model_weights", &part("weight_scale"), f32::from_le_bytes);
        let offsets = tensor("quant_model_weights", &part("weight_offset"), f32::from_le_bytes);
        let group = codes.len() / scales.len();
        assert!(codes.len() == 16 * K && scales.len() == offsets.len() && [32, K].contains(&group), "{linear}");
        let blocks: Vec<w8a16::BlockW8A16> = (0..codes.len() / 32)
            .map(|b| w8a16::BlockW8A16 {
                d: scales[32 * b / group].to_le_bytes(),
                o: offsets[32 * b / group] as i8,
                qs: codes[32 * b..][..32].try_into().unwrap(),
            })
            .collect();
        let got = decoded(BlockType::W8A16, bytemuck::cast_slice(&blocks));
        check(linear, same_bits(&got, &tensor("expected", expected, f32::from_le_bytes)));
    }
    // codes of four bits with sign and a scale a row, as nibbles above an offset of 8
    let codes = tensor("expected", "w4a8_q_i8", i8::from_le_bytes);
    let scales = tensor("quant_model_weights", "model.layers.0.mlp.down_proj.weight_scale", f32::from_le_bytes);
    let blocks: Vec<w4a16::BlockW4A16> = (0..codes.len() / 32)
        .map(|b| {
            let nibble = |e: usize| (codes[32 * b + e] + 8) as u8;
            let qs = std::array::from_fn(|i| nibble(i) | nibble(i + 16) << 4);
            w4a16::BlockW4A16 { d: scales[32 * b / K].to_le_bytes(), o: 8, qs }
        })
        .collect();
    let got = decoded(BlockType::W4A16, bytemuck::cast_slice(&blocks));
    check("w4a8", same_bits(&got, &tensor("expected", "w4a8_deq", f32::from_le_bytes)));
}

#[test]
fn a_zero_q8_k_block_is_all_zero_bytes() {
    assert_eq!(encoded(BlockType::Q8_K, &[0.0; 256], 256), vec![0; 292]);
    assert_eq!(encoded(BlockType::Q8_K, &[-0.0; 256], 256), vec![0; 292]);
}

#[test]
fn q8_k_blocks_of_the_older_encoder_decode_as_scale_times_code() {
    let bytes = file("q8k128/candle_q8k_blocks.bin");
    let got = decoded(BlockType::Q8_K, &bytes);
    let want: Vec<f32> = bytes
        .chunks_exact(292)
        .flat_map(|b| {
            let d = f32::from_le_bytes(b[..4].try_into().unwrap());
            b[4..260].iter().map(move |&q| d * q as i8 as f32)
        })
        .collect();
    check("candle_q8k_blocks.bin", same_bits(&got, &want));
    // It really is the other encoder's file: the codes reach -128, and the values approximate the same input.
    assert!(bytes.chunks_exact(292).any(|b| b[4..260].contains(&0x80)));
    let x = floats("input/x.f32");
    for (i, (block, x)) in got.chunks_exact(256).zip(x.chunks_exact(256)).enumerate() {
        let amax = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let worst = block.iter().zip(x).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        // A peak of the other sign is cut at 127/128 of itself.
        assert!(worst <= amax / 127.0, "block {i}: error {worst} for amax {amax}");
    }
}

#[test]
fn stored_sums_are_the_sums_of_the_codes() {
    for (name, ty) in [("q8_k/quantized_x.bin", BlockType::Q8_K), ("q8k128/blocks.bin", BlockType::Q8K128)] {
        let bytes = encoded(ty, &floats("input/x.f32"), 512);
        for block in bytes.chunks_exact(ty.bytes()) {
            let (codes, sums) = block[4..].split_at(ty.elems());
            for (codes, sum) in codes.chunks_exact(16).zip(sums.chunks_exact(2)) {
                let want: i32 = codes.iter().map(|&q| q as i8 as i32).sum();
                assert_eq!(i16::from_le_bytes([sum[0], sum[1]]) as i32, want, "{name}");
            }
        }
    }
}

#[test]
fn q4_k_integer_parts_give_the_reference_integer_dots() {
    let w = file("q4_k/quantized.bin");
    let a = file("q8_k/quantized_y.bin");
    let want: Vec<i32> = words("q4_k/vec_dot_ints.i32", i32::from_le_bytes);
    let w: &[q4k::BlockQ4K] = bytemuck::cast_slice(&w);
    let a: &[q8k::BlockQ8K] = bytemuck::cast_slice(&a);
    let mut got = Vec::new();
    for row in w.chunks_exact(2) {
        for act in a.chunks_exact(2) {
            for (w, a) in row.iter().zip(act) {
                let codes = w.codes();
                let (mut dots, mut mins) = (0, 0);
                for j in 0..8 {
                    let (sc, m) = q4k::scale_min(&w.scales, j);
                    let (mut dot, mut sum) = (0, 0);
                    for e in 32 * j..32 * j + 32 {
                        dot += codes[e] as i32 * a.qs[e] as i32;
                        sum += a.qs[e] as i32;
                    }
                    dots += sc as i32 * dot;
                    mins += m as i32 * sum;
                }
                got.extend([dots, mins]);
            }
        }
    }
    assert_eq!(got, want);
}

#[test]
fn code_accessors_agree_with_the_decoders() {
    let scale = |d: [u8; 2]| f16_to_f32(u16::from_le_bytes(d));
    for block in bytemuck::cast_slice::<u8, q5k::BlockQ5K>(&file("q5_k/random_blocks.bin")) {
        let mut y = [0.0; 256];
        block.decode(&mut y);
        let codes = block.codes();
        let want: Vec<f32> = (0..256)
            .map(|e| {
                let (sc, m) = q4k::scale_min(&block.scales, e / 32);
                (scale(block.d) * sc as f32) * codes[e] as f32 - (scale(block.dmin) * m as f32)
            })
            .collect();
        check("q5_k", same_bits(&y, &want));
    }
    for block in bytemuck::cast_slice::<u8, q6k::BlockQ6K>(&file("q6_k/random_blocks.bin")) {
        let mut y = [0.0; 256];
        block.decode(&mut y);
        let codes = block.codes();
        let want: Vec<f32> =
            (0..256).map(|e| (scale(block.d) * block.scales[e / 16] as f32) * codes[e] as f32).collect();
        check("q6_k", same_bits(&y, &want));
    }
}

#[test]
fn sixteen_bit_rounding_gives_the_reference_bits_both_ways() {
    let x = floats("f16_bf16/x.f32");
    for (ty, bits, back) in [
        (BlockType::F16, "f16_bf16/f16.u16", "f16_bf16/f16_back.f32"),
        (BlockType::BF16, "f16_bf16/bf16.u16", "f16_bf16/bf16_back.f32"),
    ] {
        check(bits, same_bytes(ty, &encoded(ty, &x, x.len()), &file(bits)));
        check(back, same_bits(&decoded(ty, &file(bits)), &floats(back)));
    }
}

#[test]
fn every_f16_and_bf16_survives_a_round_trip() {
    for bits in 0..=u16::MAX {
        let (f, b) = (f16_to_f32(bits), bf16_to_f32(bits));
        if f.is_nan() {
            assert!(bits & 0x7fff > 0x7c00, "{bits:04x}");
            assert_eq!(f32_to_f16(f), bits | 0x200, "a NaN keeps its payload and becomes quiet");
        } else {
            assert_eq!(f32_to_f16(f), bits, "f16 {bits:04x}");
        }
        let quiet = if b.is_nan() { bits | 0x40 } else { bits };
        assert_eq!(f32_to_bf16(b), quiet, "bf16 {bits:04x}");
    }
}

#[test]
fn narrowing_to_f16_picks_the_nearest_and_ties_to_even() {
    // Every pair of neighbours: just below, at and just above the midpoint.
    for low in 0..0x7bffu16 {
        let (a, b) = (f16_to_f32(low), f16_to_f32(low + 1));
        let mid = a + (b - a) / 2.0; // exact in f32
        let even = low + (low & 1);
        for (v, want) in [(mid, even), (mid.next_down(), low), (mid.next_up(), low + 1)] {
            assert_eq!(f32_to_f16(v), want, "{v:e}");
            assert_eq!(f32_to_f16(-v), want | 0x8000, "{:e}", -v);
        }
    }
    assert_eq!(f32_to_f16(65520f32.next_down()), 0x7bff);
    assert_eq!(f32_to_f16(65520.0), 0x7c00);
    assert_eq!(f32_to_f16(f32::MIN), 0xfc00);
}

#[test]
fn f32_rows_keep_their_bits() {
    let x = [1.5f32, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY, f32::from_bits(0x7f80_0001)];
    let bytes = encoded(BlockType::F32, &x, x.len());
    check("f32", same_bits(&decoded(BlockType::F32, &bytes), &x));
    assert_eq!(bytes[..4], 1.5f32.to_le_bytes());
}

// ---------------------------------------------------------------- the checks can fail

#[test]
fn the_comparators_reject_a_flipped_bit_a_nan_a_short_buffer_and_swapped_inputs() {
    let want = floats("q4_k/dequantized.f32");
    assert!(same_bits(&want, &want).is_ok());
    for i in [0, want.len() / 2, want.len() - 1] {
        for bit in [0, 15, 31] {
            let mut got = want.clone();
            got[i] = f32::from_bits(got[i].to_bits() ^ (1 << bit));
            assert!(same_bits(&got, &want).is_err(), "value {i}, bit {bit}");
        }
        let mut got = want.clone();
        got[i] = f32::NAN;
        assert!(same_bits(&got, &want).is_err());
    }
    assert!(same_bits(&want[1..], &want).is_err());
    assert!(same_bits(&[0.0], &[-0.0]).is_err());
    assert!(same_bits(&floats("q5_k/dequantized.f32"), &want).is_err());

    let ty = BlockType::Q4_K;
    let want = file("q4_k/quantized.bin");
    assert!(same_bytes(ty, &want, &want).is_ok());
    for i in [0, want.len() - 1] {
        let mut got = want.clone();
        got[i] ^= 1;
        assert!(same_bytes(ty, &got, &want).is_err(), "byte {i}");
    }
    assert!(same_bytes(ty, &want[..want.len() - 1], &want).is_err());
    assert!(same_bytes(ty, &file("q4_k/random_blocks.bin"), &want).is_err());
}

#[test]
fn every_bit_of_a_block_reaches_the_decoded_values() {
    for ty in BLOCKED {
        // Non-zero scales, minima and codes everywhere; the sums of the 8-bit formats are not decoded.
        let mut block = vec![0x35u8; ty.bytes()];
        // an offset that leaves codes of 1, which no bit of the scale is rounded away from
        match ty {
            BlockType::W8A16 => block[4] = 0x34,
            BlockType::W4A16 => block[4] = 4,
            // no sub-block of codes 0 alone
            BlockType::Q2_K => block[16..80].fill(0x75),
            _ => {}
        }
        let used = match ty {
            // a bit of a byte of five digits need not change one: those are enumerated below
            BlockType::TQ1_0 => continue,
            BlockType::Q8_K | BlockType::Q8K128 => 4 + ty.elems(),
            _ => ty.bytes(),
        };
        let want = decoded(ty, &block);
        assert!(want.iter().all(|v| v.is_finite()));
        for bit in 0..used * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let got = decoded(ty, &flipped);
            // the sign of a scale that has none
            if ty == BlockType::NVFP4 && bit < 32 && bit % 8 == 7 {
                check(ty.name(), same_bits(&got, &want));
                continue;
            }
            assert!(same_bits(&got, &want).is_err(), "{}: bit {bit} changes nothing", ty.name());
        }
    }
}

#[test]
fn every_five_ternary_digits_have_a_byte_of_their_own_and_come_back() {
    let mut seen = std::collections::BTreeSet::new();
    for v in 0..243usize {
        // element 32p of the block is digit p of byte 0, the most significant first
        let digits: Vec<f32> = [81, 27, 9, 3, 1].iter().map(|w| (v / w % 3) as f32 - 1.0).collect();
        let mut x = [1.0f32; 256];
        for (p, d) in digits.iter().enumerate() {
            x[32 * p] = *d;
        }
        let bytes = encoded(BlockType::TQ1_0, &x, 256);
        assert_eq!(decoded(BlockType::TQ1_0, &bytes), x, "{digits:?}");
        seen.insert(bytes[0]);
    }
    assert_eq!(seen.len(), 243);
}

// ---------------------------------------------------------------- quality and robustness

/// For every element the step of its scale, and the values of the lowest and highest code.
fn grid(ty: BlockType, block: &[u8]) -> Vec<(f32, f32, f32)> {
    let f16 = |d: [u8; 2]| f16_to_f32(u16::from_le_bytes(d));
    let head = f16([block[0], block[1]]);
    let span = |step: f32, low: f32, high: f32, off: f32| {
        let (a, b) = (step * low - off, step * high - off);
        (step.abs(), a.min(b), a.max(b))
    };
    let k = |d: [u8; 2], dmin: [u8; 2], scales: &[u8; 12], e: usize, nmax: f32| {
        let (sc, m) = q4k::scale_min(scales, e / 32);
        span(f16(d) * sc as f32, 0.0, nmax, f16(dmin) * m as f32)
    };
    (0..ty.elems())
        .map(|e| match ty {
            BlockType::Q8_0 => span(head, -128.0, 127.0, 0.0),
            BlockType::Q4_0 => span(head, -8.0, 7.0, 0.0),
            BlockType::Q5_0 => span(head, -16.0, 15.0, 0.0),
            BlockType::Q4_1 => span(head, 0.0, 15.0, -f16([block[2], block[3]])),
            BlockType::Q5_1 => span(head, 0.0, 31.0, -f16([block[2], block[3]])),
            BlockType::Q2_K => {
                let b: &q2k::BlockQ2K = bytemuck::from_bytes(block);
                let sc = b.sc[e / 16];
                span(f16(b.d) * (sc & 15) as f32, 0.0, 3.0, f16(b.dmin) * (sc >> 4) as f32)
            }
            BlockType::Q3_K => {
                let b: &q3k::BlockQ3K = bytemuck::from_bytes(block);
                span(f16(b.d) * b.scale(e / 16) as f32, -4.0, 3.0, 0.0)
            }
            BlockType::TQ1_0 => span(f16([block[52], block[53]]), -1.0, 1.0, 0.0),
            BlockType::TQ2_0 => span(f16([block[64], block[65]]), -1.0, 1.0, 0.0),
            BlockType::Q2_0 => span(head, -1.0, 1.0, 0.0),
            BlockType::Q4_K => {
                let b: &q4k::BlockQ4K = bytemuck::from_bytes(block);
                k(b.d, b.dmin, &b.scales, e, 15.0)
            }
            BlockType::Q5_K => {
                let b: &q5k::BlockQ5K = bytemuck::from_bytes(block);
                k(b.d, b.dmin, &b.scales, e, 31.0)
            }
            BlockType::Q6_K => {
                let b: &q6k::BlockQ6K = bytemuck::from_bytes(block);
                span(f16(b.d) * b.scales[e / 16] as f32, -32.0, 31.0, 0.0)
            }
            BlockType::Q8_K => {
                let b: &q8k::BlockQ8K = bytemuck::from_bytes(block);
                span(b.scale(), -127.0, 127.0, 0.0)
            }
            BlockType::Q8K128 => {
                let b: &q8k128::BlockQ8K128 = bytemuck::from_bytes(block);
                span(b.scale(), -127.0, 127.0, 0.0)
            }
            BlockType::W8A16 => {
                let b: &w8a16::BlockW8A16 = bytemuck::from_bytes(block);
                span(b.scale(), -128.0, 127.0, b.scale() * b.o as f32)
            }
            BlockType::W4A16 => {
                let b: &w4a16::BlockW4A16 = bytemuck::from_bytes(block);
                span(b.scale(), 0.0, 15.0, b.scale() * b.o as f32)
            }
            _ => unreachable!(),
        })
        .collect()
}

#[test]
fn random_rows_come_back_within_half_a_step() {
    const SEED: u64 = 20260901;
    // those of tables have no one step (below), Q1_0 has signs alone
    let tables = [BlockType::IQ4_NL, BlockType::IQ4_XS, BlockType::MXFP4, BlockType::NVFP4, BlockType::Q1_0];
    for ty in BLOCKED.into_iter().filter(|t| !tables.contains(t)) {
        let mut random = Random(SEED);
        for case in 0..200 {
            let n = ty.elems() * (1 + random.below(4));
            let size = 10f32.powi(random.below(7) as i32 - 3);
            let offset = [0.0, 0.0, 1.5, -3.0][random.below(4)] * size;
            let uniform = random.below(2) == 0;
            let mut x = vec![0.0; n];
            for v in &mut x {
                let noise = if uniform { random.signed() } else { random.normal() };
                *v = offset + size * noise;
            }
            let bytes = encoded(ty, &x, n);
            let y = decoded(ty, &bytes);
            assert_eq!(ty.find_bad_scale(&bytes), None);
            for (b, block) in bytes.chunks_exact(ty.bytes()).enumerate() {
                // These choose codes with the scale (and minimum) before it is rounded to f16: off by up to half a unit
                // of the f16 (relative 2^-11, absolute 2^-25) times the largest code.
                let half_unit = |v: f32| f32::max(v.abs() / 2048.0, 2f32.powi(-25));
                let at = match ty {
                    BlockType::TQ1_0 => 52,
                    BlockType::TQ2_0 => 64,
                    _ => 0,
                };
                let d = f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]])).abs();
                let slack = match ty {
                    BlockType::TQ1_0 | BlockType::TQ2_0 | BlockType::Q2_0 => half_unit(d) / d,
                    BlockType::Q8_0 => 127.0 * half_unit(d) / d,
                    BlockType::Q4_0 => 8.0 * half_unit(d) / d,
                    BlockType::Q5_0 => 16.0 * half_unit(d) / d,
                    BlockType::Q4_1 => {
                        let m = f16_to_f32(u16::from_le_bytes([block[2], block[3]]));
                        (15.0 * half_unit(d) + half_unit(m)) / d
                    }
                    BlockType::Q5_1 => {
                        let m = f16_to_f32(u16::from_le_bytes([block[2], block[3]]));
                        (31.0 * half_unit(d) + half_unit(m)) / d
                    }
                    _ => 0.0,
                } + 1e-3;
                for (e, (step, low, high)) in grid(ty, block).into_iter().enumerate() {
                    let (x, y) = (x[b * ty.elems() + e], y[b * ty.elems() + e]);
                    let place = || {
                        format!("{} seed {SEED} case {case} block {b} element {e}: {x} -> {y}, step {step}", ty.name())
                    };
                    // The nearest of the values the codes can express.
                    let nearest = x.clamp(low, high);
                    let bound = step * (0.5 + slack);
                    assert!((y - nearest).abs() <= bound, "{}", place());
                    // What the range cuts off: the searching quantisers give up a little at the ends. Q4_0 and Q5_0
                    // have no code for the negated peak. The offset of W8A16 and W4A16 is rounded.
                    let cut = match ty {
                        BlockType::Q4_0 | BlockType::Q5_0 => 1.0 + slack,
                        BlockType::Q2_K | BlockType::Q3_K => 3.0,
                        BlockType::Q4_K | BlockType::Q5_K | BlockType::Q6_K => 3.0,
                        BlockType::W8A16 | BlockType::W4A16 => 0.5 + slack,
                        _ => slack,
                    };
                    assert!((x - nearest).abs() <= step * cut, "cut off: {}", place());
                }
            }
        }
    }
}

#[test]
fn codes_into_a_table_are_those_of_the_nearest_values() {
    let f16 = |d: [u8; 2]| f16_to_f32(u16::from_le_bytes(d));
    let mut random = Random(20261123);
    for ty in [BlockType::IQ4_NL, BlockType::IQ4_XS, BlockType::MXFP4, BlockType::NVFP4] {
        for _ in 0..200 {
            // large enough for scales that are normal as f16
            let size = 10f32.powi(random.below(3) as i32);
            let x: Vec<f32> = (0..ty.elems()).map(|_| size * random.normal()).collect();
            let bytes = encoded(ty, &x, x.len());
            let y = decoded(ty, &bytes);
            for (e, (x, y)) in x.iter().zip(y).enumerate() {
                let d = match ty {
                    BlockType::IQ4_NL => f16([bytes[0], bytes[1]]),
                    BlockType::IQ4_XS => {
                        let b: &iq4_xs::BlockIQ4XS = bytemuck::from_bytes(&bytes);
                        f16(b.d) * b.scale(e / 32) as f32
                    }
                    BlockType::MXFP4 => bytemuck::from_bytes::<mxfp4::BlockMXFP4>(&bytes).scale(),
                    _ => nvfp4::scale(bytes[e / 16]),
                };
                let table = if ty.name().starts_with("IQ4") { &iq4_nl::VALUES } else { &mxfp4::VALUES };
                let nearest = table.iter().map(|&v| (v as f32 * d - x).abs()).fold(f32::MAX, f32::min);
                // the IQ4 codes are those of the scale before it was rounded to f16
                let slack = if ty.name().starts_with("IQ4") { 127.0 * d.abs() / 1000.0 } else { 0.0 };
                assert!((y - x).abs() <= nearest + slack, "{} element {e}: {x} -> {y}, scale {d}", ty.name());
            }
        }
    }
}

#[test]
fn scales_of_a_byte_are_those_of_their_formats() {
    // 2^(E - 128): halved, as the codes are doubled
    for e in 0..255u8 {
        let want = 2f64.powi(i32::from(e) - 128);
        assert_eq!(f64::from(mxfp4::BlockMXFP4 { e, qs: [0; 16] }.scale()), want, "{e}");
    }
    // four bits of exponent, three of mantissa, halved; two bytes that are 0
    for byte in 0..=255u8 {
        let (x, m) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
        let value = if x == 0 { m / 8.0 * 2f64.powi(-6) } else { (1.0 + m / 8.0) * 2f64.powi(x - 7) };
        let want = if byte == 0x7f { 0.0 } else { value / 2.0 };
        assert_eq!(f64::from(nvfp4::scale(byte)), want, "{byte:02x}");
    }
}

#[test]
fn a_planted_nan_or_infinite_scale_is_found_in_every_position() {
    const N: usize = 9;
    let bad16 = [0x7c00u16, 0xfc00, 0x7e00, 0x7c01, 0xffff];
    let bad32 = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(u32::MAX)];
    // every byte is a finite scale of NVFP4
    assert_eq!(BlockType::NVFP4.find_bad_scale(&[0xff; 72]), None);
    for ty in BlockType::ALL.into_iter().filter(|t| *t != BlockType::NVFP4) {
        let n = N * ty.elems();
        let x: Vec<f32> = (0..n).map(|i| (i % 37) as f32 * 0.25 - 3.0).collect();
        let clean = encoded(ty, &x, n);
        assert_eq!(ty.find_bad_scale(&clean), None, "{}", ty.name());
        assert_eq!(ty.find_bad_scale(&[]), None);
        let offsets: &[usize] = match ty {
            BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[0, 2],
            BlockType::Q6_K => &[208],
            BlockType::Q2_K => &[80, 82],
            BlockType::Q3_K => &[108],
            BlockType::TQ1_0 => &[52],
            BlockType::TQ2_0 => &[64],
            BlockType::IQ1_M => &[48],
            BlockType::W8A8 => &[0, 8],
            _ => &[0],
        };
        let wide = ty.format().numbers[0].kind == NumberKind::F32;
        let patterns: Vec<Vec<u8>> = match ty {
            _ if wide => bad32.iter().map(|v| v.to_le_bytes().to_vec()).collect(),
            BlockType::MXFP4 => vec![vec![255]],
            // a nibble of the f16 at the top of each half
            BlockType::IQ1_M => {
                bad16.iter().map(|v| (0..4).flat_map(|i| [0, (v >> (4 * i) << 4) as u8]).collect()).collect()
            }
            BlockType::BF16 => {
                bad32.iter().map(|v| (v.to_bits() >> 16) as u16).map(|v| v.to_le_bytes().to_vec()).collect()
            }
            _ => bad16.iter().map(|v| v.to_le_bytes().to_vec()).collect(),
        };
        for block in 0..N {
            for &offset in offsets {
                for pattern in &patterns {
                    let at = block * ty.bytes() + offset;
                    let mut bytes = clean.clone();
                    bytes[at..at + pattern.len()].copy_from_slice(pattern);
                    // A second one later must not hide the first.
                    let last = (N - 1) * ty.bytes() + offset;
                    bytes[last..last + pattern.len()].copy_from_slice(pattern);
                    assert_eq!(ty.find_bad_scale(&bytes), Some(block), "{} {pattern:x?} at {offset}", ty.name());
                }
            }
        }
        // The largest finite values are no fault, and codes of all ones are not scales.
        let mut bytes = clean.clone();
        let (max, width) = match ty {
            _ if wide => (f32::MAX.to_le_bytes().to_vec(), 4),
            BlockType::BF16 => (vec![0x7f, 0x7f], 2),
            // with codes of all ones, -12
            BlockType::MXFP4 => (vec![252], 1),
            BlockType::IQ1_M => (vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xbf, 0xff, 0x7f], 8),
            _ => (vec![0xff, 0x7b], 2),
        };
        bytes.fill(0xff);
        for block in 0..N {
            for &offset in offsets {
                let at = block * ty.bytes() + offset;
                bytes[at..at + width].copy_from_slice(&max[..width]);
            }
        }
        assert_eq!(ty.find_bad_scale(&bytes), None, "{}", ty.name());
    }
}

#[test]
fn no_bytes_and_no_values_make_a_codec_panic() {
    let mut random = Random(7);
    for ty in BlockType::ALL {
        // codebooks take long to search
        let codebook = ["IQ1", "IQ2", "IQ3"].iter().any(|name| ty.name().starts_with(name));
        for _ in 0..if codebook { 20 } else { 300 } {
            let bytes: Vec<u8> = (0..2 * ty.bytes()).map(|_| random.next() as u8).collect();
            decoded(ty, &bytes);
            let odd = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, -1e-39, 1e-30];
            let x: Vec<f32> = (0..2 * ty.elems())
                .map(|_| match random.below(3) {
                    0 => odd[random.below(odd.len())],
                    1 => f32::from_bits(random.next() as u32),
                    _ => random.normal(),
                })
                .collect();
            encoded(ty, &x, x.len());
            for v in odd {
                encoded(ty, &vec![v; ty.elems()], ty.elems());
            }
        }
    }
}

#[test]
fn rows_are_whole_numbers_of_blocks() {
    for ty in BlockType::ALL {
        assert_eq!(ty.row_bytes(0), Some(0));
        assert_eq!(ty.row_bytes(3 * ty.elems()), Some(3 * ty.bytes()));
        if ty.elems() > 1 {
            assert_eq!(ty.row_bytes(ty.elems() - 1), None);
            assert_eq!(ty.row_bytes(ty.elems() + 1), None);
        }
    }
    assert_eq!(BlockType::F32.row_bytes(usize::MAX), None, "a size that overflows is no size");
    assert_eq!(BlockType::Q8_0.row_bytes(usize::MAX - 31), None);
}

#[test]
fn rows_may_start_at_any_address() {
    for ty in BLOCKED {
        let x: Vec<f32> = (0..ty.elems()).map(|i| i as f32 - 20.0).collect();
        let bytes = encoded(ty, &x, x.len());
        let want = decoded(ty, &bytes);
        for shift in 1..4 {
            let mut moved = vec![0; shift];
            moved.extend(&bytes);
            check(ty.name(), same_bits(&decoded(ty, &moved[shift..]), &want));
        }
    }
}

#[test]
fn wrong_lengths_are_refused_with_both_lengths() {
    let message = |f: Box<dyn FnOnce() + std::panic::UnwindSafe>| {
        let payload = std::panic::catch_unwind(f).expect_err("accepted");
        payload.downcast_ref::<String>().expect("a formatted message").clone()
    };
    let m = message(Box::new(|| BlockType::Q4_K.decode_row(&[0; 143], &mut [0.0; 256])));
    assert!(m.contains("143") && m.contains("144") && m.contains("256"), "{m}");
    let m = message(Box::new(|| BlockType::Q8_0.encode_row(&[0.0; 33], &mut [0; 34])));
    assert!(m.contains("33") && m.contains("34"), "{m}");
    let m = message(Box::new(|| BlockType::F32.encode_row(&[0.0; 2], &mut [0; 9])));
    assert!(m.contains("2") && m.contains("9"), "{m}");
    let m = message(Box::new(|| {
        BlockType::Q6_K.find_bad_scale(&[0; 211]);
    }));
    assert!(m.contains("211"), "{m}");
}

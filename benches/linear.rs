//! Speed of the linear kernels: `cargo bench --bench linear [rows k]`.
//!
//! One table: packed weights read per second with one token (decode), integer operations per second with 64 (prefill),
//! per format and level, on rayon's global pool (`RAYON_NUM_THREADS`). CPU time only; best of several runs after a
//! warm-up. Every result is first compared with that of the portable level, bit for bit.

use isobit::blocks::BlockType;
use isobit::blocks::pack::{pack_rows, packed_type, packed_words};
use isobit::ops::act_quantize::ActQuantizeParams;
use isobit::ops::linear::{LinearParams, act_words};
use isobit::simd::{Act, Level, act_quantize, matvec};
use std::time::Instant;

fn main() {
    let args: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (rows, k) = match args[..] {
        [rows, k] => (rows, k),
        _ => (2048, 5632),
    };
    println!("{rows} x {k}, {} threads", rayon::current_num_threads());
    println!("{:8} {:9} {:>6} {:>12} {:>14}", "format", "level", "digits", "n=1 GB/s", "n=64 GOP/s");
    let x: Vec<f32> = (0..64 * k).map(|i| ((i * 7919) % 10007) as f32 / 5003.0 - 1.0).collect();
    for t in BlockType::ALL {
        if t == BlockType::Q8_K || !k.is_multiple_of(t.elems()) {
            continue;
        }
        let bytes = file_rows(t, rows, k);
        // not zero: fresh pages would be timed as well
        let mut w = vec![1; packed_words(t, rows, k)];
        let start = Instant::now();
        pack_rows(t, k, rows, &bytes, &mut w).expect("the scales are finite");
        let packing = bytes.len() as f64 / start.elapsed().as_secs_f64() * 1e-9;
        for digits in [1, 2] {
            let float = t.elems() == 1;
            if float && digits == 2 {
                continue;
            }
            let mut act = vec![0; 64 * act_words(k, digits)];
            let q = ActQuantizeParams { n_tokens: 64, k: k as u32, digits: digits as u32 };
            act_quantize(Level::detect(), &q, &x, &mut act);
            let act = if float { Act::Floats(&x) } else { Act::Blocks(&act) };
            let mut want = Vec::new();
            for level in Level::available() {
                let run = |n_tokens: u32| {
                    let p = LinearParams {
                        n_tokens,
                        k: k as u32,
                        rows: rows as u32,
                        digits: digits as u32,
                        y_stride: rows as u32,
                        y_offset: 0,
                        residual: 0,
                    };
                    let mut y = vec![0f32; n_tokens as usize * rows];
                    let mut best = f64::MAX;
                    let from = Instant::now();
                    let mut runs = 0;
                    while runs < 3 || from.elapsed().as_secs_f64() < 0.15 {
                        let start = Instant::now();
                        matvec(level, packed_type(t), &p, &w, act, &mut y);
                        best = best.min(start.elapsed().as_secs_f64());
                        runs += 1;
                    }
                    (best, y)
                };
                let (decode, _) = run(1);
                let (prefill, y) = run(64);
                if want.is_empty() {
                    want = y;
                } else {
                    assert!(y.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()), "levels differ");
                }
                println!(
                    "{:8} {:9} {digits:6} {:12.1} {:14.1}",
                    t.name(),
                    level.name(),
                    w.len() as f64 * 4e-9 / decode,
                    2e-9 * 64.0 * (rows * k) as f64 / prefill,
                );
            }
        }
        println!("{:8} packing, one thread: {packing:.1} GB/s", t.name());
    }
}

/// Pseudo-random file bytes with finite scales.
fn file_rows(t: BlockType, rows: usize, k: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes: Vec<u8> = (0..rows * k / t.elems() * t.bytes())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect();
    let scales: &[usize] = match t {
        BlockType::F32 | BlockType::Q8_K | BlockType::Q8K128 => &[3],
        BlockType::F16 | BlockType::BF16 | BlockType::Q8_0 | BlockType::Q4_0 => &[1],
        BlockType::Q4_K | BlockType::Q5_K => &[1, 3],
        BlockType::Q6_K => &[209],
    };
    for block in bytes.chunks_exact_mut(t.bytes()) {
        for &s in scales {
            block[s] = 0x28 | (block[s] & 0x83);
        }
    }
    bytes
}

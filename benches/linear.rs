//! Speed of the linear kernels: `cargo bench --bench linear [rows k [threads]] [TYPE ...]`, of all types unless some are named.
//!
//! One table: packed weights read per second with one token (decode) and their share of plain reading, integer operations per second with 64 (prefill)
//! and their share of the level's int8 peak, measured in the same process; per format and level, on a team of `threads`
//! (2 unless given). Wall time; best of several runs after a warm-up. Results of all levels are compared bit for bit.

use isobit::internals::blocks::pack::{pack_rows, packed_type, packed_words};
use isobit::internals::blocks::{BlockType, NumberKind};
use isobit::internals::limits;
use isobit::internals::ops::act_quantize::ActQuantizeParams;
use isobit::internals::ops::linear::{LinearParams, act_words};
use isobit::internals::simd::team::Team;
use isobit::internals::simd::{Act, Level, Words, act_quantize, matvec};
use std::time::Instant;

fn main() {
    let args: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (rows, k, threads) = match args[..] {
        [rows, k] => (rows, k, 2),
        [rows, k, threads] => (rows, k, threads),
        _ => (2048, 5632, 2),
    };
    let team = Team::new(threads).expect("the threads start");
    let named: Vec<BlockType> = std::env::args().skip(1).filter_map(|a| BlockType::parse(&a)).collect();
    let reading = 1e-9
        * limits::read_bandwidth(threads, &isobit::internals::stop::Stop::default()).expect("nobody asks it to stop");
    println!("{rows} x {k}, {} threads, plain read {reading:.1} GB/s", team.threads());
    let peaks: Vec<(Level, f64)> =
        Level::available().into_iter().map(|l| (l, limits::int8_rate(l, threads) * 1e-9)).collect();
    for (level, peak) in &peaks {
        println!("int8 peak {:9} {peak:.0} GOP/s", level.name());
    }
    println!(
        "{:8} {:9} {:>6} {:>12} {:>8} {:>14} {:>8}",
        "format", "level", "digits", "n=1 GB/s", "of read", "n=64 GOP/s", "of peak"
    );
    let x: Vec<f32> = (0..64 * k).map(|i| ((i * 7919) % 10007) as f32 / 5003.0 - 1.0).collect();
    for t in BlockType::ALL {
        if packed_type(t) != t || !k.is_multiple_of(t.elems()) || !named.is_empty() && !named.contains(&t) {
            continue;
        }
        let bytes = file_rows(t, rows, k);
        // not zero: fresh pages would be timed as well
        let mut w = Words::zeroed(packed_words(t, rows, k));
        w.fill(1);
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
            for &(level, peak) in &peaks {
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
                        team.install(|| matvec(level, packed_type(t), &p, &w, act, &mut y));
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
                let rate = 2e-9 * 64.0 * (rows * k) as f64 / prefill;
                // the peak is of int8 operations with one digit
                let share = if float || digits == 2 { String::new() } else { format!("{:.0} %", 100.0 * rate / peak) };
                let read = w.len() as f64 * 4e-9 / decode;
                println!(
                    "{:8} {:9} {digits:6} {read:12.1} {:6.0} % {rate:14.1} {share:>8}",
                    t.name(),
                    level.name(),
                    100.0 * read / reading,
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
    for block in bytes.chunks_exact_mut(t.bytes()) {
        for n in t.format().numbers {
            let high = match n.kind {
                NumberKind::E8M0 => {
                    block[n.at] = 0x70;
                    continue;
                }
                NumberKind::F32 => n.at + 3,
                // the highest nibble of an f16 whose nibbles lie apart
                NumberKind::TopNibbles => n.at + 7,
                NumberKind::F16 | NumberKind::BF16 => n.at + 1,
            };
            block[high] = 0x28 | (block[high] & 0x83);
        }
    }
    bytes
}

//! One linear operation, some times over, for whoever counts instructions: a tool like `perf stat`, or an emulator.
//!
//!     cargo build --release --no-default-features --target aarch64-unknown-linux-gnu --example one_linear
//!     scripts/instructions "qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu" PROGRAM
//!
//! Arguments: level, type, tokens, rows, k, times. Prints the multiply-accumulates of one time. Runs on one thread;
//! what is before the first time takes as long whatever the last argument says, so the difference between two counts is
//! the operation's.

use anyhow::{Context, ensure};
use isobit::internals::blocks::{BlockType, NumberKind, pack};
use isobit::internals::ops::act_quantize::ActQuantizeParams;
use isobit::internals::ops::linear::{LinearParams, act_words};
use isobit::internals::random;
use isobit::internals::simd::team::Team;
use isobit::internals::simd::{self, Act, Level};

/// Packed rows of pseudo-random codes, with scales of about 2^-12.
fn weights(t: BlockType, rows: usize, k: usize) -> anyhow::Result<Vec<u32>> {
    let n = rows * t.row_bytes(k).context("k is no whole number of blocks")?;
    let mut bytes: Vec<u8> = (0..n as u64).map(|i| random::at(7, i) as u8).collect();
    for block in bytes.chunks_exact_mut(t.bytes()) {
        for number in t.format().numbers {
            let (at, bits) = match number.kind {
                NumberKind::E8M0 => (number.at, 0x70),
                NumberKind::F32 => (number.at + 3, 0x38),
                NumberKind::TopNibbles => (number.at + 7, 0x30),
                NumberKind::F16 => (number.at + 1, 0x0c),
                NumberKind::BF16 => (number.at + 1, 0x38),
            };
            block[at] = bits | block[at] & 0x80;
        }
    }
    let mut w = vec![0; pack::packed_words(pack::packed_type(t), rows, k)];
    pack::pack_rows(t, k, rows, &bytes, &mut w).context("the rows do not pack")?;
    Ok(w)
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [level, t, n_tokens, rows, k, times] = &args[..] else {
        anyhow::bail!("expected: level, type, tokens, rows, k, times");
    };
    let level = Level::parse(level).filter(|l| l.is_available()).context("this CPU does not have that level")?;
    let t = BlockType::parse(t).filter(|t| !t.is_float()).context("no type with quantised activations")?;
    let (n_tokens, rows, k, times): (u32, u32, u32, u32) =
        (n_tokens.parse()?, rows.parse()?, k.parse()?, times.parse()?);
    ensure!(!t.meets_rows(), "{} takes activations with one scale a row", t.name());
    let w = weights(t, rows as usize, k as usize)?;
    let x: Vec<f32> = (0..u64::from(n_tokens * k)).map(|i| random::at(8, i) as u16 as f32 / 32768.0 - 1.0).collect();
    let mut act = vec![0; n_tokens as usize * act_words(k as usize, 1)];
    let mut y = vec![0.0; (n_tokens * rows) as usize];
    let p = LinearParams { n_tokens, k, rows, digits: 1, y_stride: rows, y_offset: 0, residual: 0 };
    Team::new(1)?.install(|| {
        simd::act_quantize(level, &ActQuantizeParams { n_tokens, k, digits: 1 }, &x, &mut act);
        // what a thread keeps for the operation is made in the first
        for _ in 0..1 + times {
            simd::matvec(level, pack::packed_type(t), &p, &w, Act::Blocks(&act), &mut y);
        }
    });
    ensure!(y.iter().all(|y| y.is_finite()) && y.iter().any(|&y| y != 0.0), "the results are no numbers");
    println!("{}", u64::from(n_tokens) * u64::from(rows) * u64::from(k));
    Ok(())
}

//! Loops that show what a level can do at most: int8 dots from registers and the first-level cache, and reading memory.
//!
//! `limits` times them. They compute nothing anyone needs; what they return only keeps a compiler from leaving them out.

use super::Level;
use super::lanes::{Lanes, Word};
use super::portable::Narrow;
use crate::ops::linear::ROW_BLOCK;
use std::hint::black_box;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use super::wasm::Simd128;
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2::Avx2, avx512::Avx512, avxvnni::AvxVnni};
#[cfg(target_arch = "aarch64")]
use super::{i8mm::I8mm, neon::Neon};

/// Independent sums: enough to hide the latency of a dot.
const SUMS: usize = 12;

/// Weights at the start of a cache line: a wide load across two lines counts twice.
#[repr(align(64))]
struct Weights([Word; SUMS]);

/// Integer operations (a multiplication and an addition each count) of one round of [`dots`] at this level.
pub fn ops_per_round(level: Level) -> usize {
    let lanes = match level {
        Level::Portable => Narrow::N,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => <Avx2>::N,
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni => <AvxVnni>::N,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => <Avx512>::N,
        #[cfg(target_arch = "x86_64")]
        Level::Amx => return 4 * 2 * 16 * 16 * 64,
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::NeonDot => Neon::<true>::N,
        #[cfg(target_arch = "aarch64")]
        Level::NeonI8mm => 2 * Neon::<true>::N,
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Simd128 => Simd128::N,
        // those of other architectures
        _ => 0,
    };
    2 * 4 * lanes * SUMS
}

/// One dot of four bytes a lane into each of the sums, `rounds` times. Weights come from the first-level cache, or the
/// multiplication would be taken out of the loop where it is an instruction apart from the sum.
#[inline(always)]
fn dots_body<V: Lanes>(v: V, rounds: usize) -> i32 {
    let mut words = Weights([[0; ROW_BLOCK]; SUMS]);
    for (i, w) in words.0.as_flattened_mut().iter_mut().enumerate() {
        *w = (i as u32).wrapping_mul(0x9e37_79b9) & 0x7f7f_7f7f;
    }
    let a = black_box(0x0102_0304);
    let mut acc = [v.int(0); SUMS];
    for _ in 0..rounds {
        let words = black_box(&words);
        for s in 0..SUMS {
            acc[s] = v.dot_unsigned(acc[s], v.load(&words.0[s], 0), a);
        }
    }
    let mut all = v.int(0);
    for s in 0..SUMS {
        all = v.add(all, acc[s]);
    }
    let mut out = [0f32; ROW_BLOCK];
    v.store(v.to_f(all), &mut out, 0);
    out[0] as i32
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn dots_avx2(rounds: usize) -> i32 {
    // SAFETY: this function's own target features.
    dots_body(unsafe { Avx2::new() }, rounds)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avxvnni")]
fn dots_avxvnni(rounds: usize) -> i32 {
    // SAFETY: this function's own target features.
    dots_body(unsafe { AvxVnni::new() }, rounds)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dots_avx512(rounds: usize) -> i32 {
    // SAFETY: this function's own target features.
    dots_body(unsafe { Avx512::new() }, rounds)
}

/// The same dots on tiles: four tiles of sums, of which the first has them, rows of words for the rows of weights.
///
/// # Safety
///
/// This CPU has tiles.
#[cfg(target_arch = "x86_64")]
unsafe fn dots_amx(rounds: usize) -> i32 {
    let mut words = [[0u32; 16]; 16];
    for (i, w) in words[..SUMS].iter_mut().enumerate() {
        for (j, w) in w.iter_mut().enumerate() {
            *w = ((i * ROW_BLOCK + j) as u32).wrapping_mul(0x9e37_79b9) & 0x7f7f_7f7f;
        }
    }
    let tokens = [[black_box(0x0102_0304u32); 16]; 16];
    let mut sums = amx::Sums::ZERO;
    // SAFETY: the caller's promise.
    let tiles = unsafe { amx::Tiles::new(&amx::Shapes::dots(64)) };
    tiles.zero::<0>();
    tiles.zero::<1>();
    tiles.zero::<2>();
    tiles.zero::<3>();
    // SAFETY: 16 rows of 64 bytes each.
    unsafe {
        tiles.load::<4>(tokens.as_ptr().cast(), 64);
        tiles.load::<5>(tokens.as_ptr().cast(), 64);
        tiles.load::<6>(words.as_ptr().cast(), 64);
        tiles.load::<7>(words.as_ptr().cast(), 64);
    }
    for _ in 0..rounds {
        tiles.dot::<0, 4, 6, true>();
        tiles.dot::<1, 4, 7, true>();
        tiles.dot::<2, 5, 6, true>();
        tiles.dot::<3, 5, 7, true>();
    }
    tiles.store::<0>(&mut sums);
    sums.0[0][0] as f32 as i32
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn dots_neon(rounds: usize) -> i32 {
    // SAFETY: this function's own target features.
    dots_body(unsafe { Neon::<false>::new() }, rounds)
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn dots_neon_dot(rounds: usize) -> i32 {
    // SAFETY: this function's own target features.
    dots_body(unsafe { Neon::<true>::new() }, rounds)
}

/// The same dots by products of pairs: of the first row and token, whose second words are zeros; the other sums are of
/// no account.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod,i8mm")]
fn products_i8mm(rounds: usize) -> i32 {
    // SAFETY: this function's own target features.
    let v = unsafe { I8mm::new() };
    let mut rows = [[0u32; 4]; SUMS];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = ((i * ROW_BLOCK) as u32).wrapping_mul(0x9e37_79b9) & 0x7f7f_7f7f;
    }
    let tokens = v.ints(&[black_box(0x0102_0304); 4]);
    let mut acc = [v.0.int(0); SUMS];
    for _ in 0..rounds {
        let rows = black_box(&rows);
        for s in 0..SUMS {
            acc[s] = v.multiply(acc[s], v.ints(&rows[s]), tokens);
        }
    }
    let mut all = v.0.int(0);
    for s in 0..SUMS {
        all = v.0.add(all, acc[s]);
    }
    let mut out = [0; 4];
    v.keep(all, &mut out);
    out[0] as f32 as i32
}

/// Int8 dots with the level's own instruction, [`ops_per_round`] operations a round. Panics when this CPU does not have
/// `level`.
pub fn dots(level: Level, rounds: usize) -> i32 {
    assert!(level.is_available(), "dots: this CPU does not have {}", level.name());
    match level {
        Level::Portable => dots_body(Narrow, rounds),
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { dots_avx2(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni => unsafe { dots_avxvnni(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { dots_avx512(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Amx => unsafe { dots_amx(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { dots_neon(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => unsafe { dots_neon_dot(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::NeonI8mm => unsafe { products_i8mm(rounds) },
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Simd128 => dots_body(Simd128, rounds),
        _ => unreachable!("only available levels come here"),
    }
}

#[inline(always)]
fn read_body(words: &[u64]) -> u64 {
    let (chunks, rest) = words.as_chunks::<32>();
    let mut acc = [0u64; 32];
    for chunk in chunks {
        for i in 0..32 {
            acc[i] = acc[i].wrapping_add(chunk[i]);
        }
    }
    acc.iter().chain(rest).fold(0, |a, b| a.wrapping_add(*b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn read_avx2(words: &[u64]) -> u64 {
    read_body(words)
}

/// Reads every word once, with AVX2's loads where there are any; returns their wrapping sum. What level was asked for
/// makes no difference: it is the memory's limit.
pub fn read(words: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if Level::Avx2.is_available() {
        // SAFETY: the level is available.
        return unsafe { read_avx2(words) };
    }
    read_body(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_takes_the_same_dots_and_reads_every_word() {
        let want = dots(Level::Portable, 3);
        assert_ne!(want, 0);
        for level in Level::available() {
            assert_eq!(dots(level, 3), want, "{}", level.name());
        }
        let words: Vec<u64> = (0..1003).collect();
        assert_eq!(read(&words), 1003 * 1002 / 2);
    }
}

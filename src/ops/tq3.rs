//! The rotated 3.5-bit cache formats: `tq3_0`, the published one, and `tq3_1`, ours in the same 14 bytes.
//!
//! Both rotate a piece of a key or value (sign flips, Walsh-Hadamard transform, 1/sqrt(n)) and then code each 32 of the
//! rotated elements as one [`Block`]. The bytes of the two look alike and mean different things: nothing in a block
//! tells which it is, so whoever stores one must say which. Neither is the other formats of the same name that exist
//! elsewhere (eight levels with an amax scale, or scale first); `docs/tq3.md` tells them apart.
//!
//! Arithmetic as in `docs/exactness.md` section 1: plain f32, sums in index order, one invocation per block, one
//! workgroup per rotation. Must not know the cache's layout or the attention's chunks.

use crate::ops::exact::{SCALE_MIN, canon, f16_to_f32, f32_to_f16, fdiv, fsqrt, i2f};

/// Elements of a block.
pub const BLOCK: usize = 32;

/// Which elements change sign before the transform: bit j of word j / 32 is set where element j does. Word 0 is the
/// published table of TQ3_0 and all that both formats use; the others, half of each word's bits set, are for longer
/// rotations, which `examples/tq3_study.rs` measures.
pub const SIGNS: [u32; 8] =
    [0xB1A6_D4B2, 0xAA47_E31C, 0xC916_7E19, 0xAB15_5B91, 0x813F_3C93, 0x2781_AFB1, 0xFC9A_8998, 0x1956_686F];

/// Elements rotated together in a head of `head_dim` elements (a multiple of 32): 32, in both formats, whatever the head.
///
/// The published format says so for tq3_0. For tq3_1 it was measured: rotating the whole head spreads an outlier over
/// blocks it need not touch, and every error grows or stays (`docs/tq3.md`).
pub fn rotation(head_dim: usize) -> usize {
    assert!(head_dim > 0 && head_dim.is_multiple_of(BLOCK), "a head of {head_dim}, expected a multiple of {BLOCK}");
    BLOCK
}

/// f32(1 / sqrt(n)) of a rotation of n = 32, 64, 128 or 256.
#[allow(clippy::excessive_precision, reason = "the constants as the format's definition writes them")]
#[inline]
pub fn norm(n: usize) -> f32 {
    match n {
        32 => 0.17677669529663688,
        64 => 0.125,
        128 => 0.08838834764831845,
        256 => 0.0625,
        _ => panic!("a rotation of {n}, expected 32, 64, 128 or 256"),
    }
}

/// `x` with its sign flipped where [`SIGNS`] says so for element `j`.
#[inline]
fn flip(x: f32, j: usize) -> f32 {
    if SIGNS[j / 32] >> (j % 32) & 1 == 1 { -x } else { x }
}

/// Walsh-Hadamard transform in natural order, not normalised.
fn butterflies(x: &mut [f32]) {
    let mut step = 1;
    while step < x.len() {
        for i in (0..x.len()).step_by(2 * step) {
            for j in i..i + step {
                let (a, b) = (x[j], x[j + step]);
                x[j] = a + b;
                x[j + step] = a - b;
            }
        }
        step *= 2;
    }
}

/// Rotates in place: signs, butterflies with steps 1, 2, 4, ..., times f32(1/sqrt(n)). `x` has n = 32, 64, 128 or 256
/// elements. Keeps lengths and inner products.
pub fn rotate(x: &mut [f32]) {
    let c = norm(x.len());
    for (j, v) in x.iter_mut().enumerate() {
        *v = flip(*v, j);
    }
    butterflies(x);
    for v in x.iter_mut() {
        *v *= c;
    }
}

/// The inverse of [`rotate`]: butterflies, then times f32(1/sqrt(n)) and the sign.
pub fn unrotate(x: &mut [f32]) {
    let c = norm(x.len());
    butterflies(x);
    for (j, v) in x.iter_mut().enumerate() {
        *v *= flip(c, j);
    }
}

/// 32 coded elements: 14 bytes, `qs` in 8, `qr` in 4, `gamma` in 2, all little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// two bits per element, element j at bit 2 (j % 16) of word j / 16
    pub qs: [u32; 2],
    /// one bit per element, element j at bit j: tq3_0's sign of the residual, bit 2 of tq3_1's code
    pub qr: u32,
    /// the scale, an f16 bit pattern; never negative in tq3_0, of either sign in tq3_1
    pub gamma: u16,
}

impl Block {
    /// Bytes of a block.
    pub const BYTES: usize = 14;

    /// The bytes as published for TQ3_0.
    pub fn to_bytes(self) -> [u8; Block::BYTES] {
        let mut b = [0; Block::BYTES];
        b[0..4].copy_from_slice(&self.qs[0].to_le_bytes());
        b[4..8].copy_from_slice(&self.qs[1].to_le_bytes());
        b[8..12].copy_from_slice(&self.qr.to_le_bytes());
        b[12..14].copy_from_slice(&self.gamma.to_le_bytes());
        b
    }

    /// The inverse of [`Block::to_bytes`].
    pub fn from_bytes(b: &[u8; Block::BYTES]) -> Block {
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Block { qs: [word(0), word(4)], qr: word(8), gamma: u16::from_le_bytes([b[12], b[13]]) }
    }

    /// The two bits of element `j`.
    #[inline]
    pub fn low2(&self, j: usize) -> u32 {
        self.qs[j / 16] >> (2 * (j % 16)) & 3
    }

    /// The bit of element `j` in `qr`.
    #[inline]
    pub fn bit(&self, j: usize) -> u32 {
        self.qr >> j & 1
    }

    /// tq3_1's code of element `j`, for [`tq3_1_level`].
    #[inline]
    pub fn code3(&self, j: usize) -> u32 {
        self.low2(j) | self.bit(j) << 2
    }
}

/// tq3_0's inner level, in units of gamma.
pub const TQ3_0_INNER: f32 = 0.4528;
/// tq3_0's outer level, in units of gamma.
pub const TQ3_0_OUTER: f32 = 1.510;
/// Where tq3_0 goes over from the inner to the outer level.
pub const TQ3_0_EDGE: f32 = 0.9814;

/// tq3_0's level of a two-bit code, in units of gamma.
#[inline]
pub fn tq3_0_level(code2: u32) -> f32 {
    match code2 & 3 {
        0 => -TQ3_0_OUTER,
        1 => -TQ3_0_INNER,
        2 => TQ3_0_INNER,
        _ => TQ3_0_OUTER,
    }
}

/// The block tq3_0 writes for zeros.
pub const TQ3_0_ZERO: Block = Block { qs: [0xAAAA_AAAA; 2], qr: 0xFFFF_FFFF, gamma: 0 };

/// Codes 32 elements already rotated (by a rotation of 32), as published: d = amax / 1.510, code of r / d against
/// 0 and +-0.9814, sign of the residual, gamma = f16(d).
///
/// Deviations: gamma is clamped to 65504 instead of becoming infinite, and a scale below 2^-120 gives the block of
/// zeros (gamma is 0 in both cases there).
pub fn tq3_0_encode(r: &[f32; BLOCK]) -> Block {
    let mut amax = 0f32;
    for &v in r {
        if v.abs() > amax {
            amax = v.abs();
        }
    }
    let d = fdiv(amax, TQ3_0_OUTER);
    if d == 0.0 {
        return TQ3_0_ZERO;
    }
    let id = fdiv(1.0, d);
    let mut b = Block { gamma: f32_to_f16(d), ..Block::default() };
    for (j, &v) in r.iter().enumerate() {
        // canon: v far below d may give a subnormal product, which devices treat differently
        let x = canon(v * id);
        let code = if x < 0.0 {
            if x < -TQ3_0_EDGE { 0 } else { 1 }
        } else if x < TQ3_0_EDGE {
            2
        } else {
            3
        };
        b.qs[j / 16] |= code << (2 * (j % 16));
        // residual >= 0 without the subtraction, whose result may be subnormal
        let residual = v >= d * tq3_0_level(code);
        b.qr |= u32::from(residual) << j;
    }
    b
}

/// The rotated elements of a tq3_0 block: gamma times level. The residual bit is not read. An infinite gamma, which
/// only other encoders write, gives infinities.
pub fn tq3_0_decode(block: &Block) -> [f32; BLOCK] {
    let gamma = f16_to_f32(block.gamma);
    std::array::from_fn(|j| gamma * tq3_0_level(block.low2(j)))
}

/// For elements 4i..4i + 4 of a tq3_0 block, as signed bytes (element 4i lowest): (the signs, 1 or -1; those of the
/// elements on the outer level, 0 elsewhere).
///
/// With them, dot(signs, q) = A + B and dot(outer, q) = B by `dot4I8Packed`.
#[inline]
pub fn tq3_0_packed(block: &Block, i: usize) -> (u32, u32) {
    let codes = spread2(block.qs[i / 4] >> (8 * (i % 4)) & 0xff);
    let (low, high) = (codes & 0x0101_0101, codes >> 1 & 0x0101_0101);
    // 1 where the bits are equal: codes 0 and 3
    let outer = low ^ high ^ 0x0101_0101;
    let negative = high ^ 0x0101_0101;
    let signs = 0x0101_0101 + negative * 0xfe;
    (signs, signs & (outer * 0xff))
}

/// Dot product of a tq3_0 block and a query rotated alike, given as integers (|s| <= 32512): with A the signed sum over
/// the elements on the inner level and B that over the outer,
/// gamma * (0.4528 A + 1.510 B), each operation rounded once. The caller multiplies by the query's scale.
///
/// The published kernel left the query's transform unnormalised and divided by 32 where sqrt(32) is right; here the
/// query comes normalised and no factor is left over.
pub fn tq3_0_dot_rotated(block: &Block, s: &[i32; BLOCK]) -> f32 {
    let (mut inner, mut outer) = (0i32, 0i32);
    for (j, &q) in s.iter().enumerate() {
        match block.low2(j) {
            0 => outer -= q,
            1 => inner -= q,
            2 => inner += q,
            _ => outer += q,
        }
    }
    f16_to_f32(block.gamma) * (TQ3_0_INNER * i2f(inner) + TQ3_0_OUTER * i2f(outer))
}

/// 2^100: larger elements than this tq3_1's encoder does not scale to 1
pub const HUGE: f32 = f32::from_bits((127 + 100) << 23);

/// Four two-bit codes in the low byte, to one per byte.
#[inline]
fn spread2(codes: u32) -> u32 {
    let pairs = (codes | codes << 12) & 0x000f_000f;
    (pairs | pairs << 6) & 0x0303_0303
}

/// tq3_1's codebook is lopsided: levels lie symmetrically about this one, not about 0. Gamma's sign mirrors it, so each
/// block takes the side that suits it.
pub const TQ3_1_SHIFT: i32 = 11;
/// Distances of tq3_1's levels from [`TQ3_1_SHIFT`], in units of gamma. All above it: no level is 0.
pub const TQ3_1_LEVELS: [i32; 4] = [13, 39, 68, 111];
/// Where the distance's index goes up: halfway between the distances.
pub const TQ3_1_EDGES: [f32; 3] = [26.0, 53.5, 89.5];
/// Scales the encoder tries, each with both signs: 1 / gamma in units of 1 / RMS.
pub const TQ3_1_TRIES: [f32; 3] = [45.0, 54.0, 64.0];

/// tq3_1's level of a three-bit code, in units of gamma: 24, 50, 79, 122, -2, -28, -57, -100. Bits 0 and 1 are the index
/// of the distance from [`TQ3_1_SHIFT`], bit 2 is set where below it.
#[inline]
pub fn tq3_1_level(code3: u32) -> i32 {
    let distance = TQ3_1_LEVELS[(code3 & 3) as usize];
    if code3 & 4 == 4 { TQ3_1_SHIFT - distance } else { TQ3_1_SHIFT + distance }
}

/// The code of the level nearest to `x`, in units of gamma.
#[inline]
fn tq3_1_code(x: f32) -> u32 {
    let w = x - TQ3_1_SHIFT as f32;
    let a = w.abs();
    let index = u32::from(a >= TQ3_1_EDGES[0]) + u32::from(a >= TQ3_1_EDGES[1]) + u32::from(a >= TQ3_1_EDGES[2]);
    index | u32::from(w < 0.0) << 2
}

/// Codes 32 elements already rotated (by a rotation of [`rotation`] elements). Gamma is the best of six scales, each
/// fitted by least squares to the levels its trial gave, in units of which the codes are then chosen.
///
/// A block of zeros, or one too small for gamma (largest element below 2^-40, or gamma rounding to 0), is 14 zero bytes.
/// Gamma is clamped to +-65504.
pub fn tq3_1_encode(r: &[f32; BLOCK]) -> Block {
    let mut amax = 0f32;
    for &v in r {
        if v.abs() > amax {
            amax = v.abs();
        }
    }
    if amax < SCALE_MIN {
        return Block::default();
    }
    // Work on r / amax, so that squares neither overflow nor become subnormal. Above 2^100 gamma is clamped anyway.
    let base = if amax < HUGE { amax } else { HUGE };
    let inv = fdiv(1.0, base);
    let mut u = [0f32; BLOCK];
    let mut energy = 0f32;
    for (u, &v) in u.iter_mut().zip(r) {
        *u = canon(v * inv);
        energy += *u * *u;
    }
    let inv_rms = fdiv(1.0, fsqrt(energy * 0.03125));
    // With the levels L that a trial scale gives, the best scale is n / d, n = sum L u, d = sum L^2, and the squared
    // error it leaves is energy - n^2 / d: the trial with the greatest n^2 / d wins, the first among equals.
    let (mut best, mut scale) = (0f32, 0f32);
    for magnitude in TQ3_1_TRIES {
        for m in [magnitude, -magnitude] {
            let k = inv_rms * m;
            let (mut n, mut d) = (0f32, 0i32);
            for u in u {
                let level = tq3_1_level(tq3_1_code(u * k));
                n += i2f(level) * u;
                d += level * level;
            }
            let s = fdiv(n, i2f(d));
            let gain = canon(n * s);
            if gain > best {
                (best, scale) = (gain, s);
            }
        }
    }
    let gamma = f32_to_f16(base * scale);
    if gamma & 0x7fff == 0 {
        return Block::default();
    }
    let id = fdiv(1.0, f16_to_f32(gamma));
    let mut b = Block { gamma, ..Block::default() };
    for (j, &v) in r.iter().enumerate() {
        let code = tq3_1_code(v * id);
        b.qs[j / 16] |= (code & 3) << (2 * (j % 16));
        b.qr |= (code >> 2) << j;
    }
    b
}

/// The rotated elements of a tq3_1 block: gamma times level, exact.
pub fn tq3_1_decode(block: &Block) -> [f32; BLOCK] {
    let gamma = f16_to_f32(block.gamma);
    std::array::from_fn(|j| gamma * i2f(tq3_1_level(block.code3(j))))
}

/// The levels of elements 4i..4i + 4 of a tq3_1 block as signed bytes, element 4i lowest: four at once, for
/// `dot4I8Packed`.
///
/// A level is distance + shift where bit 2 is clear, -(distance - shift) where set. The distance is a polynomial of the
/// index's two bits, taken on four bytes at a time: sums may wrap on the way, but every final byte is in 1..=127, so
/// each holds its own value. Negating a byte that is not 0 carries nothing into the next.
#[inline]
pub fn tq3_1_packed(block: &Block, i: usize) -> u32 {
    const L: [i32; 4] = TQ3_1_LEVELS;
    const STEP1: u32 = (L[1] - L[0]) as u32;
    const STEP2: u32 = (L[2] - L[0]) as u32;
    const STEP3: u32 = (L[3] - L[2] - L[1] + L[0]) as u32;
    const ABOVE: u32 = (L[0] + TQ3_1_SHIFT) as u32;
    let codes = spread2(block.qs[i / 4] >> (8 * (i % 4)) & 0xff);
    let (low, high) = (codes & 0x0101_0101, codes >> 1 & 0x0101_0101);
    // bits 0..4 to bit 0 of each byte
    let below = ((block.qr >> (4 * i) & 15) * 0x0020_4081) & 0x0101_0101;
    let magnitudes = (ABOVE * 0x0101_0101)
        .wrapping_sub(below.wrapping_mul(2 * TQ3_1_SHIFT as u32))
        .wrapping_add(low.wrapping_mul(STEP1))
        .wrapping_add(high.wrapping_mul(STEP2))
        .wrapping_add((low & high).wrapping_mul(STEP3));
    (magnitudes ^ (below * 0xff)) + below
}

/// Dot product of a tq3_1 block and a query rotated alike, given as two digits (the query is 128 high + low times its
/// scale): gamma * B(B(i2f(H) * 128) + i2f(L)), H and L the integer sums of level times digit. The caller multiplies by
/// the query's scale.
pub fn tq3_1_dot_rotated(block: &Block, high: &[i32; BLOCK], low: &[i32; BLOCK]) -> f32 {
    let (mut h, mut l) = (0i32, 0i32);
    for j in 0..BLOCK {
        let level = tq3_1_level(block.code3(j));
        h += level * high[j];
        l += level * low[j];
    }
    f16_to_f32(block.gamma) * (i2f(h) * 128.0 + i2f(l))
}

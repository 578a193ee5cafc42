//! Codes in the place of rows of a codebook: what the IQ1, IQ2 and IQ3 types may be packed as for a CPU, which unpacks a
//! code in fewer instructions than it looks up a row. No file has these types; a block is of 256 elements.
//!
//! ```text
//! word of a block  0       1 .. 3              3 .. 27
//!                +-------+-------------------+---------------------------------------------+
//! Wide2          | d f16 | scales, 4 bits    | codes of 3 bits: eight quarters of 32       |   IQ2_XXS, IQ2_XS, IQ2_S
//!                +-------+-------------------+---------------------------------------------+
//!                  0       1                   2 .. 34
//! Wide3, Wide3S  | d f16 | scales, 4 bits    | codes of 4 bits: eight quarters of 32       |   IQ3_XXS; IQ3_S
//!                  0       1 .. 3        3     4 .. 20
//! Wide1          | d f16 | scales     |shifts| codes of 2 bits: two groups of 128          |   IQ1_S, IQ1_M
//!
//! scale s of sixteenth (Wide3: eighth) j: bits 4j + 3 .. 4j of the words of scales, the first being the lowest
//! c[n]: the codes of elements 4n .. 4n + 4 of a quarter (Wide1: a group), one in the low bits of each byte, n < 8 (32)
//! Wide2:  word i of three = c[2i] | c[2i + 1] << 4 | bit i of every code of c[6] << 3 and of c[7] << 7
//! Wide3:  word i of four  = c[i] | c[i + 4] << 4
//! Wide1:  word i of eight = c[i] | c[i + 8] << 2 | c[i + 16] << 4 | c[i + 24] << 6
//! shift of elements 8k .. 8k + 8 (Wide1): bit k, up where it is set
//!
//! value = (d * UNIT * (2s + 1)) * code:
//! Wide2,  UNIT 1/8:  8, 25, 43 of bits 1 .. 0, negated where bit 2 is set
//! Wide3,  UNIT 1/4:  4, 12, 20, 28, 36, 44, 52, 62 of bits 2 .. 0, negated where bit 3 is set
//! Wide3S, UNIT 1:    2c - 15
//! Wide1,  UNIT 1/8:  8 (c - 1), and 1 more or less
//! ```

use super::iq1_m::BlockIQ1M;
use super::iq1_s::BlockIQ1S;
use super::iq2_s::BlockIQ2S;
use super::iq2_xs::BlockIQ2XS;
use super::iq2_xxs::BlockIQ2XXS;
use super::iq3_s::BlockIQ3S;
use super::iq3_xxs::BlockIQ3XXS;
use super::{BlockType, Format, pack};
use bytemuck::pod_read_unaligned;

/// The types that can be packed as codes.
const TYPES: [BlockType; 7] = [
    BlockType::IQ3_S,
    BlockType::IQ3_XXS,
    BlockType::IQ2_S,
    BlockType::IQ2_XS,
    BlockType::IQ2_XXS,
    BlockType::IQ1_S,
    BlockType::IQ1_M,
];

/// Some of the types with codebooks: those that are packed as codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wide(u8);

impl Wide {
    /// None of them.
    pub const NONE: Wide = Wide(0);
    /// All of them.
    pub const ALL: Wide = Wide((1 << TYPES.len()) - 1);

    /// This one; of other types none.
    pub fn only(t: BlockType) -> Wide {
        Wide(TYPES.iter().position(|w| *w == t).map_or(0, |i| 1 << i))
    }

    /// Those of either.
    pub fn or(self, other: Wide) -> Wide {
        Wide(self.0 | other.0)
    }

    /// Those of both.
    pub fn and(self, other: Wide) -> Wide {
        Wide(self.0 & other.0)
    }

    /// Each of them.
    pub fn types(self) -> impl Iterator<Item = BlockType> {
        TYPES.into_iter().filter(move |&t| self.and(Wide::only(t)) != Wide::NONE)
    }

    /// What a matrix of `t` is packed as.
    pub fn packed(self, t: BlockType) -> BlockType {
        if self.and(Wide::only(t)) == Wide::NONE { pack::packed_type(t) } else { pack::wide_type(t) }
    }
}

/// How a plan's matrices are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packing {
    /// those of layers
    pub layers: Wide,
    /// those of the experts of the first layers that have some
    pub experts: Wide,
    /// how many such layers; what comes behind is packed as other matrices
    pub of_experts: usize,
}

impl Packing {
    /// The same of all.
    pub fn of_all(wide: Wide) -> Packing {
        Packing { layers: wide, experts: wide, of_experts: usize::MAX }
    }
}

const fn row(name: &'static str, packed: BlockType, words: usize, pack: Pack) -> Format {
    Format {
        name,
        elems: 256,
        bytes: 4 * words,
        decode: |_, _| unreachable!("no file has codes in the place of rows"),
        encode: |_, _| unreachable!("no file has codes in the place of rows"),
        weighted: None,
        numbers: &[],
        packed,
        piece: 1,
        words,
        pack,
    }
}

type Pack = fn(pack::Rows, &mut [u32]) -> Result<(), pack::PackError>;

/// The rows of the table.
pub(super) const WIDE_1: Format =
    row("IQ1 wide", BlockType::Wide1, 20, |rows, out| pack::blocks(rows, out, |b, w| ones(&Parts::of(rows.t, b), w)));
pub(super) const WIDE_2: Format =
    row("IQ2 wide", BlockType::Wide2, 27, |rows, out| pack::blocks(rows, out, |b, w| twos(&Parts::of(rows.t, b), w)));
pub(super) const WIDE_3: Format = row("IQ3_XXS wide", BlockType::Wide3, 34, |rows, out| {
    pack::blocks(rows, out, |b, w| threes(&Parts::of(rows.t, b), |v| (v.unsigned_abs() >> 3) | sign(v) << 3, w))
});
pub(super) const WIDE_3S: Format = row("IQ3_S wide", BlockType::Wide3S, 34, |rows, out| {
    pack::blocks(rows, out, |b, w| threes(&Parts::of(rows.t, b), |v| (v + 15) as u8 >> 1, w))
});

/// 1 of a negative number, else 0.
fn sign(v: i8) -> u8 {
    v as u8 >> 7
}

/// What a block of a file is made of.
struct Parts {
    /// bits of an f16
    d: u32,
    /// s of the scales 2s + 1 of the sixteenths
    scales: [u8; 16],
    codes: [i8; 256],
}

impl Parts {
    /// Of a block of a type with a codebook.
    fn of(t: BlockType, block: &[u8]) -> Parts {
        /// A block's parts: `eighths` or `sixteenths` have a scale each.
        macro_rules! parts {
            ($block:ty, $b:ident => $d:expr) => {{
                let $b: $block = pod_read_unaligned(block);
                let scales = $b.scales();
                let each = 16 / scales.len();
                Parts {
                    d: u16::from_le_bytes($d).into(),
                    scales: std::array::from_fn(|j| scales[j / each] >> 1),
                    codes: $b.codes(),
                }
            }};
        }
        match t {
            BlockType::IQ3_S => parts!(BlockIQ3S, b => b.d),
            BlockType::IQ3_XXS => parts!(BlockIQ3XXS, b => b.d),
            BlockType::IQ2_S => parts!(BlockIQ2S, b => b.d),
            BlockType::IQ2_XS => parts!(BlockIQ2XS, b => b.d),
            BlockType::IQ2_XXS => parts!(BlockIQ2XXS, b => b.d),
            BlockType::IQ1_S => parts!(BlockIQ1S, b => b.d),
            BlockType::IQ1_M => parts!(BlockIQ1M, b => super::top_nibbles(b.scales.as_flattened()).to_le_bytes()),
            _ => unreachable!("{} has no codebook", t.name()),
        }
    }

    /// Bits 4j + 3 .. 4j are `scales[j * step]`, of eight.
    fn nibbles(&self, first: usize, step: usize) -> u32 {
        (0..8).fold(0, |w, j| w | u32::from(self.scales[first + j * step]) << (4 * j))
    }

    /// What `code` makes of the values, four to a word.
    fn words(&self, code: impl Fn(i8) -> u8) -> [u32; 64] {
        let codes = self.codes.map(code);
        std::array::from_fn(|n| pack::u32_at(&codes, 4 * n))
    }
}

fn ones(p: &Parts, w: &mut [u32; 20]) {
    // 12 more than 8 (c - 1) + 1 and 8 (c - 1) - 1 are 8c + 5 and 8c + 3
    let c = p.words(|v| (v + 12) as u8 >> 3);
    (w[0], w[1], w[2]) = (p.d, p.nibbles(0, 1), p.nibbles(8, 1));
    w[3] = (0..32).fold(0, |shifts, k| shifts | u32::from(p.codes[8 * k] & 7 == 1) << k);
    for i in 0..16 {
        let c = &c[i / 8 * 32 + i % 8..];
        w[4 + i] = c[0] | c[8] << 2 | c[16] << 4 | c[24] << 6;
    }
}

fn twos(p: &Parts, w: &mut [u32; 27]) {
    let c = p.words(|v| (v.unsigned_abs() >> 4) | sign(v) << 2);
    (w[0], w[1], w[2]) = (p.d, p.nibbles(0, 1), p.nibbles(8, 1));
    for (q, c) in c.as_chunks::<8>().0.iter().enumerate() {
        for i in 0..3 {
            let bit = |n: usize| c[n] >> i & 0x0101_0101;
            w[3 + 3 * q + i] = c[2 * i] | c[2 * i + 1] << 4 | bit(6) << 3 | bit(7) << 7;
        }
    }
}

fn threes(p: &Parts, code: impl Fn(i8) -> u8, w: &mut [u32; 34]) {
    let c = p.words(code);
    (w[0], w[1]) = (p.d, p.nibbles(0, 2));
    for (q, c) in c.as_chunks::<8>().0.iter().enumerate() {
        for i in 0..4 {
            w[2 + 4 * q + i] = c[i] | c[i + 4] << 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::f16_to_f32;
    use crate::blocks::grids::{EIGHTHS, QUARTERS};
    use crate::random;

    /// Element `e` of a packed block, by the drawing at the top.
    fn element(packed: BlockType, w: &[u32], e: usize) -> f32 {
        let d = f16_to_f32(w[0] as u16);
        let scale = |j: usize| (2 * (w[1 + j / 8] >> (4 * (j % 8)) & 15) + 1) as f32;
        let byte = |i: usize| w[i].to_le_bytes()[e % 4];
        let (n, quarter) = (e % 32 / 4, e / 32);
        let negated = |v: i8, minus: bool| f32::from(if minus { -v } else { v });
        match packed {
            BlockType::Wide1 => {
                let c = byte(4 + e / 128 * 8 + n) >> (2 * (e % 128 / 32)) & 3;
                let shift = if w[3] >> (e / 8) & 1 == 1 { 1 } else { -1 };
                0.125 * d * scale(e / 16) * (8 * (i32::from(c) - 1) + shift) as f32
            }
            BlockType::Wide2 => {
                let word = |i: usize| byte(3 + 3 * quarter + i);
                let c = match n {
                    6 => (0..3).fold(0, |c, i| c | (word(i) >> 3 & 1) << i),
                    7 => (0..3).fold(0, |c, i| c | (word(i) >> 7) << i),
                    n => word(n / 2) >> (n % 2 * 4) & 7,
                };
                0.125 * d * scale(e / 16) * negated(EIGHTHS[usize::from(c & 3)], c & 4 != 0)
            }
            _ => {
                let c = byte(2 + 4 * quarter + n % 4) >> (n / 4 * 4) & 15;
                match packed {
                    BlockType::Wide3 => 0.25 * d * scale(quarter) * negated(QUARTERS[usize::from(c & 7)], c & 8 != 0),
                    _ => d * scale(quarter) * f32::from(2 * c as i8 - 15),
                }
            }
        }
    }

    #[test]
    fn codes_have_the_values_of_the_rows_that_they_stand_for() {
        for t in TYPES {
            let (packed, k, rows) = (pack::wide_type(t), 512, 33);
            let n = (rows * k / 256 * t.bytes()) as u64;
            let mut bytes: Vec<u8> = (0..n).map(|i| random::at(3, i) as u8).collect();
            for block in bytes.chunks_exact_mut(t.bytes()) {
                // an f16 that is finite, of either sign
                let high = if t == BlockType::IQ1_M { 55 } else { 1 };
                block[high] = 0x30 | block[high] & 0x8f;
            }
            let mut want = vec![0.0; rows * k];
            t.decode_row(&bytes, &mut want);
            let mut words = vec![0; pack::packed_words(packed, rows, k)];
            pack::pack_rows_as(t, packed, k, rows, &bytes, &mut words).unwrap();
            let per_row = pack::words_per_row(packed, k);
            for row in 0..rows {
                let of_row: Vec<u32> = (0..per_row).map(|i| words[pack::word_index(per_row, row, i)]).collect();
                for (b, block) in of_row.chunks_exact(per_row / 2).enumerate() {
                    for e in 0..256 {
                        let (got, want) = (element(packed, block, e), want[row * k + 256 * b + e]);
                        assert_eq!(got.to_bits(), want.to_bits(), "{} row {row} block {b} element {e}", t.name());
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_refused_as_it_is_packed_otherwise() {
        for t in TYPES {
            let mut bytes = vec![0u8; 2 * t.bytes()];
            bytes[t.bytes() + if t == BlockType::IQ1_M { 55 } else { 1 }] = 0x7c;
            if t == BlockType::IQ1_M {
                bytes[t.bytes() + 53] = 0xc0;
            }
            let packed = |packed| {
                let mut words = vec![0; pack::packed_words(packed, 1, 512)];
                pack::pack_rows_as(t, packed, 512, 1, &bytes, &mut words).unwrap_err()
            };
            assert_eq!(packed(pack::wide_type(t)), packed(t));
            assert_eq!(packed(t).block, 1);
        }
    }

    #[test]
    fn sets_of_types_hold_what_was_put_in() {
        let some = Wide::only(BlockType::IQ2_S).or(Wide::only(BlockType::IQ1_M));
        assert_eq!(some.types().collect::<Vec<_>>(), [BlockType::IQ2_S, BlockType::IQ1_M]);
        assert_eq!((Wide::only(BlockType::Q4_K), some.and(Wide::ALL)), (Wide::NONE, some));
        assert_eq!(Wide::ALL.types().count(), TYPES.len());
        assert_eq!(
            (some.packed(BlockType::IQ2_S), some.packed(BlockType::IQ2_XS)),
            (BlockType::Wide2, BlockType::IQ2_XS)
        );
        assert_eq!(Wide::ALL.packed(BlockType::TQ1_0), BlockType::TQ2_0);
    }
}

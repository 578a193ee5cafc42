//! One token of the types with codebooks (`blocks::grids`), on CPUs that have AVX-512's VBMI and GFNI beside what the level
//! asks for.
//!
//! A word of numbers of rows is taken as it lies: 64 bytes, each a number. A byte of all 64 rows' codes is one look-up
//! (`vpermi2b` finds a byte among 128), the other byte another one; then each element's two or three bits become its
//! magnitude by one multiplication of bits. So a vector holds one element of four rows of the codebook in every lane, and
//! activations are laid out anew for it, once a group. Signs are the activations' here, which leaves magnitudes unsigned as
//! the dot instruction wants them. Sums are integers and exact in any order, so these are the bits of `scaled::group`.

use super::scaled::Scaled;
use super::{ActBlock, Codebook, IQ1M, LINE, Next, ahead, value};
use crate::blocks::grids::{GRID_1, GRID_2S, GRID_2XS, GRID_2XXS, GRID_3S, GRID_3XXS, Grid};
use crate::ops::linear::ROW_BLOCK;
use crate::simd::avx512::Avx512;
use crate::simd::lanes::{Lanes, Word};
use std::arch::x86_64::*;

/// Vectors of 32 rows.
const PARTS: usize = 2;

/// Bytes or halves of both parts.
type Both = [__m512i; PARTS];

/// Whether this CPU, which has AVX-512, has what these kernels need besides.
pub(in super::super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("gfni")
}

/// Wraps intrinsics. The one reason they are sound is given here.
macro_rules! intrinsics {
    ($e:expr) => {
        // SAFETY: all of this is inlined into `row_block`, whose callers promise the instructions; what is read or written
        // through pointers is a reference to as many bytes.
        unsafe { $e }
    };
}

/// The two bytes of each row's codes, in tables as one look-up takes them.
#[repr(C, align(64))]
struct Planes<const TABLES: usize>([[[u8; 128]; TABLES]; 2]);

impl<const TABLES: usize> Planes<TABLES> {
    const fn new<const ROWS: usize, const WORDS: usize>(grid: &Grid<ROWS, WORDS>) -> Self {
        assert!(ROWS == 128 * TABLES);
        let mut planes = [[[0; 128]; TABLES]; 2];
        let mut row = 0;
        while row < ROWS {
            let [low, high] = grid.codes[row].to_le_bytes();
            planes[0][row / 128][row % 128] = low;
            planes[1][row / 128][row % 128] = high;
            row += 1;
        }
        Planes(planes)
    }
}

static PLANES_2XXS: Planes<2> = Planes::new(&GRID_2XXS);
static PLANES_2XS: Planes<4> = Planes::new(&GRID_2XS);
static PLANES_2S: Planes<8> = Planes::new(&GRID_2S);
static PLANES_3XXS: Planes<2> = Planes::new(&GRID_3XXS);
static PLANES_3S: Planes<4> = Planes::new(&GRID_3S);
static PLANES_1: Planes<16> = Planes::new(&GRID_1);

/// The high byte of a row's codes in a codebook whose rows are in order: among sixteen rows that follow each other it
/// changes once at most.
#[repr(C, align(64))]
struct Steps {
    /// of each sixteen rows the byte before the change
    before: [u8; 128],
    /// after it
    after: [u8; 128],
    /// the row from which on it is the latter; 16 where it does not change
    from: [u8; 128],
}

static STEPS_1: Steps = steps(&GRID_1);

const fn steps(grid: &Grid<2048, 2>) -> Steps {
    let mut steps = Steps { before: [0; 128], after: [0; 128], from: [16; 128] };
    let mut row = 0;
    while row < 2048 {
        let (at, high) = (row / 16, grid.codes[row].to_le_bytes()[1]);
        if row % 16 == 0 {
            steps.before[at] = high;
        } else if high != steps.before[at] && steps.from[at] == 16 {
            steps.from[at] = (row % 16) as u8;
            steps.after[at] = high;
        }
        let found = if row % 16 < steps.from[at] as usize { steps.before[at] } else { steps.after[at] };
        assert!(high == found);
        row += 1;
    }
    steps
}

/// The values of IQ3_XXS, whatever bits lie above the three of a code.
static VALUES_3XXS: [u8; 64] = {
    let mut values = [0; 64];
    let mut i = 0;
    while i < 64 {
        values[i] = GRID_3XXS.values[i % 8] as u8;
        i += 1;
    }
    values
};

/// The matrix by which each bit of a byte that is set contributes its column, by exclusive or.
const fn matrix(columns: [u8; 8]) -> i64 {
    let mut rows = 0;
    let mut bit = 0;
    while bit < 8 {
        let mut from = 0;
        while from < 8 {
            // the row of the lowest bit is the highest byte
            rows |= ((columns[from] >> bit & 1) as u64) << (8 * (7 - bit) + from);
            from += 1;
        }
        bit += 1;
    }
    rows as i64
}

/// [`matrix`] of the two bits of each of four codes in a byte.
const fn two_bits(first: u8, second: u8) -> [i64; 4] {
    let mut out = [0; 4];
    let mut i = 0;
    while i < 4 {
        let mut columns = [0; 8];
        (columns[2 * i], columns[2 * i + 1]) = (first, second);
        out[i] = matrix(columns);
        i += 1;
    }
    out
}

/// Codes 0, 1, 2 to 8, 25, 43, an exclusive or of 8 apart: three values are always such sums.
const EIGHTHS: [i64; 4] = two_bits(8 ^ 25, 8 ^ 43);
/// Codes as they are.
const PLAIN: [i64; 4] = two_bits(1, 2);
/// Codes c of three bits to 2 c.
const ODD: [i64; 2] = [matrix([2, 4, 8, 0, 0, 0, 0, 0]), matrix([0, 0, 0, 0, 2, 4, 8, 0])];
/// Seven signs, and above them the one that makes their number even.
const EVEN: i64 = matrix([0x81, 0x82, 0x84, 0x88, 0x90, 0xa0, 0xc0, 0]);
/// The same of the signs in the upper seven bits.
const EVEN_ABOVE: i64 = matrix([0, 0x81, 0x82, 0x84, 0x88, 0x90, 0xa0, 0xc0]);

#[inline(always)]
fn times<const ADD: i32>(bytes: __m512i, matrix: i64) -> __m512i {
    intrinsics!(_mm512_gf2p8affine_epi64_epi8::<ADD>(bytes, _mm512_set1_epi64(matrix)))
}

#[inline(always)]
fn bytes(b: &[u8; 64]) -> __m512i {
    intrinsics!(_mm512_loadu_si512(b.as_ptr().cast()))
}

#[inline(always)]
fn load(word: &Word) -> Both {
    let mut both = [zero(); PARTS];
    for part in 0..PARTS {
        let from: &[u32] = &word[16 * part..16 * part + 16];
        both[part] = intrinsics!(_mm512_loadu_si512(from.as_ptr().cast()));
    }
    both
}

#[inline(always)]
fn zero() -> __m512i {
    intrinsics!(_mm512_setzero_si512())
}

#[inline(always)]
fn int(i: i32) -> __m512i {
    intrinsics!(_mm512_set1_epi32(i))
}

#[inline(always)]
fn shr(a: __m512i, n: u32) -> __m512i {
    intrinsics!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32)))
}

#[inline(always)]
fn and(a: __m512i, mask: i32) -> __m512i {
    intrinsics!(_mm512_and_si512(a, int(mask)))
}

/// The bytes in which a bit of `pattern` is set, which is repeated in every lane.
#[inline(always)]
fn has(a: __m512i, pattern: [u8; 4]) -> __mmask64 {
    intrinsics!(_mm512_test_epi8_mask(a, int(i32::from_le_bytes(pattern))))
}

/// Eight bits of each lane from bit `first + step * m` on, as byte m.
#[inline(always)]
fn fields(a: __m512i, first: u32, step: u64) -> __m512i {
    let lane = step << 8 | (2 * step) << 16 | (3 * step) << 24;
    // of two lanes at once; the second begins 32 bits later
    let at = (lane | (lane + 0x2020_2020) << 32) + u64::from(first) * 0x0101_0101_0101_0101;
    intrinsics!(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(at as i64), a))
}

/// Bytes of each lane by their numbers.
#[inline(always)]
fn spread(a: __m512i, of: [u8; 4]) -> __m512i {
    let (first, lane) = (i32::from_le_bytes(of), 0x0404_0404);
    intrinsics!({
        let at = _mm512_set4_epi32(first + 3 * lane, first + 2 * lane, first + lane, first);
        _mm512_shuffle_epi8(a, at)
    })
}

/// Of each number of a row the byte that `tables` have for it; `high`: its bits from the eighth on.
#[inline(always)]
fn look_up<const TABLES: usize, const HIGH: usize>(
    tables: &'static [[u8; 128]; TABLES],
    index: Both,
    high: [[__mmask64; HIGH]; PARTS],
) -> Both {
    const { assert!(TABLES == 1 << HIGH && TABLES <= 16) }
    // four tables at a time: results of more would leave the registers
    let four = TABLES.min(4);
    let mut chosen = [[zero(); 4]; PARTS];
    for c in 0..TABLES / four {
        let mut found = [[zero(); 4]; PARTS];
        for i in 0..four {
            let (halves, _) = tables[c * four + i].as_chunks::<64>();
            let (low, high) = (bytes(&halves[0]), bytes(&halves[1]));
            for part in 0..PARTS {
                found[part][i] = intrinsics!(_mm512_permutex2var_epi8(low, index[part], high));
            }
        }
        for part in 0..PARTS {
            chosen[part][c] = select(&mut found[part], four, &high[part]);
        }
    }
    let mut out = [zero(); PARTS];
    for part in 0..PARTS {
        out[part] =
            if TABLES > 4 { select(&mut chosen[part], TABLES / four, &high[part][2..]) } else { chosen[part][0] };
    }
    out
}

/// Bytes of a table by their numbers, of which the lowest seven bits count.
#[inline(always)]
fn bytes_of(table: &'static [u8; 128], index: __m512i) -> __m512i {
    let (halves, _) = table.as_chunks::<64>();
    intrinsics!(_mm512_permutex2var_epi8(bytes(&halves[0]), index, bytes(&halves[1])))
}

/// One of the first `n` vectors for every byte, by bits.
#[inline(always)]
fn select(found: &mut [__m512i; 4], n: usize, bits: &[__mmask64]) -> __m512i {
    let (mut left, mut bit) = (n, 0);
    while left > 1 {
        for i in 0..left / 2 {
            found[i] = intrinsics!(_mm512_mask_blend_epi8(bits[bit], found[2 * i], found[2 * i + 1]));
        }
        left /= 2;
        bit += 1;
    }
    found[0]
}

/// The activations of a group, for each digit.
struct Laid<'a, const D: usize> {
    blocks: [&'a ActBlock; D],
    /// words of four codes as the type's order of elements has them
    codes: [[u32; 32]; D],
    /// sums of 8 codes, two to a word
    sums: [[u32; 8]; D],
}

impl<const D: usize> Laid<'_, D> {
    /// Code word `i` of the digit, in every lane.
    #[inline(always)]
    fn word(&self, d: usize, i: usize) -> __m512i {
        int(self.codes[d][i] as i32)
    }

    /// The same with the signs of `minus`.
    #[inline(always)]
    fn signed(&self, d: usize, i: usize, minus: __mmask64) -> __m512i {
        let a = self.word(d, i);
        intrinsics!(_mm512_mask_sub_epi8(a, minus, zero(), a))
    }

    /// Lays out the codes: `order` says which byte of each 64 comes where.
    #[inline(always)]
    fn lay<F: Booked>(&mut self) {
        for d in 0..D {
            let codes: &[u8; 128] =
                bytemuck::cast_ref(self.blocks[d][1..].first_chunk::<32>().expect("32 words of codes"));
            let (from, _) = codes.as_chunks::<64>();
            let (to, _) = self.codes[d].as_chunks_mut::<16>();
            for i in 0..2 {
                let a = bytes(&from[i]);
                intrinsics!(_mm512_storeu_si512(
                    to[i].as_mut_ptr().cast(),
                    _mm512_permutexvar_epi8(bytes(&F::ORDER), a)
                ));
                if F::SUMS {
                    let (sums, _) = self.sums[d].as_chunks_mut::<4>();
                    intrinsics!({
                        let fours = _mm512_dpbusd_epi32(zero(), _mm512_set1_epi8(1), a);
                        let eights = _mm512_add_epi32(fours, _mm512_srli_epi64::<32>(fours));
                        _mm_storeu_si128(sums[i].as_mut_ptr().cast(), _mm512_cvtepi64_epi16(eights));
                    });
                }
            }
        }
    }
}

/// Which byte of 64 activations comes where: byte m of word e of a quarter is element e of row m of the codebook.
const fn order(elements: usize) -> [u8; 64] {
    let mut order = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (m, word) = (i % 4, i / 4);
        order[i] = (word / elements * elements * 4 + m * elements + word % elements) as u8;
        i += 1;
    }
    order
}

const EIGHTS: [u8; 64] = order(8);
const FOURS: [u8; 64] = order(4);

/// S of both parts and every digit.
type Sums<const D: usize> = [[__m512i; D]; PARTS];

/// A type's part of [`rows`].
trait Booked {
    const WORDS: usize;
    const UNIT: f32;
    const ORDER: [u8; 64];
    const SUMS: bool = false;

    /// Adds quarter `j` of group `half`, each eighth's or sixteenth's dot times its scale.
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>);

    /// The block's scale.
    #[inline(always)]
    fn scale(v: Avx512<true>, block: &[Word], part: usize) -> __m512 {
        v.f16_pair(v.load(&block[0], part)).0
    }
}

/// Adds dots times the scale of 32 codes.
#[inline(always)]
fn add_scaled(s: &mut __m512i, scale: __m512i, dots: __m512i) {
    *s = intrinsics!(_mm512_add_epi32(*s, _mm512_mullo_epi32(scale, dots)));
}

/// Adds the products of halves.
#[inline(always)]
fn add_halves(s: &mut __m512i, a: __m512i, b: __m512i) {
    *s = intrinsics!(_mm512_dpwssd_epi32(*s, a, b));
}

/// 2 n + 1
#[inline(always)]
fn odd(n: __m512i) -> __m512i {
    intrinsics!(_mm512_add_epi32(_mm512_add_epi32(n, n), int(1)))
}

/// Two scales, a half each, of the nibbles in byte `j` of a lane.
#[inline(always)]
fn odd_pair(word: __m512i, j: usize) -> __m512i {
    let word = shr(word, 8 * j as u32);
    let nibbles = intrinsics!(_mm512_or_si512(and(word, 0xf), and(_mm512_slli_epi32::<12>(word), 0xf_0000)));
    intrinsics!(_mm512_add_epi32(_mm512_add_epi32(nibbles, nibbles), int(0x1_0001)))
}

/// Rows of eight magnitudes with signs, whose scale is of 32 codes.
#[inline(always)]
fn eights<const D: usize>(
    planes: [__m512i; 2],
    signs: __m512i,
    scale: __m512i,
    j: usize,
    a: &Laid<D>,
    s: &mut [__m512i; D],
) {
    let mut dots = [zero(); D];
    for e in 0..8 {
        let codes = times::<8>(planes[e / 4], EIGHTHS[e % 4]);
        let minus = has(signs, [1 << e; 4]);
        for d in 0..D {
            dots[d] = intrinsics!(_mm512_dpbusd_epi32(dots[d], codes, a.signed(d, 8 * j + e, minus)));
        }
    }
    for d in 0..D {
        add_scaled(&mut s[d], scale, dots[d]);
    }
}

/// The same with scales of 16 codes, a half each.
#[inline(always)]
fn eights_of_two_scales<const D: usize>(
    planes: [__m512i; 2],
    signs: __m512i,
    scales: __m512i,
    j: usize,
    a: &Laid<D>,
    s: &mut [__m512i; D],
) {
    for e in [0, 2, 4, 6] {
        let first = times::<8>(planes[e / 4], EIGHTHS[e % 4]);
        let second = times::<8>(planes[e / 4], EIGHTHS[e % 4 + 1]);
        let (minus, less) = (has(signs, [1 << e; 4]), has(signs, [2 << e; 4]));
        for d in 0..D {
            // four products of at most 43 * 127: a half holds them
            let halves = intrinsics!(_mm512_add_epi16(
                _mm512_maddubs_epi16(first, a.signed(d, 8 * j + e, minus)),
                _mm512_maddubs_epi16(second, a.signed(d, 8 * j + e + 1, less)),
            ));
            add_halves(&mut s[d], halves, scales);
        }
    }
}

struct Two2S;

impl Booked for Two2S {
    const WORDS: usize = 21;
    const UNIT: f32 = 0.125;
    const ORDER: [u8; 64] = EIGHTS;

    #[inline(always)]
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>) {
        let index = load(&block[5 + 4 * half + j]);
        let above = load(&block[3 + half]);
        let mut high = [[0; 3]; PARTS];
        for part in 0..PARTS {
            let bits = fields(above[part], 8 * j as u32, 2);
            high[part] = [has(index[part], [0x80; 4]), has(bits, [1; 4]), has(bits, [2; 4])];
        }
        let (low, last) = (look_up(&PLANES_2S.0[0], index, high), look_up(&PLANES_2S.0[1], index, high));
        let (signs, scales) = (load(&block[13 + 4 * half + j]), load(&block[1 + half]));
        for part in 0..PARTS {
            let planes = [low[part], last[part]];
            eights_of_two_scales(planes, signs[part], odd_pair(scales[part], j), j, a, &mut sums[part]);
        }
    }
}

struct Two2XS;

/// Bytes 0 and 2, or 1 and 3, of the lanes of two vectors.
const fn every_other(first: u8) -> [u8; 64] {
    let mut at = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (lane, m) = (i as u8 / 4 * 4, i as u8 % 4);
        at[i] = m / 2 * 64 + lane + m % 2 * 2 + first;
        i += 1;
    }
    at
}

static EVEN_BYTES: [u8; 64] = every_other(0);
static ODD_BYTES: [u8; 64] = every_other(1);

impl Booked for Two2XS {
    const WORDS: usize = 19;
    const UNIT: f32 = 0.125;
    const ORDER: [u8; 64] = EIGHTS;

    #[inline(always)]
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>) {
        let at = 3 + 8 * half + 2 * j;
        let (first, last) = (load(&block[at]), load(&block[at + 1]));
        let (mut index, mut signs, mut high) = ([zero(); PARTS], [zero(); PARTS], [[0; 2]; PARTS]);
        for part in 0..PARTS {
            index[part] = intrinsics!(_mm512_permutex2var_epi8(first[part], bytes(&EVEN_BYTES), last[part]));
            let above = intrinsics!(_mm512_permutex2var_epi8(first[part], bytes(&ODD_BYTES), last[part]));
            high[part] = [has(index[part], [0x80; 4]), has(above, [1; 4])];
            signs[part] = times::<0>(above, EVEN_ABOVE);
        }
        let (low, last) = (look_up(&PLANES_2XS.0[0], index, high), look_up(&PLANES_2XS.0[1], index, high));
        let scales = load(&block[1 + half]);
        for part in 0..PARTS {
            let planes = [low[part], last[part]];
            eights_of_two_scales(planes, signs[part], odd_pair(scales[part], j), j, a, &mut sums[part]);
        }
    }
}

struct Two2XXS;

impl Booked for Two2XXS {
    const WORDS: usize = 17;
    const UNIT: f32 = 0.125;
    const ORDER: [u8; 64] = EIGHTS;

    #[inline(always)]
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>) {
        let at = 1 + 8 * half + 2 * j;
        let (index, rest) = (load(&block[at]), load(&block[at + 1]));
        let mut high = [[0]; PARTS];
        for part in 0..PARTS {
            high[part] = [has(index[part], [0x80; 4])];
        }
        let (low, last) = (look_up(&PLANES_2XXS.0[0], index, high), look_up(&PLANES_2XXS.0[1], index, high));
        for part in 0..PARTS {
            let signs = times::<0>(fields(rest[part], 0, 7), EVEN);
            eights([low[part], last[part]], signs, odd(shr(rest[part], 28)), j, a, &mut sums[part]);
        }
    }
}

/// Four rows of four magnitudes, half `h` of a quarter: their dots.
#[inline(always)]
fn fours<const D: usize>(
    codes: [__m512i; 4],
    signs: __m512i,
    (j, h): (usize, usize),
    a: &Laid<D>,
    dots: &mut [__m512i; D],
) {
    // a byte of signs is of two rows
    let two = 2 * h as u8;
    let signs = spread(signs, [two, two, two + 1, two + 1]);
    for e in 0..4 {
        let minus = has(signs, [1 << e, 16 << e, 1 << e, 16 << e]);
        for d in 0..D {
            let a = a.signed(d, 8 * j + 4 * h + e, minus);
            dots[d] = intrinsics!(_mm512_dpbusd_epi32(dots[d], codes[e], a));
        }
    }
}

struct Three3S;

impl Booked for Three3S {
    const WORDS: usize = 28;
    const UNIT: f32 = 1.0;
    const ORDER: [u8; 64] = FOURS;

    #[inline(always)]
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>) {
        let at = 12 + 8 * half + 2 * j;
        let (signs, above) = (load(&block[4 + 4 * half + j]), load(&block[2 + half]));
        let mut dots = [[zero(); D]; PARTS];
        for h in 0..2 {
            let index = load(&block[at + h]);
            let mut high = [[0; 2]; PARTS];
            for part in 0..PARTS {
                let bits = spread(shr(above[part], 8 * j as u32), [0; 4]);
                let of = [1 << (4 * h), 2 << (4 * h), 4 << (4 * h), 8 << (4 * h)];
                high[part] = [has(index[part], [0x80; 4]), has(bits, of)];
            }
            let (low, last) = (look_up(&PLANES_3S.0[0], index, high), look_up(&PLANES_3S.0[1], index, high));
            for part in 0..PARTS {
                let (low, last) = (low[part], last[part]);
                let codes = [
                    times::<1>(low, ODD[0]),
                    times::<1>(low, ODD[1]),
                    times::<1>(last, ODD[0]),
                    times::<1>(last, ODD[1]),
                ];
                fours(codes, signs[part], (j, h), a, &mut dots[part]);
            }
        }
        let scales = load(&block[1]);
        for part in 0..PARTS {
            let scale = odd(and(shr(scales[part], (16 * half + 4 * j) as u32), 15));
            for d in 0..D {
                add_scaled(&mut sums[part][d], scale, dots[part][d]);
            }
        }
    }
}

struct Three3XXS;

/// The values of the codes in the low bits of bytes.
#[inline(always)]
fn values_3xxs(codes: __m512i) -> __m512i {
    intrinsics!(_mm512_permutexvar_epi8(codes, bytes(&VALUES_3XXS)))
}

impl Booked for Three3XXS {
    const WORDS: usize = 25;
    const UNIT: f32 = 0.25;
    const ORDER: [u8; 64] = FOURS;

    #[inline(always)]
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>) {
        let at = 9 + 8 * half + 2 * j;
        let rest = load(&block[1 + 4 * half + j]);
        let mut signs = [zero(); PARTS];
        for part in 0..PARTS {
            signs[part] = times::<0>(fields(rest[part], 0, 7), EVEN);
        }
        let mut dots = [[zero(); D]; PARTS];
        for h in 0..2 {
            let index = load(&block[at + h]);
            let mut high = [[0]; PARTS];
            for part in 0..PARTS {
                high[part] = [has(index[part], [0x80; 4])];
            }
            let (low, last) = (look_up(&PLANES_3XXS.0[0], index, high), look_up(&PLANES_3XXS.0[1], index, high));
            for part in 0..PARTS {
                let (low, last) = (low[part], last[part]);
                let codes = [values_3xxs(low), values_3xxs(shr(low, 4)), values_3xxs(last), values_3xxs(shr(last, 4))];
                fours(codes, signs[part], (j, h), a, &mut dots[part]);
            }
        }
        for part in 0..PARTS {
            let scale = odd(shr(rest[part], 28));
            for d in 0..D {
                add_scaled(&mut sums[part][d], scale, dots[part][d]);
            }
        }
    }
}

/// The codes of rows of the codebook of IQ1, whose numbers are `index` and above it the three low bits of `above`.
#[inline(always)]
fn rows_of_one(index: Both, above: Both) -> [[__m512i; 2]; PARTS] {
    let mut high = [[0; 4]; PARTS];
    for part in 0..PARTS {
        let above = above[part];
        high[part] = [has(index[part], [0x80; 4]), has(above, [1; 4]), has(above, [2; 4]), has(above, [4; 4])];
    }
    let low = look_up(&PLANES_1.0[0], index, high);
    let mut out = [[zero(); 2]; PARTS];
    for part in 0..PARTS {
        let last = intrinsics!({
            // the number of sixteen rows, of which the lowest seven bits count
            let upper = _mm512_slli_epi16::<4>(above[part]);
            let at = _mm512_ternarylogic_epi32::<0xd8>(upper, _mm512_srli_epi16::<4>(index[part]), int(0x0f0f_0f0f));
            let later = _mm512_cmpge_epu8_mask(and(index[part], 0x0f0f_0f0f), bytes_of(&STEPS_1.from, at));
            _mm512_mask_blend_epi8(later, bytes_of(&STEPS_1.before, at), bytes_of(&STEPS_1.after, at))
        });
        out[part] = [low[part], last];
    }
    out
}

struct One1S;

impl Booked for One1S {
    const WORDS: usize = 13;
    const UNIT: f32 = 0.125;
    const ORDER: [u8; 64] = EIGHTS;

    /// A code is 8 (c - 1) +- 1, c being what the codebook's row has: 8 c, and of all activations 7 times less, or 9 times.
    #[inline(always)]
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>) {
        let index = load(&block[5 + 4 * half + j]);
        let words = load(&block[1 + 2 * half + j / 2]);
        let (mut bits, mut above) = ([zero(); PARTS], [zero(); PARTS]);
        for part in 0..PARTS {
            bits[part] = shr(words[part], (16 * (j % 2)) as u32);
            above[part] = fields(bits[part], 0, 3);
        }
        let planes = rows_of_one(index, above);
        for part in 0..PARTS {
            let mut dots = [zero(); D];
            for e in 0..8 {
                let codes = times::<0>(planes[part][e / 4], PLAIN[e % 4]);
                for d in 0..D {
                    dots[d] = intrinsics!(_mm512_dpbusd_epi32(dots[d], codes, a.word(d, 8 * j + e)));
                }
            }
            let scale = odd(and(shr(bits[part], 12), 7));
            let less = intrinsics!({
                let minus = _mm512_test_epi32_mask(bits[part], int(0x8000));
                let by = _mm512_mask_blend_epi32(minus, int(-7), int(-9));
                let by = _mm512_mullo_epi32(scale, by);
                _mm512_mask_blend_epi16(0xaaaa_aaaa, by, _mm512_slli_epi32::<16>(by))
            });
            for d in 0..D {
                let s = &mut sums[part][d];
                add_scaled(s, intrinsics!(_mm512_slli_epi32::<3>(scale)), dots[d]);
                add_halves(s, less, int(a.blocks[d][33 + j] as i32));
            }
        }
    }
}

struct One1M;

impl Booked for One1M {
    const WORDS: usize = 14;
    const UNIT: f32 = 0.125;
    const ORDER: [u8; 64] = EIGHTS;
    const SUMS: bool = true;

    /// As of [`One1S`], but with a shift for each eight codes and a scale for sixteen.
    #[inline(always)]
    fn quarter<const D: usize>(block: &[Word], half: usize, j: usize, a: &Laid<D>, sums: &mut Sums<D>) {
        let index = load(&block[6 + 4 * half + j]);
        let words = load(&block[2 + 2 * half + j / 2]);
        let (mut bits, mut above) = ([zero(); PARTS], [zero(); PARTS]);
        for part in 0..PARTS {
            bits[part] = shr(words[part], (16 * (j % 2)) as u32);
            above[part] = fields(bits[part], 0, 4);
        }
        let planes = rows_of_one(index, above);
        let scales = load(&block[half]);
        let at = (16 * (j / 2) + 6 * (j % 2)) as u32;
        for part in 0..PARTS {
            let (first, last) = (odd(and(shr(scales[part], at), 7)), odd(and(shr(scales[part], at + 3), 7)));
            let (first, last) = (spread(first, [0, 1, 0, 1]), spread(last, [0, 1, 0, 1]));
            let both = intrinsics!(_mm512_slli_epi16::<3>(_mm512_mask_blend_epi16(0xaaaa_aaaa, first, last)));
            let nibbles = spread(bits[part], [0, 1, 0, 1]);
            let less = [less_of(first, nibbles, 0x0080_0008), less_of(last, nibbles, 0x8000_0800_u32 as i32)];
            for d in 0..D {
                let mut halves = zero();
                for e in 0..8 {
                    let codes = times::<0>(planes[part][e / 4], PLAIN[e % 4]);
                    // sixteen products of at most 2 * 127
                    let two = intrinsics!(_mm512_maddubs_epi16(codes, a.word(d, 8 * j + e)));
                    halves = intrinsics!(_mm512_add_epi16(halves, two));
                }
                let s = &mut sums[part][d];
                add_halves(s, halves, both);
                add_halves(s, less[0], int(a.sums[d][2 * j] as i32));
                add_halves(s, less[1], int(a.sums[d][2 * j + 1] as i32));
            }
        }
    }

    #[inline(always)]
    fn scale(v: Avx512<true>, block: &[Word], part: usize) -> __m512 {
        <IQ1M as Scaled>::scale(v, block, part)
    }
}

/// Of halves that hold scales -7 times each, or -9 times where `bit` is set.
#[inline(always)]
fn less_of(scales: __m512i, nibbles: __m512i, bit: i32) -> __m512i {
    intrinsics!({
        let seven = _mm512_mullo_epi16(scales, _mm512_set1_epi16(-7));
        let minus = _mm512_test_epi16_mask(nibbles, int(bit));
        _mm512_mask_sub_epi16(seven, minus, seven, _mm512_add_epi16(scales, scales))
    })
}

/// [`super::quantised`] for one token.
#[inline(always)]
fn rows<F: Booked, const D: usize>(
    v: Avx512<true>,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg_groups: usize,
) -> [f32; ROW_BLOCK] {
    assert!(act.len() == D * groups);
    let ahead = ahead(v, false);
    let mut total = [v.float(0.0); PARTS];
    let mut first = 0;
    while first < groups {
        let end = groups.min(first + seg_groups);
        let mut acc = [v.float(0.0); PARTS];
        for g in first..end {
            let mut laid = Laid { blocks: [&act[0]; D], codes: [[0; 32]; D], sums: [[0; 8]; D] };
            for d in 0..D {
                laid.blocks[d] = &act[g * D + d];
            }
            laid.lay::<F>();
            let block = &w[g / 2 * F::WORDS..][..F::WORDS];
            let lines = (F::WORDS * size_of::<Word>() / LINE).div_ceil(2);
            let next = Next::new(w, g * F::WORDS * size_of::<Word>() / 2, 0, lines, ahead);
            let mut sums = [[zero(); D]; PARTS];
            for j in 0..4 {
                next.fetch_quarter(v, j);
                F::quarter(block, g & 1, std::hint::black_box(j) & 3, &laid, &mut sums);
            }
            let da = v.float(f32::from_bits(laid.blocks[0][0]));
            for part in 0..PARTS {
                let d = F::scale(v, block, part);
                let d = if F::UNIT == 1.0 { d } else { v.mul_f(d, v.float(F::UNIT)) };
                let term = v.mul_f(d, value(v, sums[part]));
                acc[part] = v.add_f(acc[part], v.mul_f(da, term));
            }
        }
        for part in 0..PARTS {
            total[part] = v.add_f(total[part], acc[part]);
        }
        first = end;
    }
    let mut out = [0.0; ROW_BLOCK];
    for part in 0..PARTS {
        v.store(v.canon(total[part]), &mut out, part);
    }
    out
}

/// One row block of a type with a codebook and one token, on a CPU that has what the level AVX-512 asks for and of which
/// [`is_available`] is true. Weights are asked for as data like any other, whatever was chosen: these kernels compute.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub(in super::super) fn row_block<const D: usize>(
    book: Codebook,
    ahead: usize,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg_groups: usize,
) -> [f32; ROW_BLOCK] {
    // SAFETY: this function's own target features.
    let v = unsafe { Avx512::<true>::asking(ahead) };
    match book {
        Codebook::IQ3S => rows::<Three3S, D>(v, w, act, groups, seg_groups),
        Codebook::IQ3XXS => rows::<Three3XXS, D>(v, w, act, groups, seg_groups),
        Codebook::IQ2S => rows::<Two2S, D>(v, w, act, groups, seg_groups),
        Codebook::IQ2XS => rows::<Two2XS, D>(v, w, act, groups, seg_groups),
        Codebook::IQ2XXS => rows::<Two2XXS, D>(v, w, act, groups, seg_groups),
        Codebook::IQ1S => rows::<One1S, D>(v, w, act, groups, seg_groups),
        Codebook::IQ1M => rows::<One1M, D>(v, w, act, groups, seg_groups),
    }
}

//! Writing keys and values into the cache, and the layout of a cached row.
//!
//! Keys lie 32 positions side by side, values position after position (`docs/exactness.md` section 6).

use crate::ops::exact::{SCALE_MIN, amax, f16_to_f32, f32_to_f16, fdiv, round_away, too_large};
use crate::ops::params::{At, Params, params};
use crate::ops::places::{Page, Places, Touches};
use crate::ops::tq3;

/// Elements of the largest head.
pub const HEAD_MAX: usize = 576;

/// What a cached key or value is stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CacheType {
    /// binary32, as computed
    F32 = 0,
    /// binary16
    F16 = 1,
    /// blocks of 32 codes of 8 bits and an f16 scale
    Q8_0 = 2,
    /// blocks of 32 codes of 4 bits and an f16 scale
    Q4_0 = 3,
    /// q8_0 of the rotated row (`ops::tq3::rotate` over the largest power of two that divides the head)
    Q8_0R = 4,
    /// q4_0 of the rotated row
    Q4_0R = 5,
    /// the published TQ3_0: rotations of 32, four levels, 3.5 bits a value
    TQ3_0 = 6,
    /// our variant in the same 14 bytes: rotations of 32, eight integer levels, a fitted scale
    TQ3_1 = 7,
    /// rows of q8_0 whose scales are 1: the integers -128..=127 that `channel_quantize` makes with the model's own scales
    C8 = 8,
}

impl CacheType {
    /// Every type, by number.
    pub const ALL: [CacheType; 9] = [
        CacheType::F32,
        CacheType::F16,
        CacheType::Q8_0,
        CacheType::Q4_0,
        CacheType::Q8_0R,
        CacheType::Q4_0R,
        CacheType::TQ3_0,
        CacheType::TQ3_1,
        CacheType::C8,
    ];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            CacheType::F32 => "f32",
            CacheType::F16 => "f16",
            CacheType::Q8_0 => "q8_0",
            CacheType::Q4_0 => "q4_0",
            CacheType::Q8_0R => "q8_0r",
            CacheType::Q4_0R => "q4_0r",
            CacheType::TQ3_0 => "tq3_0",
            CacheType::TQ3_1 => "tq3_1",
            CacheType::C8 => "c8",
        }
    }

    /// By its command-line name.
    pub fn parse(name: &str) -> Option<CacheType> {
        CacheType::ALL.into_iter().find(|t| t.name() == name)
    }

    /// Elements rotated together, 0 for the types that store the row as it is.
    pub fn rotation(self, head_dim: usize) -> usize {
        match self {
            CacheType::TQ3_0 | CacheType::TQ3_1 => tq3::rotation(head_dim),
            // the whole head, or the largest power of two that divides it
            CacheType::Q8_0R | CacheType::Q4_0R => (1 << head_dim.trailing_zeros()).min(256),
            _ => 0,
        }
    }

    /// Rotates a row (`[head_dim]`) as this type stores it; the other types leave it alone.
    pub fn rotate(self, row: &mut [f32]) {
        let n = self.rotation(row.len());
        if n > 0 {
            row.chunks_exact_mut(n).for_each(tq3::rotate);
        }
    }

    /// The inverse of [`CacheType::rotate`].
    pub fn unrotate(self, row: &mut [f32]) {
        let n = self.rotation(row.len());
        if n > 0 {
            row.chunks_exact_mut(n).for_each(tq3::unrotate);
        }
    }

    /// The type whose layout and codes a rotated q8_0 or q4_0, or c8, shares; the others are their own.
    pub const fn plain(self) -> CacheType {
        match self {
            CacheType::Q8_0R | CacheType::C8 => CacheType::Q8_0,
            CacheType::Q4_0R => CacheType::Q4_0,
            t => t,
        }
    }

    /// Words of one cached row of `head_dim` elements; `None` when the type cannot hold that head.
    pub const fn words(self, head_dim: usize) -> Option<usize> {
        match self.plain() {
            CacheType::F32 => Some(head_dim),
            CacheType::F16 if head_dim.is_multiple_of(2) => Some(head_dim / 2),
            CacheType::Q8_0 if head_dim.is_multiple_of(32) => Some((head_dim / 32).div_ceil(2) + head_dim / 4),
            CacheType::Q4_0 if head_dim.is_multiple_of(32) => Some((head_dim / 32).div_ceil(2) + head_dim / 8),
            CacheType::TQ3_0 | CacheType::TQ3_1 if head_dim.is_multiple_of(32) => {
                Some((head_dim / 32).div_ceil(2) + head_dim / 32 * 3)
            }
            _ => None,
        }
    }
}

params! {
    /// Parameters of `cache_write_k` and `cache_write_v`.
    pub struct CacheWriteParams {
        /// rows
        pub n_tokens: u32,
        /// key-value heads in a row
        pub kv_heads: u32,
        /// elements in a head
        pub head_dim: u32,
        /// first position of this page in the pool
        pub page_first: u32,
        /// positions in this page (a multiple of 64); rows outside the page are left alone
        pub page_len: u32,
        /// 1: the page is the ring of recent positions (`page_first` 0)
        pub ring: u32,
        /// which table of its sequence says where a row lies
        pub table: u32,
    }
}

impl Params for CacheWriteParams {
    const FLOAT_STRIDE: Option<usize> = None;

    fn at(self, step: &At) -> Option<Self> {
        let p = Self { n_tokens: step.n, ..self };
        p.is_written(step).then_some(p)
    }

    fn groups(&self) -> [u32; 2] {
        [self.kv_heads, self.n_tokens]
    }
}

impl CacheWriteParams {
    /// Whether a step writes to the page.
    pub fn is_written(&self, step: &At) -> bool {
        let (first, len) = (self.page_first, self.page_len);
        match step.touches {
            _ if self.ring == 1 => true,
            Some(touches) => Touches::meets(touches[self.table as usize].written, first, len),
            None => first < step.end && first + len > step.pos,
        }
    }

    /// The page that is written.
    pub fn page(&self) -> Page {
        Page { first: self.page_first, len: self.page_len, ring: self.ring == 1, table: self.table }
    }
}

/// The first word of a cached row of keys that has an element that is not finite (or that `canon` takes for too large), or
/// whose row of values has one: no f32 and no pair of f16 that is stored. The row's other words are 0, and what a query
/// makes of it is `POISON`.
pub const POISONED: u32 = 0x7fc0_7e00;

/// `x` and the values beside it, `v`: `[token][kv_heads][head_dim]`; `cache`: one page of keys.
pub fn cache_write_k(t: CacheType, p: &CacheWriteParams, at: Places, x: &[f32], v: &[f32], cache: &mut [u32]) {
    write(t, p, at, x, Some(v), cache, |head, pos, words| {
        (((head * p.page_len as usize / 32 + pos / 32) * words) * 32 + pos % 32, 32)
    });
}

/// `x`: `[token][kv_heads][head_dim]`, of which elements that are not finite (or too large) are written as 0; `cache`: one page of values.
pub fn cache_write_v(t: CacheType, p: &CacheWriteParams, at: Places, x: &[f32], cache: &mut [u32]) {
    write(t, p, at, x, None, cache, |head, pos, words| ((head * p.page_len as usize + pos) * words, 1));
}

/// A cache holds numbers only: what a query does not see may be weighed with 0, and times that each must be 0. So the
/// values' poison is kept with their keys, whose scores are not counted where they are not seen.
fn write(
    t: CacheType,
    p: &CacheWriteParams,
    places: Places,
    x: &[f32],
    beside: Option<&[f32]>,
    cache: &mut [u32],
    place: impl Fn(usize, usize, usize) -> (usize, usize),
) {
    let (heads, hd) = (p.kv_heads as usize, p.head_dim as usize);
    let words = t.words(hd).expect("the model checked that the type can hold this head");
    for tok in 0..p.n_tokens as usize {
        let Some(pos) = p.page().own(&places, tok) else { continue };
        for head in 0..heads {
            let (base, stride) = place(head, pos, words);
            let at = (tok * heads + head) * hd;
            if let Some(v) = beside
                && x[at..at + hd].iter().chain(&v[at..at + hd]).any(|x| too_large(*x))
            {
                (0..words).for_each(|i| cache[base + i * stride] = if i == 0 { POISONED } else { 0 });
                continue;
            }
            let mut row = [0f32; HEAD_MAX];
            let row = &mut row[..hd];
            for (row, x) in row.iter_mut().zip(&x[at..]) {
                *row = if too_large(*x) { 0.0 } else { *x };
            }
            t.rotate(row);
            row_words(t, row, |i, w| cache[base + i * stride] = w);
        }
    }
}

/// The words of one row, already rotated where the type asks for it, given to `put(index, word)`.
fn row_words(t: CacheType, row: &[f32], mut put: impl FnMut(usize, u32)) {
    let nb = row.len() / 32;
    let scale_words = nb.div_ceil(2);
    match t.plain() {
        CacheType::F32 => row.iter().enumerate().for_each(|(i, v)| put(i, v.to_bits())),
        CacheType::F16 => {
            for (i, v) in row.chunks_exact(2).enumerate() {
                put(i, u32::from(f32_to_f16(v[0])) | u32::from(f32_to_f16(v[1])) << 16);
            }
        }
        _ => {
            for pair in 0..scale_words {
                let mut scales = 0;
                for b in 2 * pair..(2 * pair + 2).min(nb) {
                    let x: &[f32; 32] = row[32 * b..][..32].try_into().expect("32 elements");
                    let scale = match t.plain() {
                        _ if t == CacheType::C8 => f32_to_f16(c8_block(x, |i, w| put(scale_words + 8 * b + i, w))),
                        CacheType::Q8_0 => f32_to_f16(q8_0_block(x, |i, w| put(scale_words + 8 * b + i, w))),
                        CacheType::Q4_0 => f32_to_f16(q4_0_block(x, |i, w| put(scale_words + 4 * b + i, w))),
                        _ => {
                            let block = if t == CacheType::TQ3_0 { tq3::tq3_0_encode(x) } else { tq3::tq3_1_encode(x) };
                            put(scale_words + 3 * b, block.qs[0]);
                            put(scale_words + 3 * b + 1, block.qs[1]);
                            put(scale_words + 3 * b + 2, block.qr);
                            block.gamma
                        }
                    };
                    scales |= u32::from(scale) << (16 * (b % 2));
                }
                put(pair, scales);
            }
        }
    }
}

/// Eight words of codes; returns d.
fn q8_0_block(x: &[f32], mut put: impl FnMut(usize, u32)) -> f32 {
    let mut d = fdiv(amax(x), 127.0);
    let mut id = 0.0;
    if d < SCALE_MIN {
        d = 0.0;
    } else {
        id = fdiv(1.0, d);
    }
    for (i, v) in x.chunks_exact(4).enumerate() {
        let code = |e: usize| (round_away(v[e] * id) as u32 & 255) << (8 * e);
        put(i, code(0) | code(1) | code(2) | code(3));
    }
    d
}

/// Eight words of codes, the elements themselves where they are integers from -128 to 127; returns 1.
fn c8_block(x: &[f32; 32], mut put: impl FnMut(usize, u32)) -> f32 {
    for (i, v) in x.chunks_exact(4).enumerate() {
        let code = |e: usize| (round_away(v[e].clamp(-128.0, 127.0)) as u32 & 255) << (8 * e);
        put(i, code(0) | code(1) | code(2) | code(3));
    }
    1.0
}

/// Four words of nibbles; returns d.
fn q4_0_block(x: &[f32], mut put: impl FnMut(usize, u32)) -> f32 {
    let (mut amax, mut max) = (0f32, 0f32);
    for &v in x {
        if v.abs() > amax {
            (amax, max) = (v.abs(), v);
        }
    }
    let mut d = max * -0.125;
    let mut id = 0.0;
    if d.abs() < SCALE_MIN {
        d = 0.0;
    } else {
        id = fdiv(1.0, d);
    }
    let code = |v: f32| ((v * id + 8.5) as i32).clamp(0, 15) as u32;
    for i in 0..4 {
        let mut w = 0;
        for e in 0..4 {
            w |= (code(x[4 * i + e]) | code(x[4 * i + e + 16]) << 4) << (8 * e);
        }
        put(i, w);
    }
    d
}

/// Block `b` of a tq3 row whose words are `word(i)`.
#[inline(always)]
pub fn tq3_block(nb: usize, word: impl Fn(usize) -> u32, b: usize) -> tq3::Block {
    let at = nb.div_ceil(2) + 3 * b;
    let gamma = (word(b / 2) >> (16 * (b % 2))) as u16;
    tq3::Block { qs: [word(at), word(at + 1)], qr: word(at + 2), gamma }
}

/// Element `e` of a cached row (of the rotated row, for types that rotate) whose words are `word(i)`; `nb` blocks of 32.
/// The product of an f16 scale and an integer code is exact.
#[inline(always)]
pub fn element(t: CacheType, nb: usize, word: impl Fn(usize) -> u32, e: usize) -> f32 {
    let scale = |b: usize| f16_to_f32((word(b / 2) >> (16 * (b % 2))) as u16);
    match t.plain() {
        CacheType::F32 => f32::from_bits(word(e)),
        CacheType::F16 => f16_to_f32((word(e / 2) >> (16 * (e % 2))) as u16),
        CacheType::Q8_0 => {
            let q = (word(nb.div_ceil(2) + e / 4) >> (8 * (e % 4))) as u8 as i8;
            scale(e / 32) * f32::from(q)
        }
        CacheType::Q4_0 => {
            let (b, l) = (e / 32, e % 32);
            let q = word(nb.div_ceil(2) + 4 * b + l % 16 / 4) >> (8 * (l % 4) + 4 * (l / 16)) & 15;
            scale(b) * (q as f32 - 8.0)
        }
        CacheType::TQ3_0 => {
            let block = tq3_block(nb, word, e / 32);
            f16_to_f32(block.gamma) * tq3::tq3_0_level(block.low2(e % 32))
        }
        _ => {
            let block = tq3_block(nb, word, e / 32);
            f16_to_f32(block.gamma) * tq3::tq3_1_level(block.code3(e % 32)) as f32
        }
    }
}

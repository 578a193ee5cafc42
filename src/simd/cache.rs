//! Writing keys and values into the cache per instruction set, bit-equal to `ops::cache`.
//!
//! A lane is a block of 32 elements: what `ops::tq3` and `ops::cache` do element by element stands here in loops over
//! lanes without branches, compiled once per level. Sums within a block keep the order of its elements.

use super::Level;
use super::attention::rotate::rotate;
use super::portable::Portable;
use super::rows::RowLanes;
use super::team;
use crate::ops::attention::HEAD_MAX;
use crate::ops::cache::{self, CacheType, CacheWriteParams};
use crate::ops::exact::{CANON_MAX, SCALE_MIN, canon, quotient};
use crate::ops::places::{Page, Places};
use crate::ops::tq3::{
    HUGE, TQ3_0_EDGE, TQ3_0_INNER, TQ3_0_OUTER, TQ3_0_ZERO, TQ3_1_EDGES, TQ3_1_LEVELS, TQ3_1_SHIFT, TQ3_1_TRIES,
};

#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use super::wasm::Simd128;
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};

/// Elements in a block.
const BLOCK: usize = 32;

/// Blocks side by side: as many as usual heads have at most.
const LANES: usize = 8;

/// One number of each block.
type Lane = [f32; LANES];

/// What blocks are coded as: words of codes, of which a type uses the first, and the f16 scale.
struct Coded {
    words: [[u32; LANES]; BLOCK / 4],
    scales: [u32; LANES],
}

/// `f(l)` for every lane.
macro_rules! lanes {
    (|$l:ident| $e:expr) => {{
        let mut out = [Default::default(); LANES];
        for $l in 0..LANES {
            out[$l] = $e;
        }
        out
    }};
}

// ---------------------------------------------------------------- numbers

/// `exact::f32_to_f16` of a number, without branches.
#[inline(always)]
fn narrow(x: f32) -> u32 {
    let a = x.to_bits() & 0x7fff_ffff;
    let rebased = a.wrapping_sub((127 - 15) << 23);
    let normal = (rebased.wrapping_add(0xfff + (rebased >> 13 & 1))) >> 13;
    let normal = if normal < 0x7bff { normal } else { 0x7bff };
    // below 2^-14 a multiple of 2^-24, which is what the last bit of a sum with 1/2 is worth
    let small = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    (x.to_bits() >> 16 & 0x8000) | if a < (127 - 14) << 23 { small } else { normal }
}

/// `exact::f16_to_f32` of a finite number, without branches: exponent and mantissa in place but for the bias.
#[inline(always)]
fn widen(h: u32) -> f32 {
    let magnitude = f32::from_bits((h & 0x7fff) << 13) * f32::from_bits((127 + 127 - 15) << 23);
    f32::from_bits(magnitude.to_bits() | (h & 0x8000) << 16)
}

#[inline(always)]
fn amax(x: &[Lane; BLOCK]) -> Lane {
    let mut most = [0f32; LANES];
    for x in x {
        most = lanes!(|l| if x[l].abs() > most[l] { x[l].abs() } else { most[l] });
    }
    most
}

// ---------------------------------------------------------------- encoders

#[inline(always)]
fn q8_0(x: &[Lane; BLOCK], out: &mut Coded) {
    let d: Lane = amax(x);
    let d: Lane = lanes!(|l| quotient(d[l], 127.0));
    let d: Lane = lanes!(|l| if d[l] < SCALE_MIN { 0.0 } else { d[l] });
    let id: Lane = lanes!(|l| if d[l] == 0.0 { 0.0 } else { quotient(1.0, d[l]) });
    for i in 0..BLOCK / 4 {
        let mut word = [0u32; LANES];
        for e in 0..4 {
            for l in 0..LANES {
                // round_away of at most 127 and a little, where the conversion and v - t are exact
                let v = x[4 * i + e][l] * id[l];
                let t = v as i32;
                let up = (v - t as f32).abs() >= 0.5;
                let code = t + if up { if v < 0.0 { -1 } else { 1 } } else { 0 };
                word[l] |= (code as u32 & 255) << (8 * e);
            }
        }
        out.words[i] = word;
    }
    out.scales = lanes!(|l| narrow(d[l]));
}

#[inline(always)]
fn c8(x: &[Lane; BLOCK], out: &mut Coded) {
    for i in 0..BLOCK / 4 {
        let mut word = [0u32; LANES];
        for e in 0..4 {
            for l in 0..LANES {
                let v = x[4 * i + e][l];
                let v = if v < -128.0 { -128.0 } else { v };
                let v = if v > 127.0 { 127.0 } else { v };
                let t = v as i32;
                let up = (v - t as f32).abs() >= 0.5;
                let code = t + if up { if v < 0.0 { -1 } else { 1 } } else { 0 };
                word[l] |= (code as u32 & 255) << (8 * e);
            }
        }
        out.words[i] = word;
    }
    out.scales = [narrow(1.0); LANES];
}

#[inline(always)]
fn q4_0(x: &[Lane; BLOCK], out: &mut Coded) {
    let (mut most, mut max) = ([0f32; LANES], [0f32; LANES]);
    for x in x {
        for l in 0..LANES {
            let more = x[l].abs() > most[l];
            max[l] = if more { x[l] } else { max[l] };
            most[l] = if more { x[l].abs() } else { most[l] };
        }
    }
    let d: Lane = lanes!(|l| max[l] * -0.125);
    let d: Lane = lanes!(|l| if d[l].abs() < SCALE_MIN { 0.0 } else { d[l] });
    let id: Lane = lanes!(|l| if d[l] == 0.0 { 0.0 } else { quotient(1.0, d[l]) });
    out.words = [[0; LANES]; BLOCK / 4];
    for i in 0..BLOCK / 8 {
        for e in 0..4 {
            for half in 0..2 {
                for l in 0..LANES {
                    let code = ((x[4 * i + e + 16 * half][l] * id[l] + 8.5) as i32).clamp(0, 15) as u32;
                    out.words[i][l] |= code << (8 * e + 4 * half);
                }
            }
        }
    }
    out.scales = lanes!(|l| narrow(d[l]));
}

#[inline(always)]
fn tq3_0(x: &[Lane; BLOCK], out: &mut Coded) {
    let most = amax(x);
    let d: Lane = lanes!(|l| quotient(most[l], TQ3_0_OUTER));
    let id: Lane = lanes!(|l| quotient(1.0, d[l]));
    let mut words = [[0u32; LANES]; BLOCK / 4];
    for j in 0..BLOCK {
        for l in 0..LANES {
            let u = canon(x[j][l] * id[l]);
            let low = if u < -TQ3_0_EDGE { 0 } else { 1 };
            let high = if u < TQ3_0_EDGE { 2 } else { 3 };
            let code: u32 = if u < 0.0 { low } else { high };
            let level = if code == 0 || code == 3 { TQ3_0_OUTER } else { TQ3_0_INNER };
            let level = if code < 2 { -level } else { level };
            words[j / 16][l] |= code << (2 * (j % 16));
            words[2][l] |= u32::from(x[j][l] >= d[l] * level) << j;
        }
    }
    let zero = [TQ3_0_ZERO.qs[0], TQ3_0_ZERO.qs[1], TQ3_0_ZERO.qr];
    for (i, zero) in zero.into_iter().enumerate() {
        out.words[i] = lanes!(|l| if d[l] == 0.0 { zero } else { words[i][l] });
    }
    out.scales = lanes!(|l| narrow(d[l]));
}

/// Distance from the shift and whether below it, of the level nearest to `x` in units of gamma.
#[inline(always)]
fn tq3_1_index(x: f32) -> (u32, bool) {
    let w = x - TQ3_1_SHIFT as f32;
    let a = w.abs();
    let index = (a >= TQ3_1_EDGES[0]) as u32 + (a >= TQ3_1_EDGES[1]) as u32 + (a >= TQ3_1_EDGES[2]) as u32;
    (index, w < 0.0)
}

/// The level nearest to `x`, in units of gamma.
#[inline(always)]
fn tq3_1_level(x: f32) -> f32 {
    let w = x - TQ3_1_SHIFT as f32;
    let a = w.abs();
    let low = if a >= TQ3_1_EDGES[0] { TQ3_1_LEVELS[1] as f32 } else { TQ3_1_LEVELS[0] as f32 };
    let high = if a >= TQ3_1_EDGES[2] { TQ3_1_LEVELS[3] as f32 } else { TQ3_1_LEVELS[2] as f32 };
    let distance = if a >= TQ3_1_EDGES[1] { high } else { low };
    TQ3_1_SHIFT as f32 + if w < 0.0 { -distance } else { distance }
}

#[inline(always)]
fn tq3_1(x: &[Lane; BLOCK], out: &mut Coded) {
    let most = amax(x);
    // blocks that are too small go through the motions with a scale of 1 and become zeros at the end
    let base: Lane = lanes!(|l| if most[l] < HUGE { most[l] } else { HUGE });
    let base: Lane = lanes!(|l| if most[l] < SCALE_MIN { 1.0 } else { base[l] });
    let inv: Lane = lanes!(|l| quotient(1.0, base[l]));
    let mut u = [[0f32; LANES]; BLOCK];
    let mut energy = [0f32; LANES];
    for j in 0..BLOCK {
        for l in 0..LANES {
            u[j][l] = canon(x[j][l] * inv[l]);
            energy[l] += u[j][l] * u[j][l];
        }
    }
    let inv_rms: Lane = lanes!(|l| quotient(1.0, (energy[l] * 0.03125).sqrt()));
    let (mut best, mut scale) = ([0f32; LANES], [0f32; LANES]);
    for magnitude in TQ3_1_TRIES {
        let k: Lane = lanes!(|l| inv_rms[l] * magnitude);
        // both signs at once; the squares' sums are integers below 2^24, exact in f32
        let (mut n, mut d) = ([[0f32; LANES]; 2], [[0f32; LANES]; 2]);
        for u in &u {
            for l in 0..LANES {
                let x = u[l] * k[l];
                let (plus, minus) = (tq3_1_level(x), tq3_1_level(-x));
                n[0][l] += plus * u[l];
                d[0][l] += plus * plus;
                n[1][l] += minus * u[l];
                d[1][l] += minus * minus;
            }
        }
        for sign in 0..2 {
            for l in 0..LANES {
                let s = quotient(n[sign][l], d[sign][l]);
                let gain = canon(n[sign][l] * s);
                let more = gain > best[l];
                best[l] = if more { gain } else { best[l] };
                scale[l] = if more { s } else { scale[l] };
            }
        }
    }
    let gamma: [u32; LANES] = lanes!(|l| narrow(base[l] * scale[l]));
    let gamma: [u32; LANES] = lanes!(|l| if most[l] < SCALE_MIN || gamma[l] & 0x7fff == 0 { 0 } else { gamma[l] });
    let id: Lane = lanes!(|l| if gamma[l] == 0 { 0.0 } else { quotient(1.0, widen(gamma[l])) });
    let mut words = [[0u32; LANES]; 3];
    for j in 0..BLOCK {
        for l in 0..LANES {
            let (index, below) = tq3_1_index(x[j][l] * id[l]);
            words[j / 16][l] |= index << (2 * (j % 16));
            words[2][l] |= u32::from(below) << j;
        }
    }
    for i in 0..3 {
        out.words[i] = lanes!(|l| if gamma[l] == 0 { 0 } else { words[i][l] });
    }
    out.scales = gamma;
}

// ---------------------------------------------------------------- rows

/// Where the words of a row go: word i of position `pos` of the nth of some heads at `base(n, pos) + i * stride`.
#[derive(Clone, Copy)]
struct Place<'a> {
    keys: bool,
    page: Page,
    places: Places<'a>,
    words: usize,
}

impl Place<'_> {
    /// Index in the page of a token that the page has.
    #[inline(always)]
    fn index(self, token: usize) -> usize {
        self.page.own(&self.places, token).expect("a row of the page")
    }

    #[inline(always)]
    fn base(self, head: usize, pos: usize) -> usize {
        let page_len = self.page.len as usize;
        if self.keys {
            (head * page_len / 32 + pos / 32) * self.words * 32 + pos % 32
        } else {
            (head * page_len + pos) * self.words
        }
    }
    #[inline(always)]
    fn stride(self) -> usize {
        if self.keys { 32 } else { 1 }
    }
}

/// Whether an element is not finite, or too large to be stored: by an addition that carries into the sign from 2^64 on.
fn bad(x: &[f32]) -> bool {
    const CARRY: u32 = (1 << 31) - CANON_MAX.to_bits();
    let mut any = [0u32; 32];
    let (full, rest) = x.as_chunks::<32>();
    for x in full {
        for l in 0..32 {
            any[l] |= (x[l].to_bits() & 0x7fff_ffff) + CARRY;
        }
    }
    for x in rest {
        any[0] |= (x.to_bits() & 0x7fff_ffff) + CARRY;
    }
    any.into_iter().fold(0, |all, any| all | any) >> 31 == 1
}

/// The rows of heads `first..first + n_heads`; `cache` is their part of the page. Every element is finite.
#[inline(always)]
fn write_heads<V: RowLanes>(
    v: V,
    t: CacheType,
    p: &CacheWriteParams,
    place: Place,
    (first, n_heads): (usize, usize),
    x: &[f32],
    cache: &mut [u32],
) {
    let (heads, hd) = (p.kv_heads as usize, p.head_dim as usize);
    let n_rows = p.n_tokens as usize * n_heads;
    let stride = place.stride();
    let blocks = hd / BLOCK;
    // so many rows at a time, whole rows
    let group = if matches!(t, CacheType::F32 | CacheType::F16) { 1 } else { (LANES / blocks).max(1) };
    let mut rotated = [0f32; HEAD_MAX];
    let mut lanes = [[0f32; LANES]; BLOCK];
    let mut coded = Coded { words: [[0; LANES]; BLOCK / 4], scales: [0; LANES] };
    for start in (0..n_rows).step_by(group) {
        let rows = group.min(n_rows - start);
        for r in 0..rows {
            let (token, head) = ((start + r) / n_heads, first + (start + r) % n_heads);
            let row = &mut rotated[r * hd..][..hd];
            row.copy_from_slice(&x[(token * heads + head) * hd..][..hd]);
            rotate(v, t, row);
        }
        let at = |r: usize| {
            let (token, head) = ((start + r) / n_heads, (start + r) % n_heads);
            place.base(head, place.index(token))
        };
        match t {
            CacheType::F32 => {
                let to = cache[at(0)..].iter_mut().step_by(stride);
                to.zip(&rotated[..hd]).for_each(|(w, x)| *w = x.to_bits());
                continue;
            }
            CacheType::F16 => {
                let mut halves = [0u32; HEAD_MAX];
                for (h, x) in halves.iter_mut().zip(&rotated[..hd]) {
                    *h = narrow(*x);
                }
                let (pairs, _) = halves[..hd].as_chunks::<2>();
                let to = cache[at(0)..].iter_mut().step_by(stride);
                to.zip(pairs).for_each(|(w, h)| *w = h[0] | h[1] << 16);
                continue;
            }
            _ => {}
        }
        // several pieces of one row alone
        for piece in (0..rows * blocks).step_by(LANES) {
            for l in 0..LANES.min(rows * blocks - piece) {
                for j in 0..BLOCK {
                    lanes[j][l] = rotated[(piece + l) * BLOCK + j];
                }
            }
            let words = encode(t, &lanes, &mut coded);
            for r in 0..rows {
                let to = &mut cache[at(r)..];
                let lane = |b: usize| r * blocks + b - piece;
                let of_row = piece..blocks.min(piece + LANES);
                for b in of_row.clone().step_by(2) {
                    let second = if b + 1 < blocks { coded.scales[lane(b + 1)] } else { 0 };
                    to[b / 2 * stride] = coded.scales[lane(b)] | second << 16;
                }
                for b in of_row {
                    for i in 0..words {
                        to[(blocks.div_ceil(2) + b * words + i) * stride] = coded.words[i][lane(b)];
                    }
                }
            }
        }
    }
}

/// Codes of blocks as a type of codes has them; returns the words of one.
#[inline(always)]
fn encode(t: CacheType, lanes: &[Lane; BLOCK], coded: &mut Coded) -> usize {
    match t.plain() {
        _ if t == CacheType::C8 => {
            c8(lanes, coded);
            BLOCK / 4
        }
        CacheType::Q8_0 => {
            q8_0(lanes, coded);
            BLOCK / 4
        }
        CacheType::Q4_0 => {
            q4_0(lanes, coded);
            BLOCK / 8
        }
        CacheType::TQ3_0 => {
            tq3_0(lanes, coded);
            3
        }
        _ => {
            tq3_1(lanes, coded);
            3
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn write_heads_avx2(
    t: CacheType,
    p: &CacheWriteParams,
    place: Place,
    heads: (usize, usize),
    x: &[f32],
    cache: &mut [u32],
) {
    // SAFETY: this function's own target features.
    write_heads(unsafe { Avx2::new() }, t, p, place, heads, x, cache);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn write_heads_avx512(
    t: CacheType,
    p: &CacheWriteParams,
    place: Place,
    heads: (usize, usize),
    x: &[f32],
    cache: &mut [u32],
) {
    // SAFETY: this function's own target features.
    write_heads(unsafe { Avx512::new() }, t, p, place, heads, x, cache);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn write_heads_neon(
    t: CacheType,
    p: &CacheWriteParams,
    place: Place,
    heads: (usize, usize),
    x: &[f32],
    cache: &mut [u32],
) {
    // SAFETY: this function's own target features.
    write_heads(unsafe { Neon::<false>::new() }, t, p, place, heads, x, cache);
}

/// The rows that the page has, a run of neighbours at a time.
fn write(
    level: Level,
    t: CacheType,
    p: &CacheWriteParams,
    places: Places,
    x: &[f32],
    beside: Option<&[f32]>,
    page: &mut [u32],
) {
    let (n, row) = (p.n_tokens as usize, (p.kv_heads * p.head_dim) as usize);
    assert!(x.len() >= n * row, "cache_write: {} elements, expected {}", x.len(), n * row);
    let beside_len = beside.map_or(n * row, <[f32]>::len);
    assert!(beside_len >= n * row, "cache_write: {beside_len} values beside the keys, expected {}", n * row);
    let mut run = p.page().run(&places, 0, n);
    while !run.is_empty() {
        let of = run.start * row..run.end * row;
        let p = CacheWriteParams { n_tokens: run.len() as u32, ..*p };
        write_run(level, t, &p, places.from(run.start), &x[of.clone()], beside.map(|v| &v[of]), page);
        run = p.page().run(&places, run.end, n);
    }
}

/// Rows that the page has.
fn write_run(
    level: Level,
    t: CacheType,
    p: &CacheWriteParams,
    places: Places,
    x: &[f32],
    beside: Option<&[f32]>,
    page: &mut [u32],
) {
    /// Elements below which waking another thread costs more than it brings.
    const SMALL: usize = 1 << 14;

    assert!(level.is_available(), "cache_write: this CPU does not have {}", level.name());
    let (heads, hd, page_len) = (p.kv_heads as usize, p.head_dim as usize, p.page_len as usize);
    let Some(words) = t.words(hd).filter(|_| hd <= HEAD_MAX) else {
        panic!("cache_write: {} cannot hold a head of {hd}", t.name())
    };
    let n = p.n_tokens as usize * heads * hd;
    let expected = heads * page_len * words;
    assert!(page.len() >= expected, "cache_write: a page of {} words, expected {expected}", page.len());
    // rows that are marked are rare, and written by the twin
    if bad(&x[..n]) || beside.is_some_and(|v| bad(&v[..n])) {
        return match beside {
            Some(v) => cache::cache_write_k(t, p, places, x, v, page),
            None => cache::cache_write_v(t, p, places, x, page),
        };
    }
    let place = Place { keys: beside.is_some(), page: p.page(), places, words };
    let run = |of: (usize, usize), cache: &mut [u32]| match level.vectors() {
        Level::Portable => write_heads(Portable, t, p, place, of, x, cache),
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { write_heads_avx2(t, p, place, of, x, cache) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { write_heads_avx512(t, p, place, of, x, cache) },
        // SAFETY: as above; it takes no dots, so both levels share it.
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::NeonDot => unsafe { write_heads_neon(t, p, place, of, x, cache) },
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Simd128 => write_heads(Simd128, t, p, place, of, x, cache),
        _ => unreachable!("only available levels come here"),
    };
    let least = if n < SMALL { heads } else { 1 };
    team::chunks_mut(&mut page[..expected], page_len * words, least, |first, cache| {
        run((first, cache.len() / (page_len * words)), cache);
    });
}

/// Keys into one page of the cache, with the bits of `ops::cache::cache_write_k` at every level; in parallel over heads
/// when there are many tokens. `x`, and `v`, the values beside it: `[token][kv_heads][head_dim]`.
///
/// Panics when a length does not fit or when this CPU does not have `level`.
pub fn cache_write_k(
    level: Level,
    t: CacheType,
    p: &CacheWriteParams,
    at: Places,
    x: &[f32],
    v: &[f32],
    cache: &mut [u32],
) {
    write(level, t, p, at, x, Some(v), cache);
}

/// Values into one page of the cache, as [`cache_write_k`].
pub fn cache_write_v(level: Level, t: CacheType, p: &CacheWriteParams, at: Places, x: &[f32], cache: &mut [u32]) {
    write(level, t, p, at, x, None, cache);
}

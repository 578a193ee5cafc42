//! The encoders of the types with codebooks: ggml's search for scales and rows, in its order of sums, so that blocks come out
//! byte for byte the same (`tests/data/README.md` says of which version).
//!
//! Weights become levels, the places of their magnitudes in the codebook's list of values. Few combinations of eight (IQ3:
//! four) levels are rows of the codebook, so that others are exchanged for a row near by: the rows at the smallest distances
//! are weighed against the weights themselves. While it searches, the encoder takes level l for the value 2l + 1, which is
//! nearly a decoder's (1, 3.125, 5.375 in IQ2); the type's `fudge` makes up for the difference.

use std::sync::OnceLock;

use super::grids::{GRID_1, GRID_2S, GRID_2XS, GRID_2XXS, GRID_3S, GRID_3XXS, Grid};
use super::{f32_to_f16, fit, nearest_f32, nearest_int};

/// What a block of 256 elements is put together from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parts {
    /// the scale of the scales, binary16
    pub d: u16,
    /// the stored scales of up to sixteen sub-blocks
    pub scales: [u8; 16],
    /// the row of the codebook of each eight (IQ3: four) elements
    pub rows: [u16; 64],
    /// a bit for each of eight elements; of IQ1 only bit 0, the shift
    pub signs: [u8; 32],
}

impl Parts {
    /// A block that decodes to zeros.
    const ZERO: Parts = Parts { d: 0, scales: [0; 16], rows: [0; 64], signs: [0; 32] };

    /// The word of four times seven signs and a scale above, of sub-block `j` of 32.
    pub fn signs_and_scale(&self, j: usize) -> u32 {
        let signs = (0..4).fold(0, |w, l| w | ((self.signs[4 * j + l] & 127) as u32) << (7 * l));
        signs | (self.scales[j] as u32) << 28
    }

    /// The scales, two to a byte.
    pub fn nibbles<const N: usize>(&self) -> [u8; N] {
        std::array::from_fn(|i| self.scales[2 * i] | self.scales[2 * i + 1] << 4)
    }
}

// ---------------------------------------------------------------- rows near by

/// A codebook of rows of `G` levels below `K`, and for every combination of levels the rows to choose from.
pub(super) struct Book<const G: usize, const K: usize> {
    /// of each combination where its rows begin in `near`; [`ON_GRID`] is set where it is a row itself
    start: Vec<u32>,
    near: Vec<u16>,
    /// the rows' levels
    levels: Vec<[u8; G]>,
    /// the rows' levels as 2l + 1
    odd: Vec<[f32; G]>,
}

const ON_GRID: u32 = 1 << 31;

impl<const G: usize, const K: usize> Book<G, K> {
    /// The rows near a combination are those at its `shells` smallest distances, in order of distance, then of number.
    fn new<const R: usize, const W: usize>(grid: &Grid<R, W>, shells: usize) -> Self {
        let bits = 16 / G;
        let mask = K.next_power_of_two() as u8 - 1;
        let levels: Vec<[u8; G]> =
            grid.codes.iter().map(|c| std::array::from_fn(|i| (c >> (bits * i)) as u8 & mask)).collect();
        let mut book = Book { start: Vec::new(), near: Vec::new(), odd: Vec::new(), levels };
        book.odd = book.levels.iter().map(|row| row.map(|l| (2 * l + 1) as f32)).collect();
        let mut distances = vec![0u8; R];
        for point in 0..K.pow(G as u32) {
            let mut rest = point;
            let point: [u8; G] = std::array::from_fn(|_| {
                let l = rest % K;
                rest /= K;
                l as u8
            });
            // at most 8 * 2^2 or 4 * 7^2
            for (d, row) in distances.iter_mut().zip(&book.levels) {
                *d = (0..G).map(|i| row[i].abs_diff(point[i])).map(|d| d * d).sum();
            }
            let mut taken = book.near.len() as u32;
            let mut shell = distances.iter().copied().min();
            if shell == Some(0) {
                taken |= ON_GRID;
            }
            book.start.push(taken);
            for _ in 0..if shell == Some(0) { 1 } else { shells } {
                let Some(d) = shell else { break };
                book.near.extend((0..R as u16).filter(|&row| distances[row as usize] == d));
                shell = distances.iter().copied().filter(|&e| e > d).min();
            }
        }
        book.start.push(book.near.len() as u32);
        book
    }

    /// The number of a combination of levels.
    #[inline(always)]
    fn point(levels: &[u8; G]) -> usize {
        (0..G).rev().fold(0, |p, i| p * K + levels[i] as usize)
    }

    /// The row for a combination of levels, the first of the least `cost` of those near by, and whether it is the
    /// combination itself.
    #[inline(always)]
    fn snap(&self, levels: &[u8; G], cost: impl Fn(usize) -> f32) -> (u16, bool) {
        let point = Self::point(levels);
        let (from, to) = (self.start[point], self.start[point + 1] & !ON_GRID);
        let near = &self.near[(from & !ON_GRID) as usize..to as usize];
        if from & ON_GRID != 0 {
            return (near[0], true);
        }
        let mut best = (f32::MAX, near[0]);
        for &row in near {
            let cost = cost(row as usize);
            if cost < best.0 {
                best = (cost, row);
            }
        }
        (best.1, false)
    }
}

macro_rules! books {
    ($($name:ident: $G:literal, $K:literal = $grid:ident, $shells:literal;)*) => {
        $(pub(super) fn $name() -> &'static Book<$G, $K> {
            static BOOK: OnceLock<Book<$G, $K>> = OnceLock::new();
            BOOK.get_or_init(|| Book::new(&$grid, $shells))
        })*
    };
}

books! {
    book_2xxs: 8, 3 = GRID_2XXS, 2;
    book_2xs: 8, 3 = GRID_2XS, 2;
    book_2s: 8, 3 = GRID_2S, 1;
    book_3xxs: 4, 8 = GRID_3XXS, 2;
    book_3s: 4, 8 = GRID_3S, 3;
    book_1: 8, 3 = GRID_1, 3;
}

// ---------------------------------------------------------------- weights

/// How much the error of each element counts: its importance times `sqrt(s2 + x^2)`, or without importances `plain(s2, x)`;
/// s2 is the mean square of the block, `times` so much.
pub(super) fn weights(
    x: &[f32; 256],
    importances: Option<&[f32; 256]>,
    times: f32,
    plain: impl Fn(f32, f32) -> f32,
) -> [f32; 256] {
    let s2 = times * fit::sum_of_squares(x) / 256.0;
    match importances {
        Some(q) => fit::weights(x, q, s2),
        None => std::array::from_fn(|i| plain(s2, x[i])),
    }
}

// ---------------------------------------------------------------- IQ2 and IQ3

/// How a type of magnitudes and signs searches.
pub(super) struct Search {
    /// inverse scales tried above and below that of the largest element
    pub tries: i32,
    /// from one to the next, in levels
    pub step: f32,
    /// whether the number of minus signs of eight elements is even
    pub even: bool,
    /// what the stored scale is multiplied by
    pub fudge: f32,
    /// a sub-block whose largest magnitude is below is zero
    pub floor: f32,
    /// where the search begins
    pub start: Start,
    /// which rows are chosen again for the scale that was found
    pub again: Again,
}

/// Where a search begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// the largest magnitude has the highest level
    Largest,
    /// the scale of [`fit::positive`]
    Fitted,
}

/// Which rows are chosen again for the scale that was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// all
    Always,
    /// those whose levels were no row themselves
    Off,
    /// all if the levels of one were no row themselves
    AllIfOff,
}

/// The rows of a sub-block at some scale.
#[derive(Clone, Copy)]
struct Choice {
    rows: [u16; 8],
    on_grid: [bool; 8],
}

/// Encodes a block of sub-blocks of `N` elements, whose errors count `w` each.
pub(super) fn search<const N: usize, const G: usize, const K: usize>(
    search: &Search,
    book: &Book<G, K>,
    x: &[f32; 256],
    w: &[f32; 256],
) -> Parts {
    let mut parts = Parts::ZERO;
    let mut scales = [0.0f32; 16];
    for (j, (x, w)) in x.as_chunks::<N>().0.iter().zip(w.as_chunks::<N>().0).enumerate() {
        let (magnitudes, mut signs) = apart(x, w, search.even);
        let Some((scale, rows)) = sub_block::<N, G, K>(search, book, &magnitudes, w) else { continue };
        if scale < 0.0 {
            signs.iter_mut().for_each(|s| *s = !*s);
        }
        scales[j] = scale.abs();
        parts.rows[j * N / G..(j + 1) * N / G].copy_from_slice(&rows[..N / G]);
        parts.signs[j * N / 8..(j + 1) * N / 8].copy_from_slice(&signs[..N / 8]);
    }
    let max = scales.iter().fold(0.0f32, |m, &s| if s > m { s } else { m });
    if max == 0.0 {
        // of squares too small for f32: as in the reference, rows and signs stay beside a scale of 0
        return parts;
    }
    let d = max / 31.0;
    let id = 1.0 / d;
    parts.d = f32_to_f16(d * search.fudge);
    for (field, s) in parts.scales.iter_mut().zip(&scales[..256 / N]) {
        *field = nearest_int(0.5 * (id * s - 1.0)).clamp(0, 15) as u8;
    }
    parts
}

/// Magnitudes and signs. Where signs must be even, the magnitude that counts least is negative.
fn apart<const N: usize>(x: &[f32; N], w: &[f32; N], even: bool) -> ([f32; N], [u8; 4]) {
    let mut magnitudes = x.map(|v| if v < 0.0 { -v } else { v });
    let mut signs = [0; 4];
    for (k, signs) in signs[..N / 8].iter_mut().enumerate() {
        *signs = (0..8).fold(0, |s, i| s | u8::from(x[8 * k + i] < 0.0) << i);
        if even && signs.count_ones() % 2 == 1 {
            let cost = |i: usize| w[8 * k + i] * x[8 * k + i] * x[8 * k + i];
            let least = (1..8).fold(0, |least, i| if cost(i) < cost(least) { i } else { least });
            magnitudes[8 * k + least] = -magnitudes[8 * k + least];
            *signs ^= 1 << least;
        }
    }
    (magnitudes, signs)
}

/// The scale and the rows of a sub-block; `None` if it is taken as zero.
#[inline(always)]
fn sub_block<const N: usize, const G: usize, const K: usize>(
    search: &Search,
    book: &Book<G, K>,
    x: &[f32; N],
    w: &[f32; N],
) -> Option<(f32, [u16; 8])> {
    let root = w.map(f32::sqrt);
    let max = x.iter().fold(x[0], |m, &v| if v > m { v } else { m });
    if max < search.floor || max == 0.0 {
        return None;
    }
    let highest = (2 * K - 1) as f32;
    let (mut scale, top) = match search.start {
        Start::Largest => (max / highest, max),
        Start::Fitted => {
            let (scale, _) = fit::positive(x, w, K as i32 + 1);
            (scale, scale * K as f32)
        }
    };
    if top <= 0.0 {
        return None;
    }
    let mut best = 0.0f32;
    let mut chosen: Option<Choice> = None;
    for is in -search.tries..=search.tries {
        let id = (highest + is as f32 * search.step) / top;
        let choice = choose::<N, G, K>(book, x, &root, id, 1.0 / id, None);
        let (qx, q2) = sums(book, &choice, x, w);
        if q2 > 0.0 && qx * qx > best * q2 {
            scale = qx / q2;
            best = scale * qx;
            chosen = Some(choice);
        }
    }
    // No try wins where all importances are 0 or squares too small for f32. The reference then has, but for IQ3_S, what the
    // sub-block before left behind.
    let off = chosen.is_none_or(|c| c.on_grid[..N / G].contains(&false));
    if (off || search.again == Again::Always) && scale > 0.0 {
        let keep = chosen.filter(|_| search.again == Again::Off);
        let choice = choose::<N, G, K>(book, x, &root, 1.0 / scale, scale, keep);
        let (qx, q2) = sums(book, &choice, x, w);
        if q2 > 0.0 {
            scale = qx / q2;
        }
        chosen = Some(choice);
    }
    chosen.map(|c| (scale, c.rows))
}

/// The rows for an inverse scale; `keep` has those that stay, being their levels.
#[inline(always)]
fn choose<const N: usize, const G: usize, const K: usize>(
    book: &Book<G, K>,
    x: &[f32; N],
    root: &[f32; N],
    id: f32,
    scale: f32,
    keep: Option<Choice>,
) -> Choice {
    let levels = x.map(|v| nearest_f32(0.5 * (id * v - 1.0)).clamp(0.0, (K - 1) as f32) as u8);
    let mut choice = Choice { rows: [0; 8], on_grid: [true; 8] };
    let groups = x.as_chunks::<G>().0.iter().zip(root.as_chunks::<G>().0);
    for (k, ((x, root), levels)) in groups.zip(levels.as_chunks::<G>().0).enumerate() {
        (choice.rows[k], choice.on_grid[k]) = match keep {
            Some(keep) if keep.on_grid[k] => (keep.rows[k], true),
            _ => book.snap(levels, |row| {
                let odd = &book.odd[row];
                (0..G).fold(0.0, |sum, i| {
                    let diff = scale * odd[i] - x[i];
                    sum + root[i] * diff * diff
                })
            }),
        };
    }
    choice
}

/// The sums of w * q * x and of w * q * q, q being the rows' values.
#[inline(always)]
fn sums<const N: usize, const G: usize, const K: usize>(
    book: &Book<G, K>,
    choice: &Choice,
    x: &[f32; N],
    w: &[f32; N],
) -> (f32, f32) {
    let (mut qx, mut q2) = (0.0f32, 0.0f32);
    for (k, (x, w)) in x.as_chunks::<G>().0.iter().zip(w.as_chunks::<G>().0).enumerate() {
        let odd = &book.odd[choice.rows[k] as usize];
        for i in 0..G {
            qx += w[i] * x[i] * odd[i];
            q2 += w[i] * odd[i] * odd[i];
        }
    }
    (qx, q2)
}

// ---------------------------------------------------------------- IQ1

/// The values of the levels without a shift mark and with it.
const SHIFTED: [[f32; 3]; 2] = [[-0.875, 0.125, 1.125], [-1.125, -0.125, 0.875]];

/// A sub-block of IQ1: its scale, the rows of its eights and whether each is shifted down.
struct Sub {
    scale: f32,
    rows: [u16; 4],
    minus: [bool; 4],
}

/// The elements' numbers in ascending order of their values, equal ones (zeros of both signs too) in their order, as a
/// stable sort leaves them.
fn ascending<const N: usize>(x: &[f32; N]) -> [u8; N] {
    let mut order: [u8; N] = std::array::from_fn(|i| i as u8);
    let key = |i: u8| x[i as usize] + 0.0;
    order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
    order
}

/// Encodes a block of IQ1_S.
pub(super) fn iq1_s(x: &[f32; 256], w: &[f32; 256]) -> Parts {
    let mut parts = Parts::ZERO;
    let mut scales = [0.0f32; 8];
    for (j, (x, w)) in x.as_chunks::<32>().0.iter().zip(w.as_chunks::<32>().0).enumerate() {
        let Some(sub) = iq1_sub_block::<32, 1>(x, w, 1e-12) else { continue };
        scales[j] = sub.scale;
        parts.rows[4 * j..4 * j + 4].copy_from_slice(&sub.rows);
        parts.signs[4 * j..4 * j + 4].copy_from_slice(&sub.minus.map(u8::from));
    }
    let Some(d) = iq1_fields(&scales, &mut parts.scales) else { return Parts::ZERO };
    parts.d = f32_to_f16(d * 1.125);
    parts
}

/// Encodes a block of IQ1_M.
pub(super) fn iq1_m(x: &[f32; 256], w: &[f32; 256]) -> Parts {
    let mut parts = Parts::ZERO;
    let mut scales = [0.0f32; 16];
    for (j, (x, w)) in x.as_chunks::<16>().0.iter().zip(w.as_chunks::<16>().0).enumerate() {
        let Some(sub) = iq1_sub_block::<16, 2>(x, w, 1e-7) else { continue };
        scales[j] = sub.scale;
        parts.rows[2 * j..2 * j + 2].copy_from_slice(&sub.rows[..2]);
        parts.signs[2 * j..2 * j + 2].copy_from_slice(&[u8::from(sub.minus[0]), u8::from(sub.minus[1])]);
    }
    let Some(mut d) = iq1_fields(&scales, &mut parts.scales) else { return Parts::ZERO };
    let book = book_1();
    let (mut sum_qx, mut sum_q2) = (0.0f32, 0.0f32);
    for (k, (x, w)) in x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0).enumerate() {
        let values = &SHIFTED[parts.signs[k] as usize];
        let scale = (2 * parts.scales[k / 2] + 1) as f32;
        for (i, &l) in book.levels[parts.rows[k] as usize].iter().enumerate() {
            let q = values[l as usize] * scale;
            sum_qx += w[i] * q * x[i];
            sum_q2 += w[i] * q * q;
        }
    }
    if sum_q2 > 0.0 {
        d = sum_qx / sum_q2;
    }
    parts.d = f32_to_f16(d * 1.1125);
    parts
}

/// Stores the scales as fields of 3 bits; their unit, `None` if all are zero.
fn iq1_fields(scales: &[f32], fields: &mut [u8; 16]) -> Option<f32> {
    let max = scales.iter().fold(0.0f32, |m, &s| if s > m { s } else { m });
    if max == 0.0 {
        return None;
    }
    let d = max / 15.0;
    let id = 1.0 / d;
    for (field, s) in fields.iter_mut().zip(scales) {
        *field = nearest_int(0.5 * (id * s - 1.0)).clamp(0, 7) as u8;
    }
    Some(d)
}

/// Sums of w * x and of w over the first so many of the sorted elements.
type Prefixes = [[f32; 2]; 33];

/// The sums of w * q * x and of w * q * q over three runs of `N` sorted elements, q being a value for each run; the second
/// and third run begin at `from`.
#[inline(always)]
fn of_runs<const N: usize>(sums: &Prefixes, q: &[f32; 3], from: (usize, usize)) -> (f32, f32) {
    let runs = |c: usize| [sums[from.0][c], sums[from.1][c] - sums[from.0][c], sums[N][c] - sums[from.1][c]];
    let ([a, b, c], [d, e, f]) = (runs(0), runs(1));
    (a * q[0] + b * q[1] + c * q[2], d * q[0] * q[0] + e * q[1] * q[1] + f * q[2] * q[2])
}

/// As [`of_runs`], as the reference does it for IQ1_M: the values being 1 apart, from the sum over all with the highest one
/// what is too much for the others is taken away.
#[inline(always)]
fn of_rests<const N: usize>(sums: &Prefixes, q: &[f32; 3], from: (usize, usize)) -> (f32, f32) {
    let ([x, w], [x1, w1], [x2, w2]) = (sums[N], sums[from.0], sums[from.1]);
    let (low, high) = (q[0] * q[0] - q[1] * q[1], q[1] * q[1] - q[2] * q[2]);
    (x * q[2] - (x1 + x2), w * q[2] * q[2] + low * w1 + high * w2)
}

/// The best split of the sorted elements into three levels for every choice of shifts, of which the sub-block has `P`, each
/// for `N / P` of its elements. `None` if it is taken as zero.
fn iq1_sub_block<const N: usize, const P: usize>(x: &[f32; N], w: &[f32; N], floor: f32) -> Option<Sub> {
    let max = x.iter().fold(x[0].abs(), |m, v| if v.abs() > m { v.abs() } else { m });
    if max < floor {
        return None;
    }
    let order = ascending(x);
    let mut sums: [Prefixes; P] = [[[0.0; 2]; 33]; P];
    for (n, &i) in order.iter().enumerate() {
        let i = i as usize;
        for (p, sums) in sums.iter_mut().enumerate() {
            let [sum_x, sum_w] = sums[n];
            sums[n + 1] = if p == i / (N / P) { [sum_x + w[i] * x[i], sum_w + w[i]] } else { [sum_x, sum_w] };
        }
    }
    let mut best: Option<(f32, (usize, usize), usize)> = None;
    let mut score = f32::MIN;
    for first in 0..=N {
        for second in first..=N {
            let of = |p: usize, shift: usize| match P {
                1 => of_runs::<N>(&sums[p], &SHIFTED[shift], (first, second)),
                _ => of_rests::<N>(&sums[p], &SHIFTED[shift], (first, second)),
            };
            // the shift of each part, and both together
            let parts: [[(f32, f32); 2]; P] = std::array::from_fn(|p| [of(p, 0), of(p, 1)]);
            for shifts in 0..1 << P {
                let (mut qx, mut q2) = parts[0][shifts >> (P - 1)];
                for (p, part) in parts.iter().enumerate().skip(1) {
                    let (x, w) = part[shifts >> (P - 1 - p) & 1];
                    (qx, q2) = (qx + x, q2 + w);
                }
                if q2 > 0.0 && qx * qx > score * q2 {
                    let scale = qx / q2;
                    score = scale * qx;
                    best = Some((scale, (first, second), shifts));
                }
            }
        }
    }
    let (mut scale, (first, second), mut shifts) = best?;
    let mut levels = [0u8; N];
    for (n, &i) in order.iter().enumerate() {
        levels[i as usize] = u8::from(n >= first) + u8::from(n >= second);
    }
    if scale < 0.0 {
        scale = -scale;
        levels = levels.map(|l| 2 - l);
        shifts = (1 << P) - 1 - shifts;
    }
    let minus: [bool; 4] = std::array::from_fn(|k| k < N / 8 && shifts >> (P - 1 - 8 * k / (N / P)) & 1 == 1);
    Some(iq1_rows(x, w, &levels, scale, minus))
}

/// The rows for these levels, and the scale for those rows where they are not the levels.
fn iq1_rows<const N: usize>(x: &[f32; N], w: &[f32; N], levels: &[u8; N], scale: f32, minus: [bool; 4]) -> Sub {
    let book = book_1();
    let mut sub = Sub { scale, rows: [0; 4], minus };
    let mut all_on_grid = true;
    let (mut sum_qx, mut sum_q2) = (0.0f32, 0.0f32);
    let eights = x.as_chunks::<8>().0.iter().zip(w.as_chunks::<8>().0);
    for (k, ((x, w), levels)) in eights.zip(levels.as_chunks::<8>().0).enumerate() {
        let values = &SHIFTED[usize::from(minus[k])];
        let (row, on_grid) = book.snap(levels, |row| {
            let levels = &book.levels[row];
            (0..8).fold(0.0, |sum, i| {
                let diff = scale * values[levels[i] as usize] - x[i];
                sum + w[i] * diff * diff
            })
        });
        all_on_grid &= on_grid;
        sub.rows[k] = row;
        for (i, &l) in book.levels[row as usize].iter().enumerate() {
            let q = values[l as usize];
            sum_qx += w[i] * q * x[i];
            sum_q2 += w[i] * q * q;
        }
    }
    if !all_on_grid && sum_qx > 0.0 && sum_q2 > 0.0 {
        sub.scale = sum_qx / sum_q2;
    }
    sub
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that a combination of levels is exchanged for, by the definition alone.
    fn near<const G: usize>(rows: &[[u8; G]], point: [u8; G], shells: usize) -> Vec<u16> {
        let distance = |row: &[u8; G]| (0..G).map(|i| (i32::from(row[i]) - i32::from(point[i])).pow(2)).sum::<i32>();
        let mut all: Vec<(i32, u16)> = rows.iter().zip(0..).map(|(row, i)| (distance(row), i)).collect();
        all.sort();
        let mut distances: Vec<i32> = all.iter().map(|a| a.0).collect();
        distances.dedup();
        let last = if distances[0] == 0 { 0 } else { distances[shells - 1] };
        all.iter().take_while(|a| a.0 <= last).map(|a| a.1).collect()
    }

    fn check<const G: usize, const K: usize>(book: &Book<G, K>, shells: usize) {
        assert_eq!(book.start.len(), K.pow(G as u32) + 1);
        let mut on_grid = 0;
        for case in 0..book.start.len() - 1 {
            on_grid += usize::from(book.start[case] & ON_GRID != 0);
            if case % 23 != 0 {
                continue;
            }
            let point = std::array::from_fn(|i| (case / K.pow(i as u32) % K) as u8);
            assert_eq!(Book::<G, K>::point(&point), case);
            let [from, to] = [case, case + 1].map(|i| (book.start[i] & !ON_GRID) as usize);
            assert_eq!(book.near[from..to], near(&book.levels, point, shells), "{point:?}");
            let (row, exact) = book.snap(&point, |row| if row as u16 == book.near[to - 1] { 1.0 } else { 2.0 });
            assert_eq!((row, exact), (book.near[to - 1], book.levels.contains(&point)), "{point:?}");
        }
        assert_eq!(on_grid, book.levels.len(), "every row is a combination");
    }

    #[test]
    fn rows_near_by_are_those_at_the_smallest_distances() {
        check(book_2xxs(), 2);
        check(book_2xs(), 2);
        check(book_2s(), 1);
        check(book_3xxs(), 2);
        check(book_3s(), 3);
        check(book_1(), 3);
    }

    #[test]
    fn the_first_of_equal_costs_is_taken_and_sorting_keeps_the_order_of_equals() {
        let book = book_3s();
        let off = (0..book.start.len() - 1).find(|&i| book.start[i] & ON_GRID == 0).unwrap();
        let point = std::array::from_fn(|i| (off / 8usize.pow(i as u32) % 8) as u8);
        assert_eq!(book.snap(&point, |_| 1.0).0, book.near[book.start[off] as usize]);
        assert_eq!(book.snap(&point, |_| f32::NAN).0, book.near[book.start[off] as usize]);
        assert_eq!(ascending(&[0.0, -0.0, -1.0, 0.0, f32::NAN, -1.0]), [2, 5, 0, 1, 3, 4]);
    }
}

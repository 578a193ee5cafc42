//! Matrices with quantised weights that meet many tokens at once, at the level that has panels (`kernels::panel`): what is
//! laid out for whom, and how the work is dealt. Must not know a weight format.

use super::avx512::Avx512;
use super::kernels::ActBlock;
use super::kernels::panel::{LAID, Panelled, Sums, TILE, lay, row_block};
use super::lanes::{AHEAD, Word};
use super::{Out, team};
use std::cell::Cell;
use std::ops::Range;

/// Tokens from which on a row block is unpacked first.
pub(super) const TOKENS: usize = 4;

/// Activations of one task: they meet several row blocks, and stay in the second-level cache.
const NEAR: usize = 640 << 10;

/// Tokens of one task at most, for whose sums there is room.
const MOST: usize = 256;

/// Row blocks of a task at most.
const ROWS: usize = 8;

/// A matrix and its activations of one digit.
pub(super) struct Job<'a> {
    pub(super) w: &'a [Word],
    /// `[token][group]`
    pub(super) act: &'a [ActBlock],
    pub(super) groups: usize,
    pub(super) seg_groups: usize,
    pub(super) n_tokens: usize,
    pub(super) row_blocks: usize,
}

/// Calls `f` with `n` tiles' words of this thread's own, whatever they hold.
fn with_laid<R>(n: usize, f: impl FnOnce(&mut [[u32; TILE]]) -> R) -> R {
    thread_local! {
        static LAID_OUT: Cell<Vec<[u32; TILE]>> = const { Cell::new(Vec::new()) };
    }
    let mut words = LAID_OUT.take();
    if words.len() < n {
        words.resize(n, [0; TILE]);
    }
    let result = f(&mut words[..n]);
    LAID_OUT.set(words);
    result
}

impl Job<'_> {
    /// Every row by every token, on the current team.
    ///
    /// # Safety
    ///
    /// This CPU has AVX-512 F, BW, VL, DQ and VNNI. All rows of all tokens lie within what `out` writes, tokens not
    /// overlapping, and nobody else accesses them.
    pub(super) unsafe fn run<F: Panelled>(&self, out: &Out) {
        let (tiles, tile_words) = (self.n_tokens.div_ceil(TILE), self.groups * LAID);
        with_laid(tiles * tile_words, |laid| {
            team::chunks_mut(laid, tile_words, 1, |first, laid| {
                let act = &self.act[first * TILE * self.groups..];
                // SAFETY: the caller's promise.
                unsafe { lay_avx512::<F>(act, self.groups, laid) }
            });
            let tiles_near = (NEAR / (tile_words * size_of::<[u32; TILE]>())).clamp(1, MOST / TILE);
            let pieces = tiles.div_ceil(tiles_near);
            let piece = tiles.div_ceil(pieces);
            let rows = (self.row_blocks / (4 * team::threads())).clamp(1, ROWS);
            team::for_each(self.row_blocks.div_ceil(rows) * pieces, |task| {
                let (i, j) = (task / pieces, task % pieces);
                let rows = i * rows..self.row_blocks.min((i + 1) * rows);
                let tiles = j * piece..tiles.min((j + 1) * piece);
                let act = &laid[tiles.start * tile_words..tiles.end * tile_words];
                let tokens = tiles.start * TILE..self.n_tokens.min(tiles.end * TILE);
                // SAFETY: the caller's promise; every row block meets every token in one task.
                unsafe { self.rows_avx512::<F>(rows, tokens, act, out) }
            });
        });
    }

    /// Some row blocks by some tokens, whose activations are `act`.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for these rows and tokens.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn rows_avx512<F: Panelled>(
        &self,
        rows: Range<usize>,
        tokens: Range<usize>,
        act: &[[u32; TILE]],
        out: &Out,
    ) {
        // SAFETY: this function's own target features.
        let v = unsafe { Avx512::<true>::asking(AHEAD) };
        let per_row = self.groups.div_ceil(F::GROUPS) * F::WORDS;
        let mut sums = [Sums::ZERO; MOST];
        let sums = &mut sums[..tokens.len().next_multiple_of(TILE)];
        for b in rows {
            let w = &self.w[b * per_row..][..per_row];
            row_block::<_, F, 2>(v, w, act, (self.groups, self.seg_groups), sums);
            for (token, sums) in tokens.clone().zip(&*sums) {
                // SAFETY: the caller's promise.
                unsafe { out.put(token, b, &sums.total) }
            }
        }
    }
}

/// [`lay`] of tiles one after the other.
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn lay_avx512<F: Panelled>(act: &[ActBlock], groups: usize, out: &mut [[u32; TILE]]) {
    for (tile, out) in out.chunks_exact_mut(groups * LAID).enumerate() {
        let act = &act[(tile * TILE * groups).min(act.len())..];
        let act = &act[..act.len().min(TILE * groups)];
        match F::ABOVE {
            true => lay::<true>(act, groups, out),
            false => lay::<false>(act, groups, out),
        }
    }
}

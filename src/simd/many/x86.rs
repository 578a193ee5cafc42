//! Panels by dots of four bytes, and by tiles.

use super::{Job, MOST, NEAR, with};
use crate::simd::amx::Tiles;
use crate::simd::avx2::Avx2;
use crate::simd::avx512::Avx512;
use crate::simd::avxvnni::AvxVnni;
use crate::simd::kernels::ActBlock;
use crate::simd::kernels::dots::{LAID, Sums, TILE, lay, row_block, run};
use crate::simd::kernels::panel::{By, Panelled};
use crate::simd::kernels::tiles::{self, Laid, Segment, Total};
use crate::simd::lanes::{AHEAD, Dots};
use crate::simd::{Level, Out, team};
use std::cell::Cell;
use std::ops::Range;

/// Tokens from which on tiles are used, where the level has them: those of one tile. Fewer fill it in part, and are no
/// quicker.
const TILED: usize = tiles::TOKENS;

/// As [`NEAR`] and [`MOST`] with tiles, whose CPUs have larger caches, and which leave less time to unpack in.
const NEAR_TILED: usize = 1536 << 10;
const MOST_TILED: usize = 512;

thread_local! {
    static LAID_OUT: Cell<Vec<[u32; TILE]>> = const { Cell::new(Vec::new()) };
    static LAID_FOR_TILES: Cell<Vec<Laid>> = const { Cell::new(Vec::new()) };
}

impl Job<'_> {
    /// Every row by every token, on the current team, where the level is quicker so with the type. Returns whether it
    /// was.
    ///
    /// # Safety
    ///
    /// This CPU has the level. All rows of all tokens lie within what `out` writes, tokens not
    /// overlapping, and nobody else accesses them.
    pub(in super::super) unsafe fn run<F: Panelled>(&self, out: &Out) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match self.level {
                Level::Amx if self.n_tokens >= TILED => self.by_tiles::<F>(out),
                Level::Avx2 if const { run::<F>() > 1 } => self.by_dots::<F>(out),
                Level::AvxVnni | Level::Avx512 | Level::Amx => self.by_dots::<F>(out),
                _ => return false,
            }
        }
        true
    }

    /// [`run`](Job::run) with panels that meet dots.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn by_dots<F: Panelled>(&self, out: &Out) {
        let (tiles, tile_words) = (self.n_tokens.div_ceil(TILE), self.groups * LAID);
        LAID_OUT.with(|of| {
            with(of, [0; TILE], tiles * tile_words, |laid| {
                team::chunks_mut(laid, tile_words, 1, |first, laid| {
                    let act = &self.act[first * TILE * self.groups..];
                    // SAFETY: the caller's promise.
                    unsafe {
                        match self.level {
                            Level::Avx2 | Level::AvxVnni => lay_avx2::<F>(act, self.groups, laid),
                            _ => lay_avx512::<F>(act, self.groups, laid),
                        }
                    }
                });
                let near = NEAR / (tile_words * size_of::<[u32; TILE]>());
                self.deal((tiles, near.clamp(1, MOST / TILE)), |rows, tiles| {
                    let act = &laid[tiles.start * tile_words..tiles.end * tile_words];
                    let tokens = tiles.start * TILE..self.n_tokens.min(tiles.end * TILE);
                    // SAFETY: the caller's promise; every row block meets every token in one task.
                    unsafe {
                        match self.level {
                            Level::Avx2 => self.rows_avx2::<F>(rows, tokens, act, out),
                            Level::AvxVnni => self.rows_avxvnni::<F>(rows, tokens, act, out),
                            _ => self.rows_avx512::<F>(rows, tokens, act, out),
                        }
                    }
                });
            });
        });
    }

    /// [`run`](Job::run) with tiles of bytes.
    ///
    /// # Safety
    ///
    /// As there, and this CPU has them.
    unsafe fn by_tiles<F: Panelled>(&self, out: &Out) {
        let (n, groups) = (self.n_tokens.div_ceil(tiles::TOKENS), self.groups);
        LAID_FOR_TILES.with(|of| {
            with(of, Laid::ZERO, n * groups, |laid| {
                team::chunks_mut(laid, groups, 1, |first, laid| {
                    for (i, laid) in laid.chunks_exact_mut(groups).enumerate() {
                        let act = &self.act[(first + i) * tiles::TOKENS * groups..];
                        tiles::lay(&act[..act.len().min(tiles::TOKENS * groups)], groups, laid);
                    }
                });
                let near = NEAR_TILED / (groups * size_of::<Laid>());
                self.deal((n, near.clamp(1, MOST_TILED / tiles::TOKENS)), |rows, these| {
                    let act = &laid[these.start * groups..these.end * groups];
                    let tokens = these.start * tiles::TOKENS..self.n_tokens.min(these.end * tiles::TOKENS);
                    // SAFETY: the caller's promise; every row block meets every token in one task.
                    unsafe { self.rows_tiled::<F>(rows, tokens, act, out) }
                });
            });
        });
    }

    /// [`Job::rows`] with AVX-512.
    ///
    /// # Safety
    ///
    /// As there.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn rows_avx512<F: Panelled>(
        &self,
        rows: Range<usize>,
        tokens: Range<usize>,
        act: &[[u32; TILE]],
        out: &Out,
    ) {
        // SAFETY: this function's own target features, and the caller's promise.
        unsafe { self.rows::<_, F, 2, 2>(Avx512::<true>::asking(AHEAD), rows, tokens, act, out) }
    }

    /// [`Job::rows`] with AVX2.
    ///
    /// # Safety
    ///
    /// As there.
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn rows_avx2<F: Panelled>(&self, rows: Range<usize>, tokens: Range<usize>, act: &[[u32; TILE]], out: &Out) {
        if const { run::<F>() > 0 } {
            // SAFETY: this function's own target features, and the caller's promise.
            unsafe { self.rows::<_, F, 1, 4>(Avx2::<true>::asking(AHEAD), rows, tokens, act, out) }
        }
    }

    /// [`Job::rows`] with AVX-VNNI.
    ///
    /// # Safety
    ///
    /// As there.
    #[target_feature(enable = "avx2,f16c,avxvnni")]
    unsafe fn rows_avxvnni<F: Panelled>(
        &self,
        rows: Range<usize>,
        tokens: Range<usize>,
        act: &[[u32; TILE]],
        out: &Out,
    ) {
        // SAFETY: this function's own target features, and the caller's promise.
        unsafe {
            let v = AvxVnni::<true>::asking(AHEAD);
            // a broadcast activation meets 16 rows, which leaves no register for sums of scaled dots but for those of
            // whole groups
            match F::BY {
                By::Scales(_) => self.rows::<_, F, 1, 4>(v, rows, tokens, act, out),
                _ => self.rows::<_, F, 2, 4>(v, rows, tokens, act, out),
            }
        }
    }

    /// Some row blocks by some tokens, whose activations are `act`.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for these rows and tokens.
    #[inline(always)]
    unsafe fn rows<V: Dots, F: Panelled, const P: usize, const ALL: usize>(
        &self,
        v: V,
        rows: Range<usize>,
        tokens: Range<usize>,
        act: &[[u32; TILE]],
        out: &Out,
    ) {
        let per_row = self.groups.div_ceil(F::GROUPS) * F::WORDS;
        let mut sums = [Sums::ZERO; MOST];
        let sums = &mut sums[..tokens.len().next_multiple_of(TILE)];
        for b in rows {
            let w = &self.w[b * per_row..][..per_row];
            row_block::<_, F, P, ALL>(v, w, act, (self.groups, self.seg_groups), sums);
            for (token, sums) in tokens.clone().zip(&*sums) {
                // SAFETY: the caller's promise.
                unsafe { out.put(token, b, &sums.total) }
            }
        }
    }
}

impl Job<'_> {
    /// Some row blocks by some tokens, whose activations are `act`.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for these rows and tokens.
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn rows_tiled<F: Panelled>(&self, rows: Range<usize>, tokens: Range<usize>, act: &[Laid], out: &Out) {
        // SAFETY: this function's own target features.
        let v = unsafe { Avx512::<true>::asking(AHEAD) };
        // SAFETY: the caller's promise; nothing below uses tiles of its own.
        let in_use = unsafe { Tiles::new(&const { tiles::shapes(F::BY) }) };
        let per_row = self.groups.div_ceil(F::GROUPS) * F::WORDS;
        let mut segments = [Segment::ZERO; MOST_TILED / tiles::TOKENS];
        let mut totals = [Total::ZERO; MOST_TILED];
        let segments = &mut segments[..tokens.len().div_ceil(tiles::TOKENS)];
        let mut sums = tiles::Sums { to: (std::ptr::null(), 0), segments, totals: &mut totals[..tokens.len()] };
        for b in rows {
            sums.to = out.line(tokens.start, b);
            let w = &self.w[b * per_row..][..per_row];
            // SAFETY: the shapes of this type were taken.
            unsafe { tiles::row_block::<F>((v, &in_use), w, act, (self.groups, self.seg_groups), &mut sums) };
            for (token, total) in tokens.clone().zip(&*sums.totals) {
                // SAFETY: the caller's promise.
                unsafe { out.put(token, b, &total.0) }
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn lay_avx2<F: Panelled>(act: &[ActBlock], groups: usize, out: &mut [[u32; TILE]]) {
    lay_tiles::<F>(act, groups, out);
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn lay_avx512<F: Panelled>(act: &[ActBlock], groups: usize, out: &mut [[u32; TILE]]) {
    lay_tiles::<F>(act, groups, out);
}

/// [`lay`] of tiles one after the other.
#[inline(always)]
fn lay_tiles<F: Panelled>(act: &[ActBlock], groups: usize, out: &mut [[u32; TILE]]) {
    for (tile, out) in out.chunks_exact_mut(groups * LAID).enumerate() {
        let act = &act[(tile * TILE * groups).min(act.len())..];
        let act = &act[..act.len().min(TILE * groups)];
        match F::ABOVE {
            true => lay::<true>(act, groups, out),
            false => lay::<false>(act, groups, out),
        }
    }
}

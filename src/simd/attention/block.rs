//! Blocks of rows that share a key-value head, where a level has them: how large, and which of the levels' functions takes them.

mod lanes;
mod walk;

use super::{BLOCK, LARGE, Page, Row, TILE, USUAL};
use crate::ops::attention::{AttentionParams, HEAD_MAX};
use crate::simd::{Level, team};

#[cfg(target_arch = "aarch64")]
use crate::simd::neon::Neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::simd::wasm::Simd128;
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2::Avx2, avx512::Avx512};

/// Rows of a block at most.
pub(super) const ROWS: usize = 16 * TILE;

/// Tiles of a block, of heads of `head_dim` elements at most: what is kept of them stays in the second-level cache.
const fn tiles(head_dim: usize) -> usize {
    match head_dim {
        ..=128 => ROWS / TILE,
        129..=256 => ROWS / TILE / 2,
        _ => ROWS / TILE / 4,
    }
}

/// Rows of such a block.
fn rows_of(head_dim: usize) -> usize {
    tiles(head_dim) * TILE
}

/// Whether level and heads have blocks.
fn has(level: Level, p: &AttentionParams) -> bool {
    let hd = p.head_dim as usize;
    level != Level::Portable && hd <= HEAD_MAX && hd.is_multiple_of(BLOCK)
}

/// How many rows of a key-value head, of which there are `per_head`, a task takes where it takes blocks: as many as leave every
/// thread some. None where there are no blocks, or too few rows.
pub(super) fn size(level: Level, p: &AttentionParams, per_head: usize) -> Option<usize> {
    let mut size = rows_of(p.head_dim as usize);
    while size > 2 * TILE && !enough(p, per_head, size) {
        size /= 2;
    }
    (has(level, p) && enough(p, per_head, size)).then_some(size)
}

/// Whether tasks of `size` rows leave every thread some.
fn enough(p: &AttentionParams, per_head: usize, size: usize) -> bool {
    p.kv_heads as usize * (per_head / size) >= 4 * team::threads()
}

/// Takes what rows make blocks of two tiles or more, where there are such; the others.
pub(super) fn run<'a, 'b>(level: Level, page: Page, rows: &'a mut [Row<'b>]) -> &'a mut [Row<'b>] {
    let whole = rows.len() / TILE * TILE;
    let takes = whole > TILE && has(level, page.p);
    let (blocks, rest) = rows.split_at_mut(if takes { whole } else { 0 });
    let hd = page.p.head_dim as usize;
    for rows in blocks.chunks_mut(rows_of(hd)) {
        match hd {
            ..=64 => run_block::<2, { tiles(64) }>(level, page, rows),
            65..=128 => run_block::<4, { tiles(128) }>(level, page, rows),
            129..=256 => run_block::<USUAL, { tiles(256) }>(level, page, rows),
            _ => run_block::<LARGE, { tiles(HEAD_MAX) }>(level, page, rows),
        }
    }
    rest
}

/// A block, at its level.
fn run_block<const B: usize, const TILES: usize>(level: Level, page: Page, rows: &mut [Row]) {
    match level.vectors() {
        // SAFETY: the caller checked that the level is available.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { block_avx2::<B, TILES>(page, rows) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { block_avx512::<B, TILES>(page, rows) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { block_neon::<B, TILES>(page, rows) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => unsafe { block_neon_dot::<B, TILES>(page, rows) },
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Simd128 => walk::block::<_, B, TILES, 4, 2>(Simd128, page, rows),
        _ => unreachable!("only levels with blocks come here"),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn block_avx512<const B: usize, const TILES: usize>(page: Page, rows: &mut [Row]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Avx512::new() };
    // of one vector, a query's element or a weight is an operand in memory of the one multiplication that it meets; of two it
    // would be copied to all lanes of a register first, which takes Zen 4 as long as an addition does
    walk::block::<_, B, TILES, 8, 1>(v, page, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn block_avx2<const B: usize, const TILES: usize>(page: Page, rows: &mut [Row]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Avx2::new() };
    walk::block::<_, B, TILES, 4, 2>(v, page, rows);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn block_neon<const B: usize, const TILES: usize>(page: Page, rows: &mut [Row]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Neon::<false>::new() };
    walk::block::<_, B, TILES, 4, 4>(v, page, rows);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn block_neon_dot<const B: usize, const TILES: usize>(page: Page, rows: &mut [Row]) {
    // SAFETY: this function's own target features.
    let v = unsafe { Neon::<true>::new() };
    walk::block::<_, B, TILES, 4, 4>(v, page, rows);
}

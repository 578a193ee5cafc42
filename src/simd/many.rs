//! Matrices with quantised weights that meet many tokens at once, at the levels that have panels (`kernels::panel`):
//! how the work is dealt, and by architecture what is laid out for whom. Must not know a weight format.

use super::kernels::ActBlock;
use super::lanes::Word;
use super::{Level, team};
use std::cell::Cell;
use std::ops::Range;

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Activations of one task: they meet several row blocks, and stay in the second-level cache.
const NEAR: usize = 640 << 10;

/// Tokens of one task at most, for whose sums there is room.
const MOST: usize = 256;

/// Row blocks of a task at most.
const ROWS: usize = 8;

/// A matrix and its activations of one digit.
pub(super) struct Job<'a> {
    pub(super) level: Level,
    pub(super) w: &'a [Word],
    /// `[token][group]`
    pub(super) act: &'a [ActBlock],
    pub(super) groups: usize,
    pub(super) seg_groups: usize,
    pub(super) n_tokens: usize,
    pub(super) row_blocks: usize,
}

/// Calls `f` with `n` of a thread's own, whatever they hold.
fn with<T: Copy, R>(of: &Cell<Vec<T>>, zero: T, n: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    let mut all = of.take();
    if all.len() < n {
        all.resize(n, zero);
    }
    let result = f(&mut all[..n]);
    of.set(all);
    result
}

impl Job<'_> {
    /// Calls `f` with some row blocks and some of `tiles` tiles of tokens, at most `near`, until all have met.
    fn deal(&self, (tiles, near): (usize, usize), f: impl Fn(Range<usize>, Range<usize>) + Sync) {
        let pieces = tiles.div_ceil(near);
        let piece = tiles.div_ceil(pieces);
        let rows = (self.row_blocks / (4 * team::threads())).clamp(1, ROWS);
        team::for_each(self.row_blocks.div_ceil(rows) * pieces, |task| {
            let (i, j) = (task / pieces, task % pieces);
            f(i * rows..self.row_blocks.min((i + 1) * rows), j * piece..tiles.min((j + 1) * piece));
        });
    }
}

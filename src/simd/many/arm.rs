//! Panels by products of pairs.

use super::{Job, MOST, NEAR, with};
use crate::simd::i8mm::I8mm;
use crate::simd::kernels::pairs::{Laid, PAIR, Sums, lay, row_block};
use crate::simd::kernels::panel::Panelled;
use crate::simd::{Level, Out, team};
use std::cell::Cell;
use std::ops::Range;

thread_local! {
    static LAID_OUT: Cell<Vec<Laid>> = const { Cell::new(Vec::new()) };
}

impl Job<'_> {
    /// Every row by every token, on the current team, where the level has products of pairs. Returns whether it has.
    ///
    /// # Safety
    ///
    /// This CPU has the level. All rows of all tokens lie within what `out` writes, tokens not overlapping, and nobody
    /// else accesses them.
    pub(in super::super) unsafe fn run<F: Panelled>(&self, out: &Out) -> bool {
        if self.level != Level::NeonI8mm {
            return false;
        }
        let (pairs, groups) = (self.n_tokens.div_ceil(PAIR), self.groups);
        LAID_OUT.with(|of| {
            with(of, Laid::ZERO, pairs * groups, |laid| {
                team::chunks_mut(laid, groups, 1, |first, laid| {
                    for (i, laid) in laid.chunks_exact_mut(groups).enumerate() {
                        let act = &self.act[(first + i) * PAIR * groups..];
                        lay(&act[..act.len().min(PAIR * groups)], groups, laid);
                    }
                });
                let near = NEAR / (groups * size_of::<Laid>());
                self.deal((pairs, near.clamp(1, MOST / PAIR)), |rows, these| {
                    let act = &laid[these.start * groups..these.end * groups];
                    let tokens = these.start * PAIR..self.n_tokens.min(these.end * PAIR);
                    // SAFETY: the caller's promise; every row block meets every token in one task.
                    unsafe { self.rows::<F>(rows, tokens, act, out) }
                });
            });
        });
        true
    }

    /// Some row blocks by some tokens, whose activations are `act`.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for these rows and tokens; and this CPU has the level.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    unsafe fn rows<F: Panelled>(&self, rows: Range<usize>, tokens: Range<usize>, act: &[Laid], out: &Out) {
        // SAFETY: this function's own target features.
        let v = unsafe { I8mm::new() };
        let per_row = self.groups.div_ceil(F::GROUPS) * F::WORDS;
        let mut sums = [Sums::ZERO; MOST / PAIR];
        let sums = &mut sums[..tokens.len().div_ceil(PAIR)];
        for b in rows {
            let w = &self.w[b * per_row..][..per_row];
            row_block::<F>(v, w, act, (self.groups, self.seg_groups), sums);
            for (i, token) in tokens.clone().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { out.put(token, b, &sums[i / PAIR].of(i % PAIR)) }
            }
        }
    }
}

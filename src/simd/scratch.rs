//! Floats that a thread keeps from one task to the next, so that no token takes memory for them.

use std::cell::Cell;

/// Floats that a worker has from its start: a row of any model there is. On a busy machine one may meet its first row many
/// tokens after the others have met theirs, and would take them then.
pub(super) const WORKER: usize = 32 << 10;

thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with `n` floats of this thread's own, whatever they hold. A call within `f` gets others.
pub(super) fn with_scratch<R>(n: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut values = SCRATCH.take();
    if values.len() < n {
        values.resize(n, 0.0);
    }
    let result = f(&mut values[..n]);
    SCRATCH.set(values);
    result
}

/// Takes them before they are needed.
pub(super) fn reserve(n: usize) {
    with_scratch(n, |_| ());
}

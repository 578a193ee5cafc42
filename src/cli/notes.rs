//! What the command line says beside its results: lines of talk on stderr, above the bars of what is under way.

use indicatif::{MultiProgress, ProgressDrawTarget};
use std::io::{IsTerminal, Write};
use std::sync::LazyLock;

/// Every bar and status line; hidden when stderr is not a terminal or NO_COLOR is set.
pub static BARS: LazyLock<MultiProgress> = LazyLock::new(|| {
    let shown = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    MultiProgress::with_draw_target(target)
});

/// A line of talk on stderr, without control characters and not too long; a stderr that nobody reads is no reason to stop.
macro_rules! note {
    ($($t:tt)*) => { crate::cli::notes::say(&crate::cli::short_line(&format!($($t)*))) };
}
pub(super) use note;

/// Writes a line above the bars, where there are any.
pub fn say(line: &str) {
    above_bars(|| {
        let _ = writeln!(std::io::stderr(), "{line}");
    });
}

/// Writes what is more than a line of talk above the bars; `write` must not call [`say`].
pub fn above_bars<T>(write: impl FnOnce() -> T) -> T {
    if BARS.is_hidden() { write() } else { BARS.suspend(write) }
}

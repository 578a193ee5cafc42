//! Whether there is a stdout at all.
//!
//! The standard library opens `/dev/null` in the place of a stdout that was closed before the program began (`>&-`), so that
//! no file opened later takes its number. Everything written to it is lost without an error, and nothing tells it from a
//! `/dev/null` that was meant. So this looks before the standard library does.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, where little of the standard library may be used: one system call, one store.
#[cfg(unix)]
#[ctor::ctor(unsafe)]
fn look() {
    CLOSED.store(rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err(), Ordering::Relaxed);
}

/// Whether stdout was closed when the program began. Never known where the system has no such numbers.
pub fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

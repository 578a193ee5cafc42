//! Time that a busy machine does not stretch. Taken by the library's own tests too.

use std::time::Duration;

/// A moment by the processor time of this thread: what bounds the work of one thread, whatever runs beside it. Where no
/// system tells it, it is that of the clock on the wall.
pub struct Busy(Duration);

impl Busy {
    pub fn now() -> Busy {
        Busy(at())
    }

    /// Processor time that the thread has had since, which must be the same.
    pub fn elapsed(&self) -> Duration {
        at().saturating_sub(self.0)
    }
}

#[cfg(unix)]
fn at() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(not(unix))]
fn at() -> Duration {
    static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(std::time::Instant::now).elapsed()
}

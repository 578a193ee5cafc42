//! Asking long work to stop: a flag that whoever does the work looks at, and the error it then ends with.
//!
//! Plain data: nothing here knows of signals or clocks. A flag only ever goes up, so that work which looks at it twice
//! cannot miss that it left something out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that its clones share. [`Stop::default`] is one that nobody can raise.
#[derive(Clone, Debug, Default)]
pub struct Stop(Option<Arc<AtomicBool>>);

impl Stop {
    /// A flag that is down.
    pub fn new() -> Stop {
        Stop(Some(Arc::default()))
    }

    /// Raises the flag, for good. A flag that nobody can raise stays down.
    pub fn ask(&self) {
        if let Some(asked) = &self.0 {
            asked.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the flag is up. Costs one relaxed load.
    #[inline]
    pub fn asked(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| asked.load(Ordering::Relaxed))
    }

    /// Whether anybody can raise the flag.
    pub fn may_be_asked(&self) -> bool {
        self.0.is_some()
    }

    /// An error when the flag is up.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.asked() { Err(Interrupted) } else { Ok(()) }
    }
}

/// Work ended early because it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl Interrupted {
    /// Whether this is what an error comes from.
    pub fn caused(error: &anyhow::Error) -> bool {
        error.chain().any(|c| c.is::<Interrupted>())
    }
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn clones_share_a_flag_and_the_default_cannot_be_raised() {
        let (stop, never) = (Stop::new(), Stop::default());
        let clone = stop.clone();
        assert!(clone.check().is_ok());
        stop.ask();
        never.ask();
        assert_eq!((clone.check(), never.check()), (Err(Interrupted), Ok(())));
        assert!(clone.may_be_asked() && !never.may_be_asked());
    }

    #[test]
    fn an_interruption_is_found_below_what_was_said_about_it() {
        let error = Err::<(), _>(Interrupted).context("loading").unwrap_err();
        assert!(Interrupted::caused(&error) && !Interrupted::caused(&anyhow::anyhow!("interrupted")));
    }
}

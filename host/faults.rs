//! Errors of the device, collected as they are reported and turned into results where work is waited for.
//!
//! wgpu's default handler panics, and a lost device otherwise looks like success, so every submit and map is followed
//! by [`Faults::check`].

use crate::stop::Interrupted;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What a device can do wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum HostError {
    /// no adapter, or none of that name
    NoAdapter(String),
    /// the adapter refused to make a device
    NoDevice(String),
    /// the device is gone (driver reset, unplugged, destroyed)
    Lost(String),
    /// validation or internal error reported by wgpu
    Device(String),
    /// the device has no memory for the buffers of a plan
    OutOfMemory(String),
    /// no answer in time
    Timeout(u64),
    /// it was asked to stop while something was waited for
    Interrupted(Interrupted),
    /// a buffer does not fit the device's limits
    TooLarge {
        /// which buffer
        buffer: String,
        /// its bytes
        bytes: u64,
        /// the limit
        limit: u64,
    },
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::NoAdapter(s) => write!(f, "no GPU adapter: {s}"),
            HostError::NoDevice(s) => write!(f, "the adapter gave no device: {s}"),
            HostError::Lost(s) => write!(f, "the device was lost ({s}); run again, or use the CPU"),
            HostError::Device(s) => write!(f, "the device reported an error: {s}"),
            HostError::OutOfMemory(s) => write!(
                f,
                "the device reported an error: {s}; use a smaller context, a smaller cache type or a smaller model"
            ),
            HostError::Timeout(s) => write!(f, "the device did not answer within {s} s; compute fewer tokens at once"),
            HostError::Interrupted(e) => e.fmt(f),
            HostError::TooLarge { buffer, bytes, limit } => {
                write!(f, "buffer {buffer} needs {bytes} bytes, the device allows {limit}")
            }
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HostError::Interrupted(e) => Some(e),
            _ => None,
        }
    }
}

impl From<Interrupted> for HostError {
    fn from(e: Interrupted) -> HostError {
        HostError::Interrupted(e)
    }
}

/// Shared by the device's callbacks and the code that waits.
#[derive(Clone, Default)]
pub(super) struct Faults {
    first: Arc<Mutex<Option<HostError>>>,
}

impl Faults {
    pub fn report(&self, error: HostError) {
        let mut slot = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        // a loss explains every error that follows it
        if slot.is_none() || matches!(error, HostError::Lost(_)) {
            *slot = Some(error);
        }
    }

    /// The first fault reported so far; a lost device stays lost.
    pub fn check(&self) -> Result<(), HostError> {
        let mut slot = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.as_ref() {
            None => Ok(()),
            Some(HostError::Lost(s)) => Err(HostError::Lost(s.clone())),
            Some(_) => Err(slot.take().expect("just seen")),
        }
    }
}

/// wgpu's messages have several lines; ours have one.
pub(super) fn one_line(s: &str) -> String {
    s.split_whitespace().collect::<Vec<_>>().join(" ")
}

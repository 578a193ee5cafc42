//! The one error of the front door: what kind it is, and the whole story in one line.

use crate::generate::SessionError;
use crate::generate::saved::SavedError;
#[cfg(feature = "gpu")]
use crate::host::HostError;
use crate::models::PlanError;
use crate::split::SplitError;
use crate::stop::Interrupted;
use std::fmt;

/// Why something did not happen. `Display` gives the place and every cause in one line, without a line break.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// the model: a file that cannot be read, breaks a rule of its format, or asks for what is not supported
    #[error("{0}")]
    Model(Cause),
    /// no such device, one that is not exact, or one that reported an error
    #[error("{0}")]
    Device(Cause),
    /// what was asked for: options out of range, a prompt that does not fit, a plan larger than memory
    #[error("{0}")]
    Options(Cause),
    /// a logit is not a finite number: there is nothing to go on from
    #[error("the logits of position {position} hold {value}: the model's activations overflowed")]
    Overflow {
        /// the position whose logits these are
        position: usize,
        /// the first that is not finite
        value: f32,
    },
    /// a [`Stop`](crate::stop::Stop) flag was raised: what was loaded must be loaded again
    #[error("interrupted")]
    Interrupted(#[from] Interrupted),
    /// the device is gone (driver reset, unplugged)
    #[error("{0}")]
    Lost(Cause),
    /// the engine's queue is full: try again when a reply has ended
    #[error("{waiting} jobs wait already, as many as the engine's queue takes")]
    Busy {
        /// jobs the queue takes
        waiting: usize,
    },
    /// the work on this text alone panicked, and what it said: a bug of isobit's; other texts go on
    #[error("isobit made a mistake with this text alone: {0}")]
    Panicked(String),
    /// the engine's thread has ended, and why; this job was not done
    #[error("the engine has ended: {0}")]
    Closed(String),
}

/// What an [`Error`] comes from.
#[derive(Debug)]
pub struct Cause(anyhow::Error);

impl Cause {
    /// The error of this type among the causes, where there is one.
    pub fn find<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.0.chain().find_map(|c| c.downcast_ref())
    }
}

/// `what: cause: cause`; a cause that the line already ends with is not said twice.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        for cause in self.0.chain().map(ToString::to_string) {
            if line.is_empty() {
                line = cause;
            } else if !line.ends_with(&cause) {
                line = format!("{line}: {cause}");
            }
        }
        f.write_str(&line.replace(['\n', '\r'], " "))
    }
}

/// What went wrong where nothing more is known of an error than the place it comes from.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Model,
    Device,
    Options,
}

impl Error {
    /// Tells kinds apart by the causes of an error; one that has no kind of its own is of its `place`.
    pub(super) fn new(place: Place, e: impl Into<anyhow::Error>) -> Error {
        let e = match e.into().downcast::<Error>() {
            Ok(known) => return known,
            Err(other) => other,
        };
        if Interrupted::caused(&e) {
            return Error::Interrupted(Interrupted);
        }
        if let Some(&SessionError::Overflow { position, value }) = e.downcast_ref() {
            return Error::Overflow { position, value };
        }
        let has = |kind: fn(&(dyn std::error::Error + 'static)) -> bool| e.chain().any(kind);
        if has(|c| {
            c.is::<PlanError>()
                || c.is::<SavedError>()
                || c.is::<SessionError>()
                || c.is::<SplitError>()
                || c.is::<crate::cpu::ThreadsError>()
        }) {
            return Error::Options(Cause(e));
        }
        #[cfg(feature = "gpu")]
        if let Some(host) = e.chain().find_map(|c| c.downcast_ref::<HostError>()) {
            return match host {
                HostError::Lost(_) | HostError::Timeout(_) => Error::Lost(Cause(e)),
                _ => Error::Device(Cause(e)),
            };
        }
        match place {
            Place::Model => Error::Model(Cause(e)),
            Place::Device => Error::Device(Cause(e)),
            Place::Options => Error::Options(Cause(e)),
        }
    }

    pub(super) fn device(line: String) -> Error {
        Error::Device(Cause(anyhow::Error::msg(line)))
    }

    pub(super) fn options(line: String) -> Error {
        Error::Options(Cause(anyhow::Error::msg(line)))
    }

    /// The error of this type that it comes from, where there is one.
    pub fn cause<T: std::error::Error + 'static>(&self) -> Option<&T> {
        match self {
            Error::Model(c) | Error::Device(c) | Error::Options(c) | Error::Lost(c) => c.find(),
            _ => None,
        }
    }

    /// Whether the session or engine that gave it can go on. After `false` a session must be made anew.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Error::Interrupted(_) | Error::Lost(_) | Error::Device(_) | Error::Closed(_))
    }
}

/// The place of an error, for `map_err`.
pub(super) fn at<E: Into<anyhow::Error>>(place: Place) -> impl Fn(E) -> Error {
    move |e| Error::new(place, e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn kinds_are_told_by_causes_below_what_was_said_about_them() {
        let below = |e: anyhow::Error| Error::new(Place::Model, Err::<(), _>(e).context("loading\nx").unwrap_err());
        assert!(matches!(below(Interrupted.into()), Error::Interrupted(_)));
        let overflow = SessionError::Overflow { position: 7, value: f32::INFINITY };
        assert!(matches!(below(overflow.into()), Error::Overflow { position: 7, .. }));
        let zero = below(PlanError::Zero.into());
        assert!(matches!(zero, Error::Options(_)) && zero.cause::<PlanError>().is_some(), "{zero:?}");
        assert_eq!(zero.to_string(), format!("loading x: {}", PlanError::Zero));
        let other = below(anyhow::anyhow!("tensor x is missing"));
        assert!(matches!(other, Error::Model(_)) && other.cause::<PlanError>().is_none());
        // said once already
        let twice = anyhow::Error::from(PlanError::Zero).context(format!("x: {}", PlanError::Zero));
        assert_eq!(Error::new(Place::Options, twice).to_string(), format!("x: {}", PlanError::Zero));
        assert!(
            matches!(Error::new(Place::Model, anyhow::Error::from(zero)), Error::Options(_)),
            "it stays what it is"
        );
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn a_lost_device_is_told_from_one_that_reports_an_error() {
        let of = |e: HostError| Error::new(Place::Model, e);
        assert!(matches!(of(HostError::Lost("x".into())), Error::Lost(_)));
        assert!(matches!(of(HostError::Device("x".into())), Error::Device(_)));
        assert!(of(HostError::Lost("x".into())).is_final());
    }
}

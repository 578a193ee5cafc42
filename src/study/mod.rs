//! Studies of quantisation: what a type does to weights, and what that does to a model's predictions.
//!
//! Statistics and gates, and with the feature `cli` plots and pages; the commands `hist` and `compare` feed and print
//! them. Nothing here prints, writes files or knows a device.

pub mod errors;
pub mod gate;
pub mod measure;
pub mod pair;
#[cfg(feature = "cli")]
pub mod plot;
#[cfg(feature = "cli")]
pub mod report;

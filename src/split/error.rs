//! Why a model cannot be dealt to the devices that were named.

use std::ops::Range;
use thiserror::Error;

/// A model that cannot be dealt as asked. `Display` gives one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SplitError {
    /// as many numbers as devices are needed
    #[error("a split of {counts} counts of layers for {devices} devices: give each device one")]
    Counts {
        /// numbers given
        counts: usize,
        /// devices named
        devices: usize,
    },
    /// a device would have nothing to do
    #[error("a split of {split} gives device {device} no layer: give each at least one")]
    Empty {
        /// as it was given
        split: String,
        /// which, the first being 1
        device: usize,
    },
    /// not the layers that there are
    #[error("a split of {split} is {sum} layers, and the model has {layers}")]
    Sum {
        /// as it was given
        split: String,
        /// what the counts make together; the greatest number there is where they make more
        sum: usize,
        /// layers of the model
        layers: usize,
    },
    /// fewer layers than devices
    #[error("{devices} devices for {layers} layers: name fewer devices")]
    Devices {
        /// devices named
        devices: usize,
        /// layers of the model
        layers: usize,
    },
    /// a plan that is not one layer after the other, or whose layers share what they keep
    #[error("the model cannot be dealt to several devices: {0}")]
    Plan(String),
    /// a part larger than what is free
    #[error(
        "{} of main memory are needed for {}, {} are available; deal those devices fewer layers, or use a smaller context",
        gib(*.bytes), told(.parts), gib(*.free)
    )]
    Memory {
        /// bytes of all parts that lie in main memory
        bytes: u64,
        /// their layers and whose they are
        parts: Vec<(Range<usize>, String)>,
        /// bytes there are
        free: u64,
    },
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// `layers 0 to 11 on X, 12 to 15 on Y`.
fn told(parts: &[(Range<usize>, String)]) -> String {
    let one = |(l, name): &(Range<usize>, String)| format!("{} to {} on {name}", l.start, l.end.saturating_sub(1));
    format!("layers {}", parts.iter().map(one).collect::<Vec<_>>().join(", "))
}

//! What ends a session, or keeps it from beginning, that is neither the file's fault nor the device's.

use thiserror::Error;

/// A sequence that does not fit, or numbers that are none. `Display` gives one line.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SessionError {
    /// a logit is not finite: the model's activations left the range of f32
    #[error("the logits of position {position} hold {value}: the model's activations overflowed")]
    Overflow {
        /// the position whose logits these are
        position: usize,
        /// the first that is not finite
        value: f32,
    },
    /// tokens beyond the context
    #[error("{tokens} tokens after the {seen} already seen need a context of {}, it holds {context}", .seen + .tokens)]
    Context {
        /// tokens to feed
        tokens: usize,
        /// tokens seen
        seen: usize,
        /// positions of the cache
        context: usize,
    },
    /// a cache larger than memory
    #[error(
        "a cache of {positions} positions needs {} of memory, {} are available; use a smaller context, a smaller cache type \
         or a smaller model",
        gib(*.bytes), gib(*.free)
    )]
    Cache {
        /// positions asked for
        positions: usize,
        /// bytes they take
        bytes: u64,
        /// bytes there are
        free: u64,
    },
    /// a plan larger than memory
    #[error(
        "{} of memory are needed (weights {}, cache {}{}, work {}), {} are available; use a smaller context, a smaller cache \
         type, fewer tokens at once or a smaller model",
        gib(.weights + .cache + .recent + .states + .work), gib(*.weights), gib(*.cache), besides(*.recent, *.states), gib(*.work), gib(*.free)
    )]
    Memory {
        /// bytes of weights
        weights: u64,
        /// bytes of cache pages
        cache: u64,
        /// bytes of the f16 copy of recent positions
        recent: u64,
        /// bytes of what recurrent layers remember
        states: u64,
        /// all other bytes
        work: u64,
        /// bytes there are
        free: u64,
    },
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// What a cache may have beside its pages, where it has some.
fn besides(recent: u64, states: u64) -> String {
    let part = |what: &str, bytes: u64| if bytes > 0 { format!(", {what} {}", gib(bytes)) } else { String::new() };
    part("f16 copy of recent positions", recent) + &part("states of recurrent layers", states)
}

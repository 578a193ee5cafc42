//! What a session knows of its cache.

use super::error::{Error, Place};
use crate::ops::places::TABLES;

/// What is in the cache, and whether it can be gone on with.
#[derive(Default)]
pub(super) struct State {
    /// the tokens of the positions from 0 on
    pub seen: Vec<u32>,
    /// by table, the chunks from which on the cache has them: of layers with a window older ones may not be there
    pub first: [usize; TABLES],
    /// where these are not the very first, tokens before which none can be gone back to
    pub floor: usize,
    /// why there is nothing to go on with
    pub ended: Option<String>,
}

impl State {
    /// An error, after which nothing of the cache is taken for granted.
    pub fn failed(&mut self, e: impl Into<anyhow::Error>) -> Error {
        self.seen.clear();
        let e = Error::new(Place::Device, e);
        if e.is_final() {
            self.ended = Some(e.to_string());
        }
        e
    }
}

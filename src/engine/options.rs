//! What a session is made with.

use crate::fuse::Fuse;
use crate::generate;
use crate::models::{Head, Hyper, PlanOptions, Recent};
use crate::ops::cache::CacheType;

/// Positions of a session where nothing is asked for and the model has as many.
const CONTEXT: usize = 4096;

/// States that are kept for each sequence: one where its prompt ends, and one of what was generated after it.
const CHECKPOINTS: usize = 2;

/// Bits of the activations that meet quantised weights. Both are exact; they are two models, with other logits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Activations {
    /// one int8 digit
    #[default]
    Bits8,
    /// two int8 digits, 15 bits: slower, and nearer to float activations
    Bits16,
}

impl Activations {
    /// 8 or 16.
    pub fn bits(self) -> usize {
        8 * self.digits()
    }

    /// Int8 digits.
    pub fn digits(self) -> usize {
        match self {
            Activations::Bits8 => 1,
            Activations::Bits16 => 2,
        }
    }
}

/// Choices of a session. `activations`, `k_type`, `v_type` and `recent` decide its logits, and of a model with longrope
/// whether `context` is beyond what it was first trained for; nothing else changes a bit.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// positions a sequence may have; 0: as many as the model was trained for, at most 4096
    pub context: usize,
    /// texts that an [`Engine`](super::Engine) works on at once; what else it works on changes no bit of a text. A
    /// [`Session`](super::Session) has one sequence whatever this says
    pub sequences: usize,
    /// positions the cache holds for all sequences together, at least `context`; 0: `context` for each. Where they are fewer
    /// a text may have to be computed again, which takes time and changes nothing
    pub pool: usize,
    /// states of recurrent layers that are kept for each sequence, so that prompts which begin alike, or go on from what is
    /// kept, need not be computed from their start; fewer, or none, where the memory that is known of has no room for them. Of
    /// other models nothing
    pub checkpoints: usize,
    /// tokens computed at once, at most
    pub ubatch: usize,
    /// rows a step may return: more make [`Session::each_logits`](super::Session::each_logits), scores, guesses and vectors
    /// faster and take memory
    pub rows: usize,
    /// bits of the activations that meet quantised weights
    pub activations: Activations,
    /// what cached keys are stored as
    pub k_type: CacheType,
    /// what cached values are stored as
    pub v_type: CacheType,
    /// whether a query reads its own chunk of 64 positions from an f16 copy
    pub recent: Recent,
    /// what steps give: logits, or hidden states, of which [`Session::embed`](super::Session::embed) makes vectors
    pub head: Head,
    /// how far commands are joined
    pub fuse: Fuse,
    /// bytes all buffers may take together; `None`: what is free, where the device takes main memory
    pub memory: Option<u64>,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        let plan = PlanOptions::default();
        SessionOptions {
            context: 0,
            sequences: 1,
            pool: 0,
            checkpoints: CHECKPOINTS,
            ubatch: plan.ubatch,
            rows: plan.max_out,
            activations: Activations::Bits8,
            k_type: plan.k_type,
            v_type: plan.v_type,
            recent: plan.recent,
            head: plan.head,
            fuse: Fuse::default(),
            memory: None,
        }
    }
}

impl SessionOptions {
    /// Positions a session of a model with this shape has.
    pub(super) fn positions(&self, h: &Hyper) -> usize {
        if self.context > 0 { self.context } else { h.context.min(CONTEXT) }
    }

    /// The options of the rooms below.
    pub(super) fn inner(&self, h: &Hyper) -> generate::SessionOptions {
        let n_ctx = self.positions(h);
        let many = self.sequences > 1;
        let pool = if self.pool > 0 { self.pool } else { n_ctx.saturating_mul(self.sequences) };
        let plan = PlanOptions {
            n_ctx,
            sequences: self.sequences.max(1),
            pool: many.then_some(pool),
            checkpoints: self.checkpoints.saturating_mul(self.sequences.max(1)),
            ubatch: if many { self.ubatch.max(1) } else { self.ubatch.min(n_ctx) },
            // a row for each text that is continued
            max_out: self.rows.max(self.sequences),
            digits: self.activations.digits(),
            k_type: self.k_type,
            v_type: self.v_type,
            recent: self.recent,
            head: self.head,
            ..PlanOptions::default()
        };
        generate::SessionOptions { plan, memory: self.memory, fuse: self.fuse }
    }
}

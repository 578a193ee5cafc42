//! A step's commands as one command buffer, and all that decides what it holds.

use super::program::Dispatch;
use crate::record::BufId;

/// What a step hands back.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Back {
    /// nothing
    Nothing,
    /// these bytes of logits
    Logits(u64),
    /// words of the selection, into one of `Program::selected_staging`
    Selected { slot: usize, words: usize },
}

impl Back {
    /// Rows of logits; nothing of a plan without logits, whose `vocab` is 0 and whose commands may yet count rows.
    pub fn logits(rows: usize, vocab: usize) -> Back {
        match rows * vocab * 4 {
            0 => Back::Nothing,
            bytes => Back::Logits(bytes as u64),
        }
    }
}

/// All that decides what a command buffer of a step holds.
#[derive(PartialEq)]
pub(super) struct Shape {
    pub dispatches: Vec<Dispatch>,
    pub follow: Option<BufId>,
    pub back: Back,
}

/// The commands of a step that has not come yet.
pub(super) struct Encoded {
    pub shape: Shape,
    pub buffer: wgpu::CommandBuffer,
}

//! Tensors that are put together from the bytes of others: what a directory keeps in another order than the engine.

use super::Tensor;
use crate::blocks::BlockType;
use std::ops::Range;

/// How the bytes of a made tensor come from the file.
pub(super) enum Order {
    /// pieces of files, one after the other
    Pieces(Vec<(usize, Range<u64>)>),
    /// matrices of which columns become rows
    Transposed(Columns),
    /// every second element of `size` bytes, the first of them at `at`
    Seconds { at: u64, size: u64 },
    /// rows of MXFP4
    Pairs(Pairs),
    /// rows of which the columns lie in another order
    Columns(Blocks),
}

/// Matrices of `rows` rows of `cols` elements, one every `apart` bytes, of which column `first` and each `step` behind it become
/// rows, of elements of `size` bytes.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub at: u64,
    pub rows: usize,
    pub cols: usize,
    /// bytes of a row in the file
    pub row: usize,
    /// blocks that rows consist of, which are decoded to F32; `None`: floats that stay as they are
    pub coded: Option<BlockType>,
    pub size: usize,
    pub first: usize,
    pub step: usize,
    pub apart: usize,
}

impl Columns {
    /// Bytes that a matrix becomes.
    pub fn bytes(&self) -> usize {
        self.cols / self.step * self.rows * self.size
    }
}

/// Rows of MXFP4 whose scales (a byte for each block) and codes (16 bytes) lie in two tensors: row `first` and each `step`
/// behind it.
#[derive(Clone, Copy)]
pub(super) struct Pairs {
    /// (file, place)
    pub blocks: (usize, u64),
    pub scales: (usize, u64),
    /// blocks in a row
    pub row: usize,
    pub first: u64,
    pub step: u64,
}

/// Rows of equally many bytes from `at` on, of which block `order[i]` of `size` bytes becomes block `i`.
pub(super) struct Blocks {
    pub at: u64,
    pub size: usize,
    pub order: Vec<usize>,
}

/// A tensor as the engine has it.
pub(super) struct Anew {
    /// what it is made of, with its type
    pub like: Tensor,
    pub name: String,
    pub shape: Vec<u64>,
    pub order: Order,
    pub bytes: u64,
}

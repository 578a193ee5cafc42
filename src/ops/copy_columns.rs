//! Copies neighbouring columns of each row to columns of the rows of another buffer: a part of a head, or a head put together.

use crate::ops::params::{At, Params, params};

params! {
    /// Parameters of `copy_columns`.
    pub struct CopyColumnsParams {
        /// rows
        pub n_tokens: u32,
        /// columns that are copied
        pub n: u32,
        /// words between two rows of x
        pub x_stride: u32,
        /// first column copied of x
        pub x_offset: u32,
        /// words between two rows of y
        pub y_stride: u32,
        /// first column written of y
        pub y_offset: u32,
    }
}

impl Params for CopyColumnsParams {
    fn at(self, step: &At) -> Option<Self> {
        Some(Self { n_tokens: step.n, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.n.div_ceil(64), self.n_tokens]
    }

    fn replaces(&self, _output: usize) -> bool {
        self.n == self.y_stride
    }
}

/// `x`: `[row][x_stride]`; `y`: `[row][y_stride]`, whose other columns are left alone.
pub fn copy_columns(p: &CopyColumnsParams, x: &[f32], y: &mut [f32]) {
    let n = p.n as usize;
    for row in 0..p.n_tokens as usize {
        let from = row * p.x_stride as usize + p.x_offset as usize;
        let to = row * p.y_stride as usize + p.y_offset as usize;
        y[to..to + n].copy_from_slice(&x[from..from + n]);
    }
}

//! Copies the rows whose logits are wanted.

/// Parameters of `select_rows`.
#[derive(Clone, Copy, Debug, PartialEq, encase::ShaderType)]
pub struct SelectRowsParams {
    /// rows copied
    pub n_tokens: u32,
    /// elements in a row
    pub dim: u32,
    /// first row copied
    pub first: u32,
}

/// `x`: `[token][dim]`; `y`: `[row][dim]`, row r being token `first + r`.
pub fn select_rows(p: &SelectRowsParams, x: &[f32], y: &mut [f32]) {
    let n = (p.n_tokens * p.dim) as usize;
    y[..n].copy_from_slice(&x[(p.first * p.dim) as usize..][..n]);
}

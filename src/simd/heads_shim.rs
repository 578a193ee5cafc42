//! placeholder until branch heads is merged
use super::Level;
use crate::ops::attention::AttentionParams;
use crate::ops::cache::CacheType;
#[allow(missing_docs, reason = "placeholder")]
pub fn attention_head(_: Level, t: (CacheType, CacheType), p: &AttentionParams, row: usize, q: &[f32], k: &[u32], v: &[u32], s: &mut [f32], y: &mut [f32]) {
    crate::ops::attention::head(t, p, row, q, k, v, s, y)
}
#[allow(missing_docs, reason = "placeholder")]
pub fn swiglu(_: Level, g: &[f32], u: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = crate::ops::swiglu::element(g[i], u[i]);
    }
}

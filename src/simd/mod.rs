//! placeholder until the SIMD levels are merged
use crate::blocks::BlockType;
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::attention::AttentionParams;
use crate::ops::cache::CacheType;
use crate::ops::linear::LinearParams;
#[derive(Clone, Copy, Debug)]
pub enum Level {
    Portable,
}
impl Level {
    pub fn detect() -> Level {
        Level::Portable
    }
    pub fn name(self) -> &'static str {
        "portable"
    }
}
pub enum Act<'a> {
    Blocks(&'a [u32]),
    Floats(&'a [f32]),
}
pub fn matvec(_: Level, t: BlockType, p: &LinearParams, w: &[u32], act: Act, y: &mut [f32]) {
    match act {
        Act::Blocks(a) => crate::cpu::twin_matvec(t, p, w, a, y),
        Act::Floats(a) => crate::cpu::twin_matvec(t, p, w, bytemuck::cast_slice(a), y),
    }
}
pub fn act_quantize(_: Level, p: &ActQuantizeParams, x: &[f32], act: &mut [u32]) {
    crate::ops::act_quantize::act_quantize(p, x, act)
}
pub fn attention_head(
    _: Level,
    t: (CacheType, CacheType),
    p: &AttentionParams,
    row: usize,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    s: &mut [f32],
    y: &mut [f32],
) {
    crate::ops::attention::head(t, p, row, q, k, v, s, y)
}
pub fn swiglu(_: Level, g: &[f32], u: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = crate::ops::swiglu::element(g[i], u[i]);
    }
}

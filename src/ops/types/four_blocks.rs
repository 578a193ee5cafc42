//! Groups of four blocks of 32, each with a scale of its own, and perhaps a minimum: t = ((u0 + u1) + u2) + u3.

use crate::ops::exact::f16_to_f32;
use crate::ops::packed::{ActGroup, GROUP, Row};

/// Scale and minimum of block `b` of 32 of a row; of the `words` of a group the first four hold those of its blocks.
pub(super) fn scale_min(row: &Row, words: usize, b: usize) -> (f32, f32) {
    let at = 2 * (words * (b / 4) + b % 4);
    (f16_to_f32(row.half(at)), f16_to_f32(row.half(at + 1)))
}

/// S of block `b` of group `g` in one digit; `code(e)` is that of element `e` of the row.
fn block_sum(g: usize, b: usize, a: &ActGroup, digit: usize, code: &impl Fn(usize) -> i32) -> i32 {
    (32 * b..32 * b + 32).map(|e| code(GROUP * g + e) * a.code(digit, e)).sum()
}

fn ordered(u: impl Fn(usize) -> f32) -> f32 {
    let mut t = u(0);
    for b in 1..4 {
        t += u(b);
    }
    t
}

/// u = scale · v(S); `scale(b)` is that of block `b` of the row.
pub(super) fn scaled(g: usize, a: &ActGroup, scale: impl Fn(usize) -> f32, code: impl Fn(usize) -> i32) -> f32 {
    ordered(|b| scale(4 * g + b) * a.value(|digit| block_sum(g, b, a, digit, &code)))
}

/// u = scale · v(S) + minimum · v(A), A the sum of the activations; `scale_min(b)` are those of block `b` of the row.
pub(super) fn scaled_above(
    g: usize,
    a: &ActGroup,
    scale_min: impl Fn(usize) -> (f32, f32),
    code: impl Fn(usize) -> i32,
) -> f32 {
    ordered(|b| {
        let (d, m) = scale_min(4 * g + b);
        d * a.value(|digit| block_sum(g, b, a, digit, &code)) + m * a.value(|digit| a.sum32(digit, b))
    })
}

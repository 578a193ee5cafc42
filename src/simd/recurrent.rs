//! What recurrent layers do, per instruction set, bit-equal to `ops::conv_silu`, `ops::gdn_gates`, `ops::delta_rule`
//! and `ops::short_conv`.
//!
//! Lanes are channels, or columns of a head's matrix; each keeps its own sums in the twin's order. Tasks are runs of channels,
//! and heads. The arithmetic stands once, compiled once per level.

use super::Level;
use super::elementwise::{fexp, for_levels, sigmoid};
use super::team;
use crate::ops::conv_silu::{ConvSiluParams, KEPT, TAPS};
use crate::ops::delta_rule::{DeltaRuleParams, PARTS};
use crate::ops::exact::canon;
use crate::ops::gdn_gates::{GdnGatesParams, SERIES};
use crate::ops::short_conv::{self, ShortConvParams};
use crate::ops::strands::{Strand, Strands};

/// Channels of a task, and columns whose sums are under way.
const WIDE: usize = 32;

/// What tasks write to, each what is its own.
struct Rest(*mut f32, usize);

// SAFETY: the pointer is only used through `part`, whose contract forbids two tasks to have the same words.
unsafe impl Sync for Rest {}

impl Rest {
    fn new(words: &mut [f32]) -> Rest {
        Rest(words.as_mut_ptr(), words.len())
    }

    /// `n` words from `first` on.
    ///
    /// # Safety
    ///
    /// Nobody else has any of them, for as long as they are borrowed.
    #[allow(clippy::mut_from_ref, reason = "the words are distinct, as the contract says")]
    unsafe fn part(&self, first: usize, n: usize) -> &mut [f32] {
        assert!(first <= self.1 && n <= self.1 - first, "{n} words from {first} on, of {}", self.1);
        // SAFETY: within the buffer, asserted above; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(first), n) }
    }
}

/// One token of up to [`WIDE`] channels: `seen` are the rows of the three tokens before and of this one.
#[inline(always)]
fn conv_body(seen: &[[f32; WIDE]; TAPS], w: &[[f32; WIDE]; TAPS], y: &mut [f32; WIDE]) {
    for l in 0..WIDE {
        let mut acc = 0.0;
        for j in 0..TAPS {
            acc += w[j][l] * seen[j][l];
        }
        let x = canon(acc);
        // whatever the sigmoid is for a NaN, the product with it is one
        y[l] = canon(x * sigmoid(x));
    }
}

/// One token of up to [`WIDE`] channels of a short convolution: `seen` has the products of the two tokens before, and takes
/// that of this one.
#[inline(always)]
fn short_body(
    seen: &mut [[f32; WIDE]; short_conv::TAPS],
    w: &[[f32; WIDE]; short_conv::TAPS],
    [b, c, u]: &[[f32; WIDE]; 3],
    y: &mut [f32; WIDE],
) {
    for l in 0..WIDE {
        seen[short_conv::KEPT][l] = canon(b[l] * u[l]);
        let mut acc = 0.0;
        for j in 0..short_conv::TAPS {
            acc += w[j][l] * seen[j][l];
        }
        y[l] = canon(c[l] * canon(acc));
    }
}

/// `gdn_gates` of up to all heads of one token, b and a being those of these heads, `by` what they are multiplied with.
#[inline(always)]
fn gates_body(by: [f32; 2], b: &[f32], a: &[f32], scale: &[f32], dt: &[f32], beta: &mut [f32], gamma: &mut [f32]) {
    for (beta, &b) in beta.iter_mut().zip(b) {
        let b = canon(b * by[0]);
        let s = canon(sigmoid(b));
        *beta = if b.is_nan() { b } else { s };
    }
    for (((gamma, &a), &scale), &dt) in gamma.iter_mut().zip(a).zip(scale).zip(dt) {
        let x = canon(canon(a * by[1]) + dt);
        let e = fexp(-x.abs());
        // no quotient below 2^-120 is left by canon, and none is as great as 1
        let s = canon(e / (2.0 + e));
        let z = s * s;
        let mut p = SERIES[0];
        for c in &SERIES[1..] {
            p = p * z + c;
        }
        p = p * z + 1.0;
        let least = if x < 0.0 { 0.0 } else { x };
        // of a NaN this is one
        let open = canon(least + 2.0 * (s * p));
        let log = canon(scale * open);
        let g = canon(fexp(log));
        *gamma = if log.is_nan() { log } else { g };
    }
}

/// One token of one head: columns of `m` `[size][size]`, which held `before` unless that is itself.
#[inline(always)]
fn delta_body(
    before: Option<&[f32]>,
    m: &mut [f32],
    [q, k, v]: [&[f32]; 3],
    [beta, gamma]: [f32; 2],
    scale: f32,
    o: &mut [f32],
) {
    let size = v.len();
    // reading `before` in the loop below in the place of a copy took 1.7 times as long (CPU C)
    if let Some(before) = before {
        m.copy_from_slice(before);
    }
    let (keys, queries) = (k.as_chunks::<PARTS>().0, q.as_chunks::<PARTS>().0);
    for j in (0..size).step_by(WIDE) {
        // loops of a known length, so that the sums stay in registers
        let mut parts = [[0f32; WIDE]; PARTS];
        for (i, k) in keys.iter().enumerate() {
            for part in 0..PARTS {
                let row = &mut m[(i * PARTS + part) * size + j..][..WIDE];
                for l in 0..WIDE {
                    let held = canon(row[l] * gamma);
                    row[l] = held;
                    parts[part][l] += held * k[part];
                }
            }
        }
        let mut d = [0f32; WIDE];
        for l in 0..WIDE {
            let given = (parts[0][l] + parts[2][l]) + (parts[1][l] + parts[3][l]);
            d[l] = canon(canon(v[j + l] - given) * beta);
        }
        let mut parts = [[0f32; WIDE]; PARTS];
        for (i, (k, q)) in keys.iter().zip(queries).enumerate() {
            for part in 0..PARTS {
                let row = &mut m[(i * PARTS + part) * size + j..][..WIDE];
                for l in 0..WIDE {
                    let held = canon(row[l] + k[part] * d[l]);
                    row[l] = held;
                    parts[part][l] += held * q[part];
                }
            }
        }
        for l in 0..WIDE {
            let asked = (parts[0][l] + parts[2][l]) + (parts[1][l] + parts[3][l]);
            o[j + l] = canon(asked * scale);
        }
    }
}

for_levels!(conv_body => conv_avx2, conv_avx512: (seen: &[[f32; WIDE]; TAPS], w: &[[f32; WIDE]; TAPS], y: &mut [f32; WIDE]));
for_levels!(
    short_body => short_avx2, short_avx512:
        (
            seen: &mut [[f32; WIDE]; short_conv::TAPS],
            w: &[[f32; WIDE]; short_conv::TAPS],
            x: &[[f32; WIDE]; 3],
            y: &mut [f32; WIDE]
        )
);
for_levels!(
    gates_body => gates_avx2, gates_avx512:
        (by: [f32; 2], b: &[f32], a: &[f32], scale: &[f32], dt: &[f32], beta: &mut [f32], gamma: &mut [f32])
);
for_levels!(
    delta_body => delta_avx2, delta_avx512:
        (before: Option<&[f32]>, m: &mut [f32], qkv: [&[f32]; 3], gates: [f32; 2], scale: f32, o: &mut [f32])
);

/// `ops::conv_silu`, buffers as there. Panics when this CPU does not have `level`.
pub fn conv_silu(
    level: Level,
    p: &ConvSiluParams,
    u: &[f32],
    w: &[f32],
    strands: Strands,
    state: &mut [f32],
    qk: &mut [f32],
    v: &mut [f32],
) {
    assert!(level.is_available(), "conv_silu: this CPU does not have {}", level.name());
    let (channels, front) = (p.channels as usize, p.front as usize);
    let (state, qk, v) = (Rest::new(state), Rest::new(qk), Rest::new(v));
    for strand in strands.take(p.strands) {
        team::ranges(channels.div_ceil(WIDE), 4, |runs| {
            for first in runs.map(|run| run * WIDE) {
                let n = WIDE.min(channels - first);
                let mut taps = [[0f32; WIDE]; TAPS];
                for l in 0..n {
                    for (j, tap) in taps.iter_mut().enumerate() {
                        tap[l] = w[(first + l) * TAPS + j];
                    }
                }
                // SAFETY: a run of channels belongs to one task, and so do its words of both slots and of every row.
                let kept = |slot: usize, row: usize| unsafe { state.part((slot * KEPT + row) * channels + first, n) };
                let mut seen = [[0f32; WIDE]; TAPS];
                if let Some(slot) = strand.source {
                    (0..KEPT).for_each(|row| seen[row][..n].copy_from_slice(kept(slot, row)));
                }
                let mut y = [0f32; WIDE];
                for &t in strand.tokens {
                    let t = t as usize;
                    seen[KEPT][..n].copy_from_slice(&u[t * channels + first..][..n]);
                    match level.vectors() {
                        // SAFETY: the level is available, asserted above.
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 | Level::AvxVnni => unsafe { conv_avx2(&seen, &taps, &mut y) },
                        // SAFETY: as above.
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => unsafe { conv_avx512(&seen, &taps, &mut y) },
                        // the other levels' instructions are always on for their targets
                        _ => conv_body(&seen, &taps, &mut y),
                    }
                    let (of_front, of_values) = y[..n].split_at(front.saturating_sub(first).min(n));
                    // SAFETY: as for the state.
                    unsafe {
                        if !of_front.is_empty() {
                            qk.part(t * front + first, of_front.len()).copy_from_slice(of_front);
                        }
                        if !of_values.is_empty() {
                            let at = first + of_front.len() - front;
                            v.part(t * (channels - front) + at, of_values.len()).copy_from_slice(of_values);
                        }
                    }
                    seen.rotate_left(1);
                }
                (0..KEPT).for_each(|row| kept(strand.target, row).copy_from_slice(&seen[row][..n]));
            }
        });
    }
}

/// `ops::gdn_gates`, buffers as there. Panics when this CPU does not have `level`.
pub fn gdn_gates(level: Level, p: &GdnGatesParams, ba: &[f32], a: &[f32], dt: &[f32], gates: &mut [f32]) {
    assert!(level.is_available(), "gdn_gates: this CPU does not have {}", level.name());
    let (heads, group, by) = (p.heads as usize, p.group as usize, [p.b_scale, p.a_scale]);
    let rows = ba.chunks_exact(2 * heads).zip(gates.chunks_exact_mut(2 * heads));
    for (ba, gates) in rows.take(p.n_tokens as usize) {
        let (beta, gamma) = gates.split_at_mut(heads);
        for (g, pair) in ba.chunks_exact(2 * group).enumerate() {
            let (b, of_a) = pair.split_at(group);
            let own = g * group..(g + 1) * group;
            let (scale, dt) = (&a[own.clone()], &dt[own.clone()]);
            let (beta, gamma) = (&mut beta[own.clone()], &mut gamma[own]);
            match level.vectors() {
                // SAFETY: the level is available, asserted above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::AvxVnni => unsafe { gates_avx2(by, b, of_a, scale, dt, beta, gamma) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { gates_avx512(by, b, of_a, scale, dt, beta, gamma) },
                // as for conv_silu
                _ => gates_body(by, b, of_a, scale, dt, beta, gamma),
            }
        }
    }
}

/// `ops::delta_rule`, buffers as there. Panics when this CPU does not have `level`.
pub fn delta_rule(
    level: Level,
    p: &DeltaRuleParams,
    qk: &[f32],
    v: &[f32],
    gates: &[f32],
    strands: Strands,
    state: &mut [f32],
    o: &mut [f32],
) {
    assert!(level.is_available(), "delta_rule: this CPU does not have {}", level.name());
    let heads = p.heads as usize;
    let (state, o) = (Rest::new(state), Rest::new(o));
    for strand in strands.take(p.strands) {
        team::for_each(heads, |head| delta_head(level, p, [qk, v, gates], head, &strand, &state, &o));
    }
}

/// The tokens of a strand, of one head.
fn delta_head(
    level: Level,
    p: &DeltaRuleParams,
    [qk, v, gates]: [&[f32]; 3],
    head: usize,
    strand: &Strand,
    state: &Rest,
    o: &Rest,
) {
    let (heads, keys, size) = (p.heads as usize, p.key_heads as usize, p.size as usize);
    // SAFETY: a head belongs to one task, and so do its words of both slots and of every row; the slots are distinct.
    let slot = |slot: usize| unsafe { state.part((slot * heads + head) * size * size, size * size) };
    let m = slot(strand.target);
    let mut before = strand.source.map(|source| {
        assert!(source != strand.target, "a step reads one slot and writes the other");
        &*slot(source)
    });
    if before.is_none() {
        m.fill(0.0);
    }
    for &t in strand.tokens {
        let t = t as usize;
        let key = (t * 2 * keys + p.key_head(head)) * size;
        let row = (t * heads + head) * size;
        let qkv = [&qk[key..][..size], &qk[key + keys * size..][..size], &v[row..][..size]];
        let gates = [gates[t * 2 * heads + head], gates[(t * 2 + 1) * heads + head]];
        // SAFETY: as for the state.
        let o = unsafe { o.part(row, size) };
        match level.vectors() {
            // SAFETY: the level is available, as its caller asserted.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { delta_avx2(before, m, qkv, gates, p.scale, o) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { delta_avx512(before, m, qkv, gates, p.scale, o) },
            // as for conv_silu
            _ => delta_body(before, m, qkv, gates, p.scale, o),
        }
        before = None;
    }
}

/// `ops::short_conv`, buffers as there. Panics when this CPU does not have `level`.
pub fn short_conv(
    level: Level,
    p: &ShortConvParams,
    x: &[f32],
    w: &[f32],
    strands: Strands,
    state: &mut [f32],
    y: &mut [f32],
) {
    assert!(level.is_available(), "short_conv: this CPU does not have {}", level.name());
    let dim = p.dim as usize;
    let (state, y) = (Rest::new(state), Rest::new(y));
    for strand in strands.take(p.strands) {
        team::ranges(dim.div_ceil(WIDE), 4, |runs| {
            for first in runs.map(|run| run * WIDE) {
                let n = WIDE.min(dim - first);
                let mut taps = [[0f32; WIDE]; short_conv::TAPS];
                for l in 0..n {
                    for (j, tap) in taps.iter_mut().enumerate() {
                        tap[l] = w[(first + l) * short_conv::TAPS + j];
                    }
                }
                // SAFETY: a run of channels belongs to one task, and so do its words of both slots and of every row.
                let kept =
                    |slot: usize, row: usize| unsafe { state.part((slot * short_conv::KEPT + row) * dim + first, n) };
                let mut seen = [[0f32; WIDE]; short_conv::TAPS];
                if let Some(slot) = strand.source {
                    (0..short_conv::KEPT).for_each(|row| seen[row][..n].copy_from_slice(kept(slot, row)));
                }
                let (mut parts, mut given) = ([[0f32; WIDE]; 3], [0f32; WIDE]);
                for &t in strand.tokens {
                    let t = t as usize;
                    for (i, part) in parts.iter_mut().enumerate() {
                        part[..n].copy_from_slice(&x[(3 * t + i) * dim + first..][..n]);
                    }
                    match level.vectors() {
                        // SAFETY: the level is available, asserted above.
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 | Level::AvxVnni => unsafe { short_avx2(&mut seen, &taps, &parts, &mut given) },
                        // SAFETY: as above.
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => unsafe { short_avx512(&mut seen, &taps, &parts, &mut given) },
                        // as for conv_silu
                        _ => short_body(&mut seen, &taps, &parts, &mut given),
                    }
                    // SAFETY: as for the state.
                    unsafe { y.part(t * dim + first, n).copy_from_slice(&given[..n]) };
                    seen.rotate_left(1);
                }
                (0..short_conv::KEPT).for_each(|row| kept(strand.target, row).copy_from_slice(&seen[row][..n]));
            }
        });
    }
}

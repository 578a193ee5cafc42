//! What recurrent layers do, per instruction set, bit-equal to `ops::conv_silu`, `ops::gdn_gates`, `ops::delta_rule`,
//! `ops::short_conv`, `ops::ssm_discretize` and `ops::ssm_scan`.
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
use crate::ops::ssm_discretize::SsmDiscretizeParams;
use crate::ops::ssm_scan::{SEGMENT, SsmScanParams};
use crate::ops::strands::{Strand, Strands};

/// Channels of a task, and columns whose sums are under way.
const WIDE: usize = 32;

/// Columns of a state space layer whose sums are under way.
const COLUMNS: usize = 16;

/// What tasks write to, each what is its own.
pub(super) struct Rest(*mut f32, usize);

// SAFETY: the pointer is only used through `part`, whose contract forbids two tasks to have the same words.
unsafe impl Sync for Rest {}

impl Rest {
    pub(super) fn new(words: &mut [f32]) -> Rest {
        Rest(words.as_mut_ptr(), words.len())
    }

    /// `n` words from `first` on.
    ///
    /// # Safety
    ///
    /// Nobody else has any of them, for as long as they are borrowed.
    #[allow(clippy::mut_from_ref, reason = "the words are distinct, as the contract says")]
    pub(super) unsafe fn part(&self, first: usize, n: usize) -> &mut [f32] {
        assert!(first <= self.1 && n <= self.1 - first, "{n} words from {first} on, of {}", self.1);
        // SAFETY: within the buffer, asserted above; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(first), n) }
    }
}

/// One token of up to [`WIDE`] channels: `seen` are the rows of the three tokens before and of this one. Without biases
/// these are 0, which no sum that `canon` then meets is changed by.
#[inline(always)]
fn conv_body(seen: &[[f32; WIDE]; TAPS], w: &[[f32; WIDE]; TAPS], bias: &[f32; WIDE], y: &mut [f32; WIDE]) {
    for l in 0..WIDE {
        let mut acc = 0.0;
        for j in 0..TAPS {
            acc += w[j][l] * seen[j][l];
        }
        let x = canon(acc + bias[l]);
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
        *gamma = share(canon(scale * softplus(canon(canon(a * by[1]) + dt))));
    }
}

/// `ops::gdn_gates::softplus` of what is stored; of a NaN it is one.
#[inline(always)]
fn softplus(x: f32) -> f32 {
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
    canon(least + 2.0 * (s * p))
}

/// e^`log`, as it is stored.
#[inline(always)]
fn share(log: f32) -> f32 {
    let g = canon(fexp(log));
    if log.is_nan() { log } else { g }
}

/// `ssm_discretize` of all heads of one token.
#[inline(always)]
fn discretize_body([least, most]: [f32; 2], x: &[f32], a: &[f32], bias: &[f32], dt: &mut [f32], gamma: &mut [f32]) {
    for ((dt, &x), &bias) in dt.iter_mut().zip(x).zip(bias) {
        let open = softplus(canon(x + bias));
        // a NaN is neither
        let open = if open < least { least } else { open };
        *dt = if open > most { most } else { open };
    }
    for ((gamma, &dt), &a) in gamma.iter_mut().zip(&*dt).zip(a) {
        *gamma = share(canon(dt * a));
    }
}

/// One token of [`COLUMNS`] channels of a head from `j` on: rows of `m` `[state][head_dim]`, which held `before` unless that
/// is itself.
#[inline(always)]
fn scan_columns(
    before: Option<&[f32]>,
    m: &mut [f32],
    [b, c, x]: [&[f32]; 3],
    [dt, gamma, d]: [f32; 3],
    j: usize,
    y: &mut [f32],
) {
    let head_dim = x.len();
    let x: &[f32; COLUMNS] = x[j..].first_chunk().unwrap_or_else(|| unreachable!("so many channels are left"));
    let step = x.map(|x| canon(x * dt));
    let mut sum = [0f32; COLUMNS];
    let segments = b.as_chunks::<SEGMENT>().0.iter().zip(c.as_chunks::<SEGMENT>().0);
    for (s, (b, c)) in segments.enumerate() {
        // loops of a known length, so that the sums stay in registers
        let mut parts = [[0f32; COLUMNS]; PARTS];
        for i in 0..SEGMENT / PARTS {
            for part in 0..PARTS {
                let n = i * PARTS + part;
                let at = (s * SEGMENT + n) * head_dim + j;
                let row = &mut m[at..][..COLUMNS];
                let held: [f32; COLUMNS] = match before {
                    Some(before) => before[at..][..COLUMNS].try_into(),
                    None => row[..].try_into(),
                }
                .unwrap_or_else(|_| unreachable!("so many channels are left"));
                for l in 0..COLUMNS {
                    let held = canon(held[l] * gamma + b[n] * step[l]);
                    row[l] = held;
                    parts[part][l] += held * c[n];
                }
            }
        }
        for l in 0..COLUMNS {
            let own = (parts[0][l] + parts[2][l]) + (parts[1][l] + parts[3][l]);
            sum[l] = if s == 0 { own } else { sum[l] + own };
        }
    }
    for l in 0..COLUMNS {
        y[j + l] = canon(sum[l] + d * x[l]);
    }
}

/// One token of one head. Channels behind the last whole [`COLUMNS`] go one by one.
#[inline(always)]
fn scan_body(before: Option<&[f32]>, m: &mut [f32], [b, c, x]: [&[f32]; 3], [dt, gamma, d]: [f32; 3], y: &mut [f32]) {
    let head_dim = x.len();
    let whole = head_dim / COLUMNS * COLUMNS;
    for j in (0..whole).step_by(COLUMNS) {
        scan_columns(before, m, [b, c, x], [dt, gamma, d], j, y);
    }
    for j in whole..head_dim {
        let step = canon(x[j] * dt);
        let mut sum = 0f32;
        for first in (0..b.len()).step_by(SEGMENT) {
            let mut parts = [0f32; PARTS];
            for n in first..first + SEGMENT {
                let at = n * head_dim + j;
                let held = canon(before.map_or(m[at], |before| before[at]) * gamma + b[n] * step);
                m[at] = held;
                parts[n % PARTS] += held * c[n];
            }
            let own = (parts[0] + parts[2]) + (parts[1] + parts[3]);
            sum = if first == 0 { own } else { sum + own };
        }
        y[j] = canon(sum + d * x[j]);
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

for_levels!(
    conv_body => conv_avx2, conv_avx512:
        (seen: &[[f32; WIDE]; TAPS], w: &[[f32; WIDE]; TAPS], bias: &[f32; WIDE], y: &mut [f32; WIDE])
);
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
    discretize_body => discretize_avx2, discretize_avx512:
        (bounds: [f32; 2], x: &[f32], a: &[f32], bias: &[f32], dt: &mut [f32], gamma: &mut [f32])
);
for_levels!(
    scan_body => scan_avx2, scan_avx512:
        (before: Option<&[f32]>, m: &mut [f32], bcx: [&[f32]; 3], by: [f32; 3], y: &mut [f32])
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
                let (mut taps, mut bias) = ([[0f32; WIDE]; TAPS], [0f32; WIDE]);
                if p.biased == 1 {
                    bias[..n].copy_from_slice(&w[TAPS * channels + first..][..n]);
                }
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
                        Level::Avx2 | Level::AvxVnni => unsafe { conv_avx2(&seen, &taps, &bias, &mut y) },
                        // SAFETY: as above.
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx512 => unsafe { conv_avx512(&seen, &taps, &bias, &mut y) },
                        // the other levels' instructions are always on for their targets
                        _ => conv_body(&seen, &taps, &bias, &mut y),
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

/// `ops::ssm_discretize`, buffers as there. Panics when this CPU does not have `level`.
pub fn ssm_discretize(level: Level, p: &SsmDiscretizeParams, x: &[f32], a: &[f32], bias: &[f32], gates: &mut [f32]) {
    assert!(level.is_available(), "ssm_discretize: this CPU does not have {}", level.name());
    let (heads, bounds) = (p.heads as usize, [p.least, p.most]);
    for (x, gates) in x.chunks_exact(heads).zip(gates.chunks_exact_mut(2 * heads)).take(p.n_tokens as usize) {
        let (dt, gamma) = gates.split_at_mut(heads);
        let (a, bias) = (&a[..heads], &bias[..heads]);
        match level.vectors() {
            // SAFETY: the level is available, asserted above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { discretize_avx2(bounds, x, a, bias, dt, gamma) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { discretize_avx512(bounds, x, a, bias, dt, gamma) },
            // as for conv_silu
            _ => discretize_body(bounds, x, a, bias, dt, gamma),
        }
    }
}

/// `ops::ssm_scan`, buffers as there. Panics when this CPU does not have `level`.
pub fn ssm_scan(
    level: Level,
    p: &SsmScanParams,
    x: &[f32],
    bc: &[f32],
    gates: &[f32],
    d: &[f32],
    strands: Strands,
    memory: &mut [f32],
    y: &mut [f32],
) {
    assert!(level.is_available(), "ssm_scan: this CPU does not have {}", level.name());
    let (memory, y) = (Rest::new(memory), Rest::new(y));
    for strand in strands.take(p.strands) {
        team::for_each(p.heads as usize, |head| scan_head(level, p, [x, bc, gates, d], head, &strand, &memory, &y));
    }
}

/// The tokens of a strand, of one head.
fn scan_head(
    level: Level,
    p: &SsmScanParams,
    [x, bc, gates, d]: [&[f32]; 4],
    head: usize,
    strand: &Strand,
    memory: &Rest,
    y: &Rest,
) {
    let [heads, groups, head_dim, state] = [p.heads, p.groups, p.head_dim, p.state].map(|n| n as usize);
    let (words, group) = (state * head_dim, head / (heads / groups));
    // SAFETY: a head belongs to one task, and so do its words of both slots and of every row; the slots are distinct.
    let slot = |slot: usize| unsafe { memory.part((slot * heads + head) * words, words) };
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
        let [b, c] = [0, 1].map(|which| &bc[((2 * t + which) * groups + group) * state..][..state]);
        let row = (t * heads + head) * head_dim;
        let bcx = [b, c, &x[row..][..head_dim]];
        let by = [gates[2 * t * heads + head], gates[(2 * t + 1) * heads + head], d[head]];
        // SAFETY: as for the state.
        let y = unsafe { y.part(row, head_dim) };
        match level.vectors() {
            // SAFETY: the level is available, as its caller asserted.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => unsafe { scan_avx2(before, m, bcx, by, y) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { scan_avx512(before, m, bcx, by, y) },
            // as for conv_silu
            _ => scan_body(before, m, bcx, by, y),
        }
        before = None;
    }
}

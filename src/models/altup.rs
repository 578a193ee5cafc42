//! What a file says of alternating updates (AltUp; Gemma 3n): how many streams a token has, and which gates of a feed-forward
//! stay.

use crate::formats::Container;
use crate::formats::json::Fields;
use crate::ops::altup_predict::STREAMS;
use anyhow::{Context, bail, ensure};

/// Layers in front whose gates are bounded, where no file says which.
const SPARSE: usize = 10;

/// Of these, the share that a bound is to drop.
const DROPPED: f32 = 0.95;

/// Deviations above the mean that this bound is at: the quantile as transformers computes it in f32, which is what
/// conversions write.
const USUAL: f32 = 1.644_853_4;

/// The rank of the way beside attention, where a config does not say.
const RANK: u64 = 64;

/// Alternating updates of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct AltUp {
    /// for each layer, how many deviations above their mean the feed-forward's gates must be to stay, less that bound; `None`:
    /// all stay as they are
    pub bounds: Vec<Option<f32>>,
    /// rows of the first matrix of the way beside attention
    pub rank: usize,
}

impl AltUp {
    /// What no plan may be made of. Errors: one line.
    pub(super) fn check(&self, layers: usize) -> anyhow::Result<()> {
        let n = self.bounds.len();
        ensure!(n == layers, "{n} bounds of gates, and there are {layers} layers");
        for (l, bound) in self.bounds.iter().enumerate() {
            // far beyond any share, and such that products with it are normal numbers
            let fits = |b: f32| b == 0.0 || (1e-6..=1e6).contains(&b.abs());
            ensure!(
                bound.is_none_or(fits),
                "gates of layer {l} are bounded {bound:?} deviations above their mean, expected 0 or 1e-6 to 1e6"
            );
        }
        ensure!((1..=1 << 16).contains(&self.rank), "the rank beside attention is {}, expected 1..=65536", self.rank);
        Ok(())
    }

    /// For tables: `4 streams, gates above a bound in 10 of 30 layers`.
    pub fn text(&self) -> String {
        let n = self.bounds.iter().flatten().count();
        format!("{STREAMS} streams, gates above a bound in {n} of {} layers", self.bounds.len())
    }
}

/// That of a GGUF file of so many layers; a key that is missing is as llama.cpp has it.
///
/// Errors: other streams than four, or another that layers work on than the first; keys of another type.
pub(super) fn of_gguf(c: &Container, arch: &str, layers: usize) -> anyhow::Result<AltUp> {
    let (m, file) = (&c.meta, c.described_by().display());
    for (key, expected) in [("altup.num_inputs", STREAMS as u64), ("altup.active_idx", 0)] {
        let key = format!("{arch}.{key}");
        let Some(found) = m.get(&key) else { continue };
        let n = m.uint(&key);
        let n = n.with_context(|| format!("{file}: {key} is of type {}, expected {expected}", found.type_name()))?;
        ensure!(n == expected, "{file}: {key} is {n}, which is not supported (supported: {expected})");
    }
    let key = format!("{arch}.activation_sparsity_scale");
    let bounds = match (m.f32s(&key), m.get(&key)) {
        // the quantile of a share of 0
        (Some(list), _) => list.iter().map(|v| (*v != f32::NEG_INFINITY).then_some(*v)).collect(),
        (None, Some(found)) => bail!("{file}: {key} is of type {}, expected an array of f32", found.type_name()),
        (None, None) => (0..layers).map(|l| (l < SPARSE).then_some(USUAL)).collect(),
    };
    // which no key says
    let rank = c.tensor("blk.0.laurel_l.weight").and_then(|t| t.shape.get(1).copied()).unwrap_or(RANK);
    Ok(AltUp { bounds, rank: usize::try_from(rank).unwrap_or(usize::MAX) })
}

/// That of config.json of a model of so many layers.
///
/// Errors: as [`of_gguf`]; shares that are none.
pub(super) fn of_config(cfg: &Fields, layers: usize) -> anyhow::Result<AltUp> {
    let file = cfg.file();
    for (key, expected) in [("altup_num_inputs", STREAMS as u64), ("altup_active_idx", 0)] {
        let found = cfg.whole(key)?.unwrap_or(expected);
        ensure!(found == expected, "{file}: {key} = {found} is not supported (supported: {expected})");
    }
    let shares = match cfg.numbers("activation_sparsity_pattern")? {
        Some(list) => list,
        // transformers' default
        None if layers > SPARSE => (0..layers).map(|l| if l < SPARSE { DROPPED.into() } else { 0.0 }).collect(),
        None => vec![0.0; layers],
    };
    let bound = |share: &f64| {
        ensure!(*share < 1.0, "{file}: activation_sparsity_pattern has {share:?}, expected below 1");
        Ok((*share > 0.0).then(|| quantile(*share as f32)))
    };
    let rank = usize::try_from(cfg.whole("laurel_rank")?.unwrap_or(RANK)).unwrap_or(usize::MAX);
    Ok(AltUp { bounds: shares.iter().map(bound).collect::<anyhow::Result<_>>()?, rank })
}

/// Where the normal distribution has this share below it, above 0 and below 1: the number whose share is nearest, in f64,
/// rounded.
fn quantile(share: f32) -> f32 {
    let share = f64::from(share);
    let below = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    let (mut low, mut high) = (-40.0, 40.0);
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle as f32;
        }
        if below(middle) < share { low = middle } else { high = middle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (share, want) in [(0.95, 1.6448536), (0.5, 0.0), (0.975, 1.959964), (0.9, 1.2815516), (0.05, -1.6448536)] {
            let found = quantile(share);
            assert!((found - want).abs() < 4e-7, "{share}: {found} for {want}");
        }
        // of the f32 nearest to 0.95 it is the f32 next to the one that transformers computes in f32
        assert_eq!(quantile(DROPPED).to_bits(), USUAL.to_bits() + 1);
    }
}

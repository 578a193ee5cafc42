//! What a file says of LFM2's short convolutions, which most of its layers have in the place of attention, and of the
//! feed-forward's width.

use super::family::Family;
use crate::formats::Container;
use crate::formats::json::Fields;
use crate::formats::meta::Value;
use crate::ops::short_conv::TAPS;
use anyhow::{Context, bail, ensure};

/// Convolutions of each channel over three tokens, between two gates, in the place of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortConv {
    /// for each layer, whether it is one of these
    pub layers: Vec<bool>,
}

impl ShortConv {
    /// What no plan may be made of; `layers`: of the model. Errors: one line.
    pub(super) fn check(&self, layers: usize) -> anyhow::Result<()> {
        let n = self.layers.len();
        ensure!(n == layers, "{n} layers are said to have attention or a convolution, and there are {layers}");
        ensure!(self.layers.contains(&false), "all layers are convolutions, which is not supported");
        Ok(())
    }
}

/// Those of a GGUF file with so many layers, and the key-value heads of the others: a list of them has 0 for a convolution.
pub(super) fn of_gguf(c: &Container, family: Family, layers: usize) -> anyhow::Result<Option<(ShortConv, usize)>> {
    if !family.is_lfm2() {
        return Ok(None);
    }
    let (m, file, arch) = (&c.meta, c.described_by().display(), family.name());
    let (taps, heads) = (format!("{arch}.shortconv.l_cache"), format!("{arch}.attention.head_count_kv"));
    let found = m.get(&taps).with_context(|| format!("{file}: {taps} is missing"))?;
    let n = m.uint(&taps).with_context(|| format!("{file}: {taps} is of type {}", found.type_name()))?;
    ensure!(n == TAPS as u64, "{file}: {taps} is {n}, which is not supported (supported: {TAPS})");
    let found = m.get(&heads).with_context(|| format!("{file}: {heads} is missing"))?;
    let list = match found {
        Value::Array(_) | Value::I32Array(_) | Value::U32Array(_) => m.uints(&heads),
        _ => m.uint(&heads).map(|n| vec![n; layers]),
    };
    let list = list.with_context(|| {
        format!("{file}: {heads} is of type {}, expected whole numbers, one of each layer", found.type_name())
    })?;
    let most = list.iter().copied().max().unwrap_or(0);
    ensure!(
        list.iter().all(|n| [0, most].contains(n)),
        "{file}: {heads}: layers of different numbers of heads are not supported"
    );
    let kv_heads = usize::try_from(most).with_context(|| format!("{file}: {heads} is {most}"))?;
    Ok(Some((ShortConv { layers: list.iter().map(|n| *n == 0).collect() }, kv_heads)))
}

/// Those of config.json.
pub(super) fn of_config(cfg: &Fields, family: Family, layers: usize) -> anyhow::Result<Option<ShortConv>> {
    if !family.is_lfm2() {
        return Ok(None);
    }
    let file = cfg.file();
    let taps = cfg.whole("conv_L_cache")?.unwrap_or(TAPS as u64);
    ensure!(taps == TAPS as u64, "{file}: conv_L_cache = {taps} is not supported (supported: {TAPS})");
    let one = |kind: &serde_json::Value| match kind.as_str() {
        Some("conv") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => bail!("{file}: layer_types has {kind}, expected conv or full_attention"),
    };
    let layers = match (cfg.list("layer_types")?, cfg.numbers("full_attn_idxs")?) {
        (Some(list), _) => list.iter().map(one).collect::<anyhow::Result<Vec<bool>>>()?,
        (None, Some(list)) => (0..layers).map(|l| !list.contains(&(l as f64))).collect(),
        (None, None) => bail!("{file}: layer_types is missing"),
    };
    Ok(Some(ShortConv { layers }))
}

/// The feed-forward's width of a config that says `width`, which most take two thirds of, times a factor, to the next of
/// whole multiples (transformers' `Lfm2MLP`).
pub(super) fn feed_forward(cfg: &Fields, family: Family, width: usize) -> anyhow::Result<usize> {
    if family != Family::Lfm2 || !cfg.flag("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(width);
    }
    let file = cfg.file();
    let factor = cfg.number("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    ensure!((1e-3..=1e3).contains(&factor), "{file}: block_ffn_dim_multiplier is {factor:?}, expected 0.001 to 1000");
    let multiple = cfg.whole("block_multiple_of")?.unwrap_or(256);
    let fits = usize::try_from(multiple).ok().filter(|n| (1..=1 << 20).contains(n));
    let multiple = fits.with_context(|| format!("{file}: block_multiple_of is {multiple}, expected 1 to 1048576"))?;
    ensure!(width <= 1 << 24, "{file}: the feed-forward length is {width}, expected at most {}", 1 << 24);
    // both products are whole, as in Python
    let part = (factor * (2 * width / 3) as f64) as usize;
    Ok(part.next_multiple_of(multiple))
}

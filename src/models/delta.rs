//! What a file says of gated delta nets, the recurrent layers of a hybrid model.

use super::family::Family;
use crate::formats::Container;
use crate::formats::json::Fields;
use crate::formats::meta::Value;
use crate::ops::conv_silu::TAPS;
use anyhow::{Context, bail, ensure};

/// One layer in so many is one of attention, where nothing says which.
const PERIOD: usize = 4;

/// Recurrent layers in the place of attention: of each value head a matrix of keys by values is what is remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// heads of queries and of keys
    pub key_heads: usize,
    /// heads of values, each key head's equally many
    pub heads: usize,
    /// elements of a head
    pub size: usize,
    /// whether value head h goes by key head h mod key_heads; else neighbours share one
    pub tiled: bool,
    /// for each layer, whether it is one of these
    pub layers: Vec<bool>,
}

impl Delta {
    /// Elements of all queries of a token, or of all keys.
    pub fn keys(&self) -> usize {
        self.key_heads * self.size
    }

    /// Elements of all values of a token.
    pub fn values(&self) -> usize {
        self.heads * self.size
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// What no plan may be made of; `layers`: of the model, `head_dim`: elements of a head of attention. Errors: one line.
    pub(super) fn check(&self, layers: usize, head_dim: usize) -> anyhow::Result<()> {
        let (size, keys, heads) = (self.size, self.key_heads, self.heads);
        ensure!(
            self.layers.len() == layers,
            "{} layers are said to be recurrent or not, and there are {layers}",
            self.layers.len()
        );
        ensure!(
            size.is_multiple_of(32) && (32..=256).contains(&size),
            "recurrent heads of {size} are not supported (supported: multiples of 32, 256 at most)"
        );
        ensure!(head_dim.is_multiple_of(32), "heads of {head_dim} are not supported (supported: multiples of 32)");
        ensure!(
            keys >= 1 && keys <= heads && heads <= 1024 && heads.is_multiple_of(keys),
            "{heads} heads of values cannot share {keys} heads of keys evenly"
        );
        Ok(())
    }
}

/// Those of a GGUF file with so many layers, and so many behind them that guess.
pub(super) fn of_gguf(
    c: &Container,
    family: Family,
    [layers, guessing]: [usize; 2],
    n_rot: usize,
) -> anyhow::Result<Option<Delta>> {
    if !family.is_hybrid() {
        return Ok(None);
    }
    let (m, file, arch) = (&c.meta, c.described_by().display(), family.name());
    let whole = |key: &str| -> anyhow::Result<Option<usize>> {
        let key = format!("{arch}.{key}");
        let v = m.uint(&key).and_then(|v| usize::try_from(v).ok());
        ensure!(m.get(&key).is_none() || v.is_some(), "{file}: {key} is not a whole number");
        Ok(v)
    };
    let need = |key: &str| whole(key)?.with_context(|| format!("{file}: {arch}.{key} is missing"));
    let taps = need("ssm.conv_kernel")?;
    ensure!(taps == TAPS, "{file}: {arch}.ssm.conv_kernel is {taps}, which is not supported (supported: {TAPS})");
    let (size, heads) = (need("ssm.state_size")?, need("ssm.time_step_rank")?);
    let inner = need("ssm.inner_size")?;
    ensure!(
        size.checked_mul(heads) == Some(inner),
        "{file}: {arch}.ssm.inner_size is {inner}, expected {heads} heads of {size}"
    );
    check_sections(c, family, n_rot)?;
    let list = format!("{arch}.attention.recurrent_layers");
    let mut listed = match m.get(&list) {
        None => periodic(whole("full_attention_interval")?.unwrap_or(PERIOD), layers),
        Some(Value::Array(list)) if list.iter().all(|v| matches!(v, Value::Bool(_))) => {
            list.iter().map(|v| *v == Value::Bool(true)).collect()
        }
        Some(v) => match m.uints(&list) {
            Some(numbers) => numbers.iter().map(|n| *n != 0).collect(),
            None => bail!("{file}: {list} is of type {}, expected an array of bool", v.type_name()),
        },
    };
    // llama.cpp's converter lists the layers that guess, too
    if listed.len() == layers + guessing {
        listed.truncate(layers);
    }
    // what converters do to these alone: in a directory neighbours share a key head
    let tiled = family != Family::Qwen3Next;
    Ok(Some(Delta { key_heads: need("ssm.group_count")?, heads, size, tiled, layers: listed }))
}

/// Whether each of so many layers is recurrent, one in `period` being of attention.
fn periodic(period: usize, layers: usize) -> Vec<bool> {
    (1..=layers).map(|l| period == 0 || l % period != 0).collect()
}

/// Of text all sections of a rotation in several directions are at one position; a pair that belongs to none would not be.
fn check_sections(c: &Container, family: Family, n_rot: usize) -> anyhow::Result<()> {
    let key = format!("{}.rope.dimension_sections", family.name());
    let file = c.described_by().display();
    let Some(value) = c.meta.get(&key) else { return Ok(()) };
    let list = c.meta.uints(&key);
    let list =
        list.with_context(|| format!("{file}: {key} is of type {}, expected an array of i32", value.type_name()))?;
    let covered = |pair: usize| (pair as u64) < list.get(pair % 3).map_or(0, |n| n.saturating_mul(3));
    let bare = (0..n_rot / 2).find(|pair| !covered(*pair));
    ensure!(
        bare.is_none(),
        "{file}: {key}: no section has rotated pair {}, which is not supported",
        bare.unwrap_or_default()
    );
    Ok(())
}

/// Those of config.json.
pub(super) fn of_config(cfg: &Fields, family: Family, layers: usize) -> anyhow::Result<Option<Delta>> {
    if !family.is_hybrid() {
        return Ok(None);
    }
    let file = cfg.file();
    let whole = |key: &str, usual: usize| -> anyhow::Result<usize> { Ok(cfg.size(key)?.unwrap_or(usual)) };
    let taps = whole("linear_conv_kernel_dim", TAPS)?;
    ensure!(taps == TAPS, "{file}: linear_conv_kernel_dim = {taps} is not supported (supported: {TAPS})");
    let (size, values) = (whole("linear_key_head_dim", 128)?, whole("linear_value_head_dim", 128)?);
    ensure!(size == values, "{file}: key heads of {size} and value heads of {values} are not supported");
    let one = |kind: &serde_json::Value| match kind.as_str() {
        Some("linear_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => bail!("{file}: layer_types has {kind}, expected linear_attention or full_attention"),
    };
    let layers = match cfg.list("layer_types")? {
        Some(list) => list.iter().map(one).collect::<anyhow::Result<Vec<bool>>>()?,
        None => periodic(whole("full_attention_interval", PERIOD)?, layers),
    };
    let (key_heads, heads) = (whole("linear_num_key_heads", 16)?, whole("linear_num_value_heads", 32)?);
    // `formats` has put a directory's heads in the order of a file's
    Ok(Some(Delta { key_heads, heads, size, tiled: family != Family::Qwen3Next, layers }))
}

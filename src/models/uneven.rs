//! What is not the same in all layers of a model (Gemma 3n and 4): heads, widths of feed-forwards, whose keys and values a layer
//! reads, and a vector of each token for each layer.

use super::altup::{self, AltUp};
use super::family::Family;
use crate::formats::Container;
use crate::formats::json::Fields;
use anyhow::{Context, ensure};

/// Heads of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// of keys and values
    pub kv_heads: usize,
    /// elements of one
    pub head_dim: usize,
    /// of these, rotated ones
    pub n_rot: usize,
}

/// What differs from layer to layer; by default nothing does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uneven {
    /// heads of layers with a window, where they are others than the model's
    pub local: Option<Heads>,
    /// so many layers, the last ones, have no keys and values of their own: they read those of the last layer before them that
    /// has a window, or none, as they do
    pub sharing: usize,
    /// width of each layer's feed-forward; empty: the model's
    pub ffns: Vec<usize>,
    /// elements of the vector that a token has for each layer; 0: there is none
    pub embedding: usize,
    /// rows of the table of these, where they are fewer than tokens
    pub rows: Option<usize>,
    /// alternating updates, and which gates stay
    pub altup: Option<AltUp>,
}

impl Uneven {
    /// For tables: `heads of 256 in layers with a window, feed-forwards of 6144 to 12288, the last 20 read earlier keys and
    /// values, vectors of 256 of each token for each layer`; `None`: nothing differs.
    pub fn text(&self, layers: usize) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(l) = &self.local {
            parts.push(format!("{} key-value heads of {} in layers with a window", l.kv_heads, l.head_dim));
        }
        if let (Some(least), Some(most)) = (self.ffns.iter().min(), self.ffns.iter().max())
            && least < most
        {
            parts.push(format!("feed-forwards of {least} to {most}"));
        }
        if self.sharing > 0 {
            parts.push(format!("the last {} of {layers} read earlier keys and values", self.sharing));
        }
        if self.embedding > 0 {
            parts.push(format!("a vector of {} of each token for each layer", self.embedding));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// What no plan may be made of; `windows`: whether a layer has a window, empty where none has. Errors: one line.
    pub(super) fn check(&self, layers: usize, windows: &[bool], heads: usize, widest: usize) -> anyhow::Result<()> {
        let named = [(self.ffns.len(), "widths of feed-forwards"), (windows.len(), "windows")];
        for (n, what) in named {
            ensure!(n == 0 || n == layers, "{n} {what}, and there are {layers} layers");
        }
        if let Some(l) = self.local {
            ensure!(
                (1..=heads).contains(&l.kv_heads) && heads.is_multiple_of(l.kv_heads),
                "{heads} heads cannot share {} key-value heads of layers with a window evenly",
                l.kv_heads
            );
            ensure!(
                l.head_dim.is_multiple_of(2) && (2..=widest).contains(&l.head_dim),
                "heads of layers with a window have {} elements, expected an even number up to {widest}",
                l.head_dim
            );
            ensure!(
                l.n_rot.is_multiple_of(2) && (2..=l.head_dim).contains(&l.n_rot),
                "{} rotated dimensions do not fit a head of {}",
                l.n_rot,
                l.head_dim
            );
        }
        ensure!(self.ffns.iter().all(|n| (1..=1 << 22).contains(n)), "a feed-forward is not between 1 and 2^22 wide");
        ensure!(self.embedding <= 1 << 16, "a token's vector for a layer has {} elements, expected at most 65536", {
            self.embedding
        });
        self.altup.as_ref().map_or(Ok(()), |a| a.check(layers))?;
        ensure!(self.rows.is_none_or(|n| n >= 1), "the table of tokens' vectors has no rows");
        ensure!(self.sharing < layers, "{} of {layers} layers have no keys and values of their own", self.sharing);
        for l in layers - self.sharing..layers {
            let has = |l: &usize| windows.get(*l) == Some(&true);
            ensure!(
                (0..layers - self.sharing).any(|own| has(&own) == has(&l)),
                "layer {l} has no keys and values, and no layer of its kind before it has some"
            );
        }
        Ok(())
    }
}

/// Whether layers of a family's models may differ so.
pub(super) fn is_uneven(family: Family) -> bool {
    matches!(family, Family::Gemma3n | Family::Gemma4)
}

/// Layers of a Gemma 3n with keys and values of their own, where a file does not say.
const OWN: usize = 20;

/// That of a GGUF file whose layers have these windows; `kv_heads` are those of layers without.
///
/// Errors: a key that is missing, of another type, or of another length; numbers that follow no window.
pub(super) fn of_gguf(c: &Container, family: Family, windows: &[bool]) -> anyhow::Result<Option<(Uneven, usize)>> {
    if !is_uneven(family) {
        return Ok(None);
    }
    let (m, file, arch) = (&c.meta, c.described_by().display().to_string(), family.name());
    let opt = |key: &str| -> anyhow::Result<Option<usize>> {
        let key = format!("{arch}.{key}");
        let Some(found) = m.get(&key) else { return Ok(None) };
        let v = m.uint(&key).and_then(|v| usize::try_from(v).ok());
        v.map(Some).with_context(|| format!("{file}: {key} is of type {}, expected a whole number", found.type_name()))
    };
    let need = |key: &str| opt(key)?.with_context(|| format!("{file}: {arch}.{key} is missing"));
    // by layer, or one number for all
    let list = |key: &str| -> anyhow::Result<Vec<usize>> {
        let key = format!("{arch}.{key}");
        let found = m.get(&key).with_context(|| format!("{file}: {key} is missing"))?;
        let same = |v: u64| vec![v; windows.len()];
        let all = m.uints(&key).or_else(|| m.uint(&key).map(same));
        let all =
            all.and_then(|list| list.into_iter().map(|v| usize::try_from(v).ok()).collect::<Option<Vec<usize>>>());
        let all = all.with_context(|| {
            format!("{file}: {key} is of type {}, expected a whole number or one for each layer", found.type_name())
        })?;
        ensure!(
            all.len() == windows.len(),
            "{file}: {key} has {} numbers, expected one for each of {} layers",
            all.len(),
            windows.len()
        );
        Ok(all)
    };
    let by_kind = list("attention.head_count_kv")?;
    let of = |window: bool| by_kind.iter().zip(windows).find(|(_, w)| **w == window).map(|(n, _)| *n);
    for (l, (n, w)) in by_kind.iter().zip(windows).enumerate() {
        let first = of(*w).unwrap_or(*n);
        ensure!(
            *n == first,
            "{file}: {arch}.attention.head_count_kv is {n} in layer {l}, expected {first} as in the layers of its kind"
        );
    }
    let ffns = list("feed_forward_length")?;
    if family == Family::Gemma3n {
        let (layers, kv_heads) = (windows.len(), of(false).or(of(true)).unwrap_or(0));
        ensure!(
            by_kind.iter().all(|n| *n == kv_heads),
            "{file}: {arch}.attention.head_count_kv differs from layer to layer, which is not supported"
        );
        let rows = c.tensor("per_layer_token_embd.weight").and_then(|t| usize::try_from(*t.shape.get(1)?).ok());
        let uneven = Uneven {
            local: None,
            sharing: opt("attention.shared_kv_layers")?.unwrap_or(layers.saturating_sub(OWN)),
            ffns,
            embedding: opt("embedding_length_per_layer_input")?.unwrap_or(256),
            rows,
            altup: Some(altup::of_gguf(c, arch, layers)?),
        };
        return Ok(Some((uneven, kv_heads)));
    }
    let head_dim = need("attention.key_length_swa")?;
    let values = opt("attention.value_length_swa")?.unwrap_or(head_dim);
    ensure!(
        values == head_dim,
        "{file}: key heads of {head_dim} and value heads of {values} are not supported in layers with a window"
    );
    let local = Heads {
        kv_heads: of(true).or(of(false)).unwrap_or(0),
        head_dim,
        n_rot: opt("rope.dimension_count_swa")?.unwrap_or(head_dim),
    };
    let uneven = Uneven {
        local: Some(local),
        sharing: opt("attention.shared_kv_layers")?.unwrap_or(0),
        ffns,
        embedding: opt("embedding_length_per_layer_input")?.unwrap_or(0),
        ..Uneven::default()
    };
    Ok(Some((uneven, of(false).unwrap_or(local.kv_heads))))
}

/// What config.json says of layers without a window: key-value heads and elements of a head, which it says of the others
/// elsewhere.
pub(super) struct Wide {
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// That of config.json, of `heads` (key-value heads and elements of a head, as it says them of all layers) and with these
/// windows.
///
/// Errors: a layer whose sizes are none of the two kinds'.
pub(super) fn of_config(
    cfg: &Fields,
    family: Family,
    windows: &[bool],
    (kv_heads, head_dim): (usize, usize),
    ffn: usize,
) -> anyhow::Result<Option<(Uneven, Wide)>> {
    if !is_uneven(family) {
        return Ok(None);
    }
    let file = cfg.file();
    if family == Family::Gemma3n {
        let layers = windows.len();
        // one for all layers, or one for each
        let listed = cfg.get("intermediate_size").is_some_and(serde_json::Value::is_array);
        let list = if listed { cfg.numbers("intermediate_size")? } else { None };
        // what is no number of elements is too large for `check`
        let whole = |n: &f64| if n.fract() == 0.0 { *n as usize } else { usize::MAX };
        let ffns = list.map_or(vec![ffn; layers], |list| list.iter().map(whole).collect());
        let uneven = Uneven {
            local: None,
            sharing: cfg.size("num_kv_shared_layers")?.unwrap_or(15),
            ffns,
            embedding: cfg.size("hidden_size_per_layer_input")?.unwrap_or(256),
            rows: Some(cfg.size("vocab_size_per_layer_input")?.unwrap_or(262_144)),
            altup: Some(altup::of_config(cfg, layers)?),
        };
        return Ok(Some((uneven, Wide { kv_heads, head_dim })));
    }
    let mut wide = Wide { kv_heads, head_dim: cfg.size("global_head_dim")?.unwrap_or(512) };
    let alternative = cfg.flag("attention_k_eq_v")?.unwrap_or(false);
    if let (true, Some(n)) = (alternative, cfg.size("num_global_key_value_heads")?) {
        wide.kv_heads = n;
    }
    // as transformers writes it since 5.20: what differs, by layer
    if let Some(all) = cfg.object("per_layer_config")? {
        let mut first = None;
        for (l, _) in windows.iter().enumerate().filter(|(_, w)| !**w) {
            let key = l.to_string();
            let own = all.object(&key)?.unwrap_or(Fields::none(file));
            let found =
                (own.size("num_key_value_heads")?.unwrap_or(kv_heads), own.size("head_dim")?.unwrap_or(head_dim));
            let expected = *first.get_or_insert(found);
            ensure!(
                found == expected,
                "{file}: per_layer_config: layer {l} has other heads than the layers of its kind, which is not supported"
            );
        }
        if let Some((kv_heads, head_dim)) = first {
            wide = Wide { kv_heads, head_dim };
        }
    }
    let sharing = cfg.size("num_kv_shared_layers")?.unwrap_or(0);
    let double = cfg.flag("use_double_wide_mlp")?.unwrap_or(false);
    let own = windows.len().saturating_sub(sharing);
    let width = |l: usize| if double && l >= own { ffn.saturating_mul(2) } else { ffn };
    let uneven = Uneven {
        local: Some(Heads { kv_heads, head_dim, n_rot: head_dim }),
        sharing,
        ffns: (0..windows.len()).map(width).collect(),
        // where nothing is said, transformers' default
        embedding: match cfg.size("hidden_size_per_layer_input")? {
            Some(n) => n,
            None if cfg.is_null("hidden_size_per_layer_input") => 0,
            None if cfg.text("model_type")? == Some("gemma4_unified_text") => 0,
            None => 256,
        },
        ..Uneven::default()
    };
    Ok(Some((uneven, wide)))
}

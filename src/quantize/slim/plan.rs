//! What becomes of each tensor: names, types, places, and the description.

use super::config;
use super::linear::{Input, Linear, Made, Part};
use super::observed::Observed;
use super::smooth::{self, Smoothed};
use super::{Scheme, floats};
use crate::blocks::BlockType;
use crate::formats::policy::{Group, place};
use crate::formats::{Container, ContainerKind, Tensor, names, safetensors};
use crate::models::Hyper;
use crate::models::hyper::{LONG_FACTORS, SHORT_FACTORS};
use crate::quantize::convert::restored_row;
use crate::quantize::error::Refused;
use crate::quantize::plan::{bytes_piece, fingerprint, is_float, layout, side_files};
use crate::quantize::{Data, Job, Piece};
use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Columns of a block of the types that these tensors are read as.
const COLUMNS: u64 = 32;
/// Parts of the columns of a matrix whose results are summed over processors.
const PARTS: usize = 16;
/// Name of the file of weights, without its end.
const WEIGHTS: &str = "quant_model_weights";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// codes
    pub scheme: Scheme,
    /// columns that share a scale; `None`: those of a row
    pub group: Option<usize>,
    /// codes of 0 are 0; other schemes than W8A16 and W4A16 are always so
    pub symmetric: bool,
    /// how much of the activations' spread the matrices take over, 0 to 1; `None`: nothing
    pub smooth: Option<f64>,
    /// scales for a cache of 8 bits are written
    pub cache: bool,
    /// what a run over a text showed
    pub observed: Option<Observed>,
    /// quantised tensors may be decoded and quantised again
    pub requantize: bool,
    /// bytes of a file of weights, at most (or one larger tensor)
    pub file: u64,
    /// options as text: part of the fingerprint of an interrupted job
    pub words: String,
}

/// A tensor of the new directory.
struct Entry {
    name: String,
    dtype: String,
    /// the slowest dimension first
    shape: Vec<u64>,
    bytes: u64,
    data: Data,
    note: Option<String>,
    /// what the description says of it
    kind: &'static str,
}

/// A tensor of the source with its names.
struct Item<'c> {
    index: usize,
    t: &'c Tensor,
    /// as directories spell it
    name: String,
    /// as GGUF files spell it
    gguf: String,
    /// a matrix of a layer that is quantised
    group: Option<Group>,
}

impl Item<'_> {
    fn layer(&self) -> Option<usize> {
        names::layer_of(&self.gguf)
    }

    /// The name without `.weight`.
    fn stem(&self) -> &str {
        self.name.strip_suffix(".weight").unwrap_or(&self.name)
    }

    /// The norm whose result it reads, of those that nothing else reads, by its GGUF name.
    fn norm(&self) -> Option<String> {
        let norm = match self.group? {
            Group::Qkv => "attn_norm",
            Group::GateUp => "ffn_norm",
            _ => return None,
        };
        Some(format!("blk.{}.{norm}.weight", self.layer()?))
    }
}

/// Makes the job. Of tensor data only norms, biases and, for smooth quant, the matrices behind norms are read.
///
/// Errors: a source that has no such form; a group that does not divide the rows; nothing observed where that is needed; a
/// quantised source without leave.
pub fn plan(c: &Container, o: &Options) -> anyhow::Result<Job> {
    ensure!(!c.tensors.is_empty(), "{}: no tensors in it", c.files[0].display());
    ensure!(
        c.kind != ContainerKind::Safetensors,
        "{}: a lone safetensors file has no config; give the directory that holds config.json",
        c.files[0].display()
    );
    let h = Hyper::read(c)?;
    ensure!(config::has_form(&h), "{}: {}", c.files[0].display(), config::no_form(h.family.name()));
    let from_gguf = c.kind.is_named_as_gguf();
    let config = match &c.config {
        Some(config) if !from_gguf => config::plain(config),
        _ => config::of_gguf(c, &h)?,
    };
    let maker = Maker { c, o, h: &h, turned: from_gguf && !h.half_split, smoothed: BTreeMap::new() };
    let items = items(c, &h)?;
    let maker = Maker { smoothed: maker.smoothed(&items)?, ..maker };
    let mut entries = Vec::new();
    for item in &items {
        maker.item(item, &items, &mut entries)?;
    }
    if o.cache {
        maker.cache(&items, &mut entries)?;
    }
    ensure!(
        entries.iter().any(|e| matches!(e.data, Data::Made { .. })),
        "{}: no matrix of it can be quantised so",
        c.files[0].display()
    );
    let description = description(o, &entries);
    let (mut job, index) = files(c, entries, o.file)?;
    job.side = side_files(c)?.into_iter().filter(|(name, _)| name != "config.json").collect();
    let pretty = |v: &Value| serde_json::to_vec_pretty(v).context("writing JSON");
    job.side.push(("config.json".into(), pretty(&config)?));
    job.side.push(("quant_model_description.json".into(), pretty(&description)?));
    if let Some(index) = index {
        job.side.push((format!("{WEIGHTS}.safetensors.index.json"), pretty(&index)?));
    }
    job.layout.fingerprint = fingerprint(c, &o.words, &job);
    Ok(job)
}

/// The tensors with their names in a directory: a directory's keep theirs.
fn items<'c>(c: &'c Container, h: &Hyper) -> anyhow::Result<Vec<Item<'c>>> {
    let from_gguf = c.kind.is_named_as_gguf();
    let arch = c.meta.str("general.architecture").unwrap_or("");
    let mut items = Vec::new();
    for (index, t) in c.tensors.iter().enumerate() {
        if names::is_frequencies(&t.name) || [config::FREQUENCIES, LONG_FACTORS, SHORT_FACTORS].contains(&&t.name[..]) {
            continue;
        }
        let (name, gguf) = if from_gguf {
            (names::to_hf(arch, &t.name), Some(t.name.clone()))
        } else {
            (Some(t.name.clone()), names::to_gguf(h.family.name(), &t.name))
        };
        let (Some(name), Some(gguf)) = (name, gguf) else {
            bail!("{}: tensor {} has no name that is known here", c.files[t.file].display(), t.name)
        };
        let group = place(&name).filter(|p| p.layer.is_some() && t.shape.len() == 2).map(|p| p.group);
        items.push(Item { index, t, name, gguf, group });
    }
    // globals first, then layers in their order
    items.sort_by_key(|i| (i.layer().map_or(0, |l| l + 1), i.name.clone()));
    Ok(items)
}

/// Elements in the order of transformers, where a file has those of each head in pairs of neighbours.
fn restored<T: Copy>(x: &[T], heads: usize) -> Vec<T> {
    let n = x.len() / heads.max(1);
    (0..x.len()).map(|i| x[i / n.max(1) * n + restored_row(i % n.max(1), n)]).collect()
}

struct Maker<'a> {
    c: &'a Container,
    o: &'a Options,
    h: &'a Hyper,
    /// whether heads of queries and keys are turned in pairs of neighbours
    turned: bool,
    smoothed: Norms,
}

/// By a norm's GGUF name: bytes of its new weight, and the factors of the columns that read it.
type Norms = BTreeMap<String, (Vec<u8>, Arc<Vec<f32>>)>;

impl Maker<'_> {
    /// New norms and factors for all pairs of a norm and the matrices that read it.
    fn smoothed(&self, items: &[Item]) -> anyhow::Result<Norms> {
        let mut out = BTreeMap::new();
        let Some(alpha) = self.o.smooth else { return Ok(out) };
        let observed = self.o.observed.as_ref().context("smooth quant needs a text to observe the model over")?;
        for norm in items.iter().filter(|i| i.t.shape.len() == 1) {
            let readers: Vec<&Item> = items.iter().filter(|i| i.norm().as_ref() == Some(&norm.gguf)).collect();
            let (Some(first), Some(ty)) = (readers.first(), norm.t.dtype.block()) else { continue };
            let k = norm.t.elems();
            if readers.iter().any(|r| r.t.shape[0] != k || self.why_kept(r).is_some()) {
                continue;
            }
            let seen = observed.inputs.get(&first.index).map(|seen| seen.peaks());
            let seen = seen.filter(|s| s.len() as u64 == k).with_context(|| self.unseen(first))?;
            let matrices: Vec<&Tensor> = readers.iter().map(|r| r.t).collect();
            let peaks = smooth::column_peaks(self.c, &matrices, k as usize)?;
            let Smoothed { norm: bytes, factors } = smooth::smooth(&floats(self.c, norm.t)?, ty, &seen, &peaks, alpha);
            out.insert(norm.gguf.clone(), (bytes, Arc::new(factors)));
        }
        Ok(out)
    }

    fn unseen(&self, item: &Item) -> String {
        format!("{}: the text gave tensor {} no activations", self.c.files[item.t.file].display(), item.t.name)
    }

    /// Why a matrix stays as it is.
    fn why_kept(&self, item: &Item) -> Option<String> {
        let k = item.t.shape[0];
        (!k.is_multiple_of(COLUMNS) || k == 0).then(|| format!("rows of {k} are not whole blocks of {COLUMNS}"))
    }

    /// Heads whose rows are put in order again.
    fn heads(&self, item: &Item) -> Option<usize> {
        let what = item.gguf.split('.').nth(2)?;
        match what {
            "attn_q" if self.turned => Some(self.h.heads),
            "attn_k" if self.turned => Some(self.h.kv_heads),
            _ => None,
        }
    }

    /// Everything that one tensor of the source becomes.
    fn item(&self, item: &Item, items: &[Item], out: &mut Vec<Entry>) -> anyhow::Result<()> {
        if item.group.is_some() && self.why_kept(item).is_none() {
            return self.matrix(item, items, out);
        }
        out.push(self.kept(item)?);
        if let Some((bytes, _)) = self.smoothed.get(&item.gguf) {
            let (scheme, shape) = (self.o.scheme.name(), vec![item.t.elems()]);
            for (what, bytes) in [("weight", bytes.clone()), ("bias", vec![0; bytes.len()])] {
                let name = format!("{}.module.{what}", item.stem());
                out.push(Entry { kind: scheme, ..given(name, &item.t.dtype.to_string(), shape.clone(), bytes) });
            }
        }
        Ok(())
    }

    /// A tensor that stays as it is, or becomes F16 where it is quantised.
    fn kept(&self, item: &Item) -> anyhow::Result<Entry> {
        let t = item.t;
        let note = item.group.and_then(|_| self.why_kept(item));
        let shape: Vec<u64> = t.shape.iter().rev().copied().collect();
        let mut entry = Entry {
            name: item.name.clone(),
            dtype: t.dtype.to_string(),
            shape,
            bytes: t.bytes,
            data: Data::Tensor { index: item.index, to: None, heads: None, importances: None },
            note,
            kind: "FLOAT",
        };
        if let (Some(heads), true) = (self.heads(item), t.shape.len() == 1) {
            let values = restored(&floats(self.c, t)?, heads);
            let ty = t.dtype.block().context("a bias of no type")?;
            let mut bytes = vec![0; t.bytes as usize];
            ty.encode_row(&values, &mut bytes);
            entry.data = Data::Bytes(bytes);
        }
        if !is_float(t.dtype) {
            self.may_decode(t)?;
            entry.dtype = "F16".into();
            entry.bytes = t.elems().checked_mul(2).context("the size of a tensor")?;
            entry.data = Data::Tensor { index: item.index, to: Some(BlockType::F16), heads: None, importances: None };
        }
        Ok(entry)
    }

    fn may_decode(&self, t: &Tensor) -> anyhow::Result<()> {
        let file = self.c.files[t.file].display();
        ensure!(t.dtype.block().is_some(), "{file}: tensor {} is {}, which cannot be converted", t.name, t.dtype);
        let line = || {
            let line = "is quantised already; give the original model, or allow it";
            format!("{file}: tensor {} is {}, so it {line}", t.name, t.dtype)
        };
        ensure!(is_float(t.dtype) || self.o.requantize, Refused::Requantize(line()));
        Ok(())
    }

    /// How a matrix is quantised.
    fn linear(&self, item: &Item, items: &[Item]) -> anyhow::Result<Linear> {
        let (o, t) = (self.o, item.t);
        let file = self.c.files[t.file].display();
        let (k, n) = (usize::try_from(t.shape[0])?, t.shape[1]);
        let group = o.group.unwrap_or(k);
        ensure!(
            group > 0 && k.is_multiple_of(group),
            "{file}: tensor {}: a group of {group} does not divide its rows of {k}",
            t.name
        );
        ensure!(
            o.scheme != Scheme::W4A8Dynamic || n.is_multiple_of(2),
            "{file}: tensor {} has {n} rows, and {} takes two at a time",
            t.name,
            o.scheme.name()
        );
        let columns = item.norm().and_then(|norm| self.smoothed.get(&norm)).map(|(_, factors)| factors.clone());
        let (mut input, mut bias) = (None, None);
        if o.scheme == Scheme::W8A8 {
            let observed =
                o.observed.as_ref().context("fixed scales of activations need a text to observe the model over")?;
            let seen = observed.inputs.get(&item.index).with_context(|| self.unseen(item))?;
            let (min, max) = seen.range(columns.as_ref().map(|c| &c[..]));
            input = Some(Input::of(min, max));
            let name = format!("{}.bias", item.stem());
            if let Some(b) = items.iter().find(|i| i.name == name) {
                let values = floats(self.c, b.t)?;
                ensure!(values.len() as u64 == n, "{file}: tensor {name} has {} elements, expected {n}", values.len());
                bias = Some(Arc::new(self.heads(item).map_or(values.clone(), |heads| restored(&values, heads))));
            }
        }
        let symmetric = o.symmetric || !o.scheme.is_weights_alone();
        Ok(Linear { scheme: o.scheme, group, symmetric, columns, input, bias })
    }

    /// The tensors of a quantised matrix.
    fn matrix(&self, item: &Item, items: &[Item], out: &mut Vec<Entry>) -> anyhow::Result<()> {
        self.may_decode(item.t)?;
        let linear = Arc::new(self.linear(item, items)?);
        let (k, n) = (item.t.shape[0], item.t.shape[1]);
        let heads = self.heads(item);
        ensure!(
            heads.is_none_or(|h| h > 0 && n.is_multiple_of(h as u64)),
            "{}: heads do not divide its rows",
            item.name
        );
        let wide = config::torch_dtype(self.c) == "float16";
        let parts = if matches!(item.group, Some(Group::O | Group::Down)) { PARTS } else { 1 };
        let mut list = vec![("weight", Part::Codes)];
        match self.o.scheme {
            Scheme::W8A8 => list.extend([("deq_scale", Part::DeqScale { wide }), ("quant_bias", Part::QuantBias)]),
            _ => list.extend([("weight_scale", Part::Scale), ("weight_offset", Part::Offset)]),
        }
        if self.o.scheme == Scheme::W4A8Dynamic {
            list.push(("scale_bias", Part::Compensation { parts }));
        }
        let kind = self.o.scheme.name();
        for (what, part) in list {
            let made = Made { linear: linear.clone(), part };
            let (dtype, shape) = (made.dtype().to_string(), made.shape(n, k));
            let bytes =
                shape.iter().try_fold(made.element(), |n, &d| n.checked_mul(d)).context("the size of a tensor")?;
            let data = Data::Made { index: item.index, heads, made };
            let name = format!("{}.{what}", item.stem());
            out.push(Entry { name, dtype, shape, bytes, data, note: None, kind });
        }
        if let Some(Input { scale, offset }) = linear.input {
            for (what, v) in [("input_scale", scale), ("input_offset", offset)] {
                let name = format!("{}.{what}", item.stem());
                out.push(Entry { kind, ..given(name, "F32", vec![1], v.to_le_bytes().to_vec()) });
            }
        }
        Ok(())
    }

    /// Scales and offsets of a cache of 8 bits, one for each channel of the keys and of the values.
    fn cache(&self, items: &[Item], out: &mut Vec<Entry>) -> anyhow::Result<()> {
        let observed = self.o.observed.as_ref().context("a cache of 8 bits needs a text to observe the model over")?;
        for l in 0..self.h.layers {
            let of = |what: &str| items.iter().find(|i| i.gguf == format!("blk.{l}.{what}.weight")).map(Item::stem);
            for (what, gguf, seen) in
                [("k_proj", "attn_k", observed.keys.get(&l)), ("v_proj", "attn_v", observed.values.get(&l))]
            {
                let stem = match (of(gguf), of("attn_qkv")) {
                    (Some(stem), _) => stem.to_string(),
                    (None, Some(fused)) => format!("{fused}.{what}"),
                    (None, None) => bail!("layer {l} has no matrix of keys and values"),
                };
                let mut each = seen.map(|s| s.each()).filter(|e| e.len() == self.h.kv_heads * self.h.head_dim);
                if let Some(e) = each.as_mut().filter(|_| self.turned && what == "k_proj") {
                    *e = restored(e, self.h.kv_heads);
                }
                let each = each.with_context(|| format!("the text gave layer {l} no keys and values"))?;
                let shape = vec![each.len() as u64];
                let scales: Vec<u8> = each.iter().flat_map(|i| i.scale.to_le_bytes()).collect();
                let offsets: Vec<u8> = each.iter().flat_map(|i| i.offset.to_le_bytes()).collect();
                for (name, bytes) in [("kv_cache_scale", scales), ("kv_cache_offset", offsets)] {
                    let entry = given(format!("{stem}.{name}"), "F32", shape.clone(), bytes);
                    out.push(Entry { kind: "C8", ..entry });
                }
            }
        }
        Ok(())
    }
}

/// A small tensor that is known.
fn given(name: String, dtype: &str, shape: Vec<u64>, bytes: Vec<u8>) -> Entry {
    let len = bytes.len() as u64;
    Entry { name, dtype: dtype.into(), shape, bytes: len, data: Data::Bytes(bytes), note: None, kind: "FLOAT" }
}

fn description(o: &Options, entries: &[Entry]) -> Value {
    let mut out = Map::new();
    out.insert("model_quant_type".into(), json!(o.scheme.name()));
    out.insert("version".into(), json!("1.0.0"));
    out.insert("group_size".into(), json!(o.group.unwrap_or(0)));
    out.insert("metadata".into(), json!({}));
    out.insert("optional".into(), json!({}));
    if o.cache {
        out.insert("kv_cache_type".into(), json!("C8"));
        out.insert("kv_quant_type".into(), json!("C8"));
    }
    out.extend(entries.iter().map(|e| (e.name.clone(), json!(e.kind))));
    Value::Object(out)
}

/// The entries in files of at most `most` bytes, and the index where there are several.
fn files(c: &Container, entries: Vec<Entry>, most: u64) -> anyhow::Result<(Job, Option<Value>)> {
    let total = entries.iter().try_fold(0u64, |n, e| n.checked_add(e.bytes)).filter(|n| *n < 1 << 62);
    let total = total.context("the new model would be larger than a file can be")?;
    let mut shards: Vec<Vec<Entry>> = vec![vec![]];
    let mut at = 0u64;
    for e in entries {
        let full = at + e.bytes > most && shards.last().is_some_and(|s| !s.is_empty());
        if full {
            shards.push(vec![]);
        }
        at = if full { e.bytes } else { at + e.bytes };
        shards.last_mut().context("there is a first file")?.push(e);
    }
    let (count, mut pieces, mut list, mut map) = (shards.len(), Vec::new(), Vec::new(), Map::new());
    for (i, mut shard) in shards.into_iter().enumerate() {
        let file = match count {
            1 => format!("{WEIGHTS}.safetensors"),
            _ => format!("{WEIGHTS}-{:05}-of-{count:05}.safetensors", i + 1),
        };
        // the widest elements first, so that every tensor begins at a multiple of its own
        shard.sort_by_key(|e| std::cmp::Reverse(width(&e.dtype)));
        let head: Vec<(String, String, Vec<u64>, u64)> =
            shard.iter().map(|e| (e.name.clone(), e.dtype.clone(), e.shape.clone(), e.bytes)).collect();
        let head = safetensors::head(&head);
        let mut offset = head.len() as u64;
        pieces.push(bytes_piece(file.clone(), 0, head));
        for Entry { name, bytes, data, note, .. } in shard {
            map.insert(name.clone(), json!(file));
            pieces.push(Piece { name, file: file.clone(), offset, bytes, data, note });
            offset += bytes;
        }
        list.push((file, offset));
    }
    let index = (count > 1).then(|| json!({"metadata": {"total_size": total}, "weight_map": map}));
    Ok((Job { layout: layout(c, true, list), pieces, side: vec![], meta: None }, index))
}

/// Bytes of an element.
fn width(dtype: &str) -> u32 {
    match dtype {
        "I64" => 8,
        "F32" | "I32" => 4,
        "F16" | "BF16" => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::LoadMode;
    use std::path::Path;

    #[test]
    fn a_model_that_is_too_large_for_a_file_is_cut_and_indexed() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/hf");
        let c = Container::open(Path::new(dir), LoadMode::Read).unwrap();
        let options = Options {
            scheme: Scheme::W8A16,
            group: Some(32),
            symmetric: false,
            smooth: None,
            cache: false,
            observed: None,
            requantize: false,
            file: 1 << 20,
            words: String::new(),
        };
        let job = plan(&c, &options).unwrap();
        let side = |name: &str| job.side.iter().find(|f| f.0 == name).map(|f| serde_json::from_slice(&f.1).unwrap());
        let index: Value = side("quant_model_weights.safetensors.index.json").unwrap();
        let map = index["weight_map"].as_object().unwrap();
        assert!(job.layout.files.len() >= 3);
        let mut total = 0;
        for (file, len) in &job.layout.files {
            let mut end = 0;
            for p in job.pieces.iter().filter(|p| p.file == *file) {
                assert_eq!(p.offset, end, "{} follows what is before it", p.name);
                end += p.bytes;
                if !p.name.is_empty() {
                    assert_eq!(map[&p.name], *file);
                    total += p.bytes;
                }
            }
            assert_eq!(end, *len);
            assert!(*len <= (1 << 20) + (32 << 10), "{file} has {len} bytes");
        }
        assert_eq!(index["metadata"]["total_size"], total);
        let whole = plan(&c, &Options { file: 1 << 40, ..options }).unwrap();
        assert_eq!(whole.layout.files.len(), 1);
        assert!(!whole.side.iter().any(|f| f.0.ends_with("index.json")));
        let tensors = |job: &Job| job.pieces.iter().filter(|p| !p.name.is_empty()).count();
        assert_eq!((tensors(&job), map.len()), (tensors(&whole), tensors(&whole)));
    }

    #[test]
    fn rows_of_a_head_go_back_to_halves() {
        let restored = restored(&[0, 4, 1, 5, 2, 6, 3, 7, 10, 14, 11, 15, 12, 16, 13, 17], 2);
        assert_eq!(restored, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17]);
    }
}

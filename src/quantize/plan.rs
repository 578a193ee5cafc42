//! What becomes of each tensor: names, types, places.

use super::choose::{self, Mix, Model, Pattern};
use super::convert::{self, Converted};
use super::error::Refused;
use super::kv::Override;
use super::vocab::{CHAT_TEMPLATE, MAX_SPM, MAX_TEMPLATE, SPM, beside};
use super::{Data, Job, Piece};
use crate::blocks::BlockType;
use crate::formats::gguf_write::{self, Entry};
use crate::formats::imatrix::Imatrix;
use crate::formats::meta::{Meta, Value};
use crate::formats::output::Layout;
use crate::formats::packed::{self, Kind};
use crate::formats::policy::Policy;
use crate::formats::{Container, ContainerKind, Dtype, Tensor, hf, names, safetensors};
use crate::models::hyper::{LONG_FACTORS, SHORT_FACTORS};
use crate::models::weights::fading;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

/// The layout of the new model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// one GGUF file, or a directory of them
    Gguf,
    /// a directory with `model.safetensors`, matrices packed
    Packed,
    /// a directory with a block file per matrix, the rest in `model.safetensors`
    Blocks,
}

/// Into how many files a GGUF model goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Split {
    /// one
    No,
    /// a directory with as many as the source has, each with the same tensors; their names begin with this
    Keep(String),
    /// a directory with files of at most so many bytes of tensors (or one tensor); their names begin with this
    Max(String, u64),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// layout
    pub target: Target,
    /// types; `None` (packed layouts only): by the policy
    pub mix: Option<Mix>,
    /// nibble's routing, for packed layouts
    pub policy: Policy,
    /// patterns, the first that matches counts; they go before everything but the two below
    pub patterns: Vec<Pattern>,
    /// no type is raised for any tensor
    pub pure: bool,
    /// `output.weight` stays as it is
    pub leave_output: bool,
    /// type of `output.weight`
    pub output_type: Option<BlockType>,
    /// type of `token_embd.weight`
    pub embedding_type: Option<BlockType>,
    /// how important the columns of the model's matrices are; of a GGUF model alone
    pub importances: Option<Arc<Imatrix>>,
    /// types chosen beforehand, by the names of a GGUF file: in the place of what the mix says
    pub chosen: Option<BTreeMap<String, BlockType>>,
    /// quantised tensors may be decoded and quantised again
    pub requantize: bool,
    /// files of a GGUF model
    pub split: Split,
    /// metadata of a GGUF model that are to be others
    pub overrides: Vec<Override>,
    /// options as text: part of the fingerprint of an interrupted job
    pub words: String,
}

/// A tensor of the source on its way.
struct Item {
    /// index in the container, or bytes that the conversion made
    data: Data,
    hf: String,
    gguf: String,
    /// fastest first
    shape: Vec<u64>,
    /// type in the new model
    dtype: Dtype,
    note: Option<String>,
}

/// Makes the job. Nothing is written, and of tensor data only norms are read that become others.
///
/// Errors: a source that has no conversion; a type the layout cannot hold; a quantised source without leave.
pub fn plan(c: &Container, o: &Options) -> anyhow::Result<Job> {
    ensure!(!c.tensors.is_empty(), "{}: no tensors in it", c.files[0].display());
    let mut job = match o.target {
        Target::Gguf => to_gguf(c, o)?,
        Target::Packed | Target::Blocks => to_packed(c, o)?,
    };
    job.layout.fingerprint = fingerprint(c, &format!("{:?} {:?}", o.words, o.target), &job);
    Ok(job)
}

/// Tells one job from another: sources, options, and the head of every file.
pub(super) fn fingerprint(c: &Container, words: &str, job: &Job) -> String {
    let mut text = format!("{} {words}", env!("CARGO_PKG_VERSION"));
    for (file, stamp) in c.files.iter().zip(c.stamps()) {
        text += &format!("\n{} {stamp}", file.display());
    }
    for t in &c.tensors {
        text += &format!("\n{} {} {:?} {}", t.name, t.dtype, t.shape, t.offset);
    }
    for p in &job.pieces {
        let to = p.dtype(c).map_or(String::new(), |t| t.to_string());
        text += &format!("\n{} {to} {} {} {}", p.name, p.file, p.offset, p.bytes);
        match &p.data {
            Data::Bytes(b) => text += &format!(" {:032x}", xxh3_128(b)),
            Data::Tensor { importances: Some(v), .. } => {
                text += &format!(" {:032x}", xxh3_128(bytemuck::cast_slice(v)));
            }
            _ => {}
        }
    }
    format!("{:032x}", xxh3_128(text.as_bytes()))
}

pub(super) fn is_float(t: Dtype) -> bool {
    t.block().is_some_and(BlockType::is_float)
}

/// `to` for a tensor, unless it has that type already.
fn change(t: &Tensor, to: BlockType) -> Option<BlockType> {
    (t.dtype.block() != Some(to)).then_some(to)
}

/// Refuses to decode what is quantised already, unless that was allowed.
fn may_change(c: &Container, o: &Options, t: &Tensor, to: Option<BlockType>) -> anyhow::Result<()> {
    let Some(to) = to else { return Ok(()) };
    let file = c.files[t.file].display();
    ensure!(t.dtype.block().is_some(), "{file}: tensor {} is {}, which cannot be converted", t.name, t.dtype);
    let line = || {
        let (from, to) = (t.dtype, to.name());
        format!(
            "{file}: tensor {} is {from} already and would become {to}; give the original model, or allow it",
            t.name
        )
    };
    ensure!(is_float(t.dtype) || o.requantize, Refused::Requantize(line()));
    Ok(())
}

/// Refuses to copy what no file holds as one tensor.
fn stored(c: &Container, t: &Tensor) -> anyhow::Result<()> {
    ensure!(
        t.dtype.block().is_none_or(BlockType::is_stored),
        "{}: tensor {} is {}, which only msModelSlim's directories hold; give it another type",
        c.files[t.file].display(),
        t.name,
        t.dtype
    );
    Ok(())
}

// ---------------------------------------------------------------- GGUF

/// Whether matrices of this type may be in a GGUF file. Q8_K has a number there, but nobody computes with such weights.
fn has_gguf(t: BlockType) -> bool {
    t != BlockType::Q8_K && Dtype::from_block(t).is_some_and(|d| d.ggml_id().is_some())
}

fn to_gguf(c: &Container, o: &Options) -> anyhow::Result<Job> {
    let mix = o.mix.unwrap_or(Mix::Q4_K_M);
    if let Some(t) = mix.base().filter(|t| !has_gguf(*t)) {
        let line = format!("{} has no place in a GGUF file", t.name());
        ensure!(packed::kind_of(t).is_none(), Refused::NotInGguf(format!("{line}; write a packed model")));
        bail!("{line}; give another type");
    }
    let (mut meta, mut items) = gguf_items(c)?;
    meta.entries.retain(|(k, _)| !k.starts_with("split."));
    for o in &o.overrides {
        o.apply(&mut meta).map_err(|e| Refused::Override(format!("{e:#}")))?;
    }
    let model = Model::read(&meta, items.iter().map(|i| i.gguf.as_str()));
    let mut known = 0;
    for item in &mut items {
        let Data::Tensor { index, heads, .. } = item.data else { continue };
        let t = &c.tensors[index];
        let all = importances_of(o, item)?;
        known += usize::from(all.is_some());
        let (chosen, note) = gguf_type(c, o, mix, &model, item, all.is_some())?;
        let to = chosen.and_then(|to| change(t, to));
        may_change(c, o, t, to)?;
        if to.is_none() {
            stored(c, t)?;
        }
        item.dtype = to.map_or(Some(t.dtype), Dtype::from_block).context("no such type")?;
        // of types whose bytes they do not change they are left out
        let importances = all.filter(|_| to.is_some_and(|ty| ty.format().weighted.is_some()));
        item.data = Data::Tensor { index, to, heads, importances };
        item.note = note;
    }
    if let Some(all) = &o.importances {
        let (file, model) = (&all.file, c.files[0].display());
        let first = all.names().next().unwrap_or_default();
        ensure!(known > 0, "{file}: no tensor of {model} is in it (it has {first}): it is of another model");
    }
    let given = |key: &str| o.overrides.iter().any(|o| o.key() == key);
    let mut put = |key: &str, v: Option<Value>| {
        if !given(key) {
            meta.entries.retain(|(k, _)| k != key);
            meta.entries.extend(v.map(|v| (key.into(), v)));
        }
    };
    if mix != Mix::Copy {
        // a model whose types were chosen one by one is none of llama.cpp's mixes, and no number says so
        let number = mix.file_type().filter(|_| o.chosen.is_none());
        put("general.file_type", number.map(Value::U32));
        put("general.quantization_version", Some(Value::U32(2)));
    }
    if let Some(all) = &o.importances {
        let short = |s: &str| Value::Str(s.chars().scan(0, cut_at(127)).collect());
        put("quantize.imatrix.file", Some(short(&all.file)));
        put("quantize.imatrix.dataset", all.datasets.first().map(|d| short(d)));
        put("quantize.imatrix.entries_count", Some(Value::U32(all.len() as u32)));
        put("quantize.imatrix.chunks_count", all.chunks.map(Value::U32));
    }
    let (prefix, shards) = match &o.split {
        Split::No => {
            let job = one_file(c, &meta, items)?;
            return Ok(Job { meta: Some(meta), ..job });
        }
        Split::Keep(prefix) => (prefix, by_file(c, items)),
        Split::Max(prefix, most) => (prefix, by_size(*most, items)?),
    };
    Ok(Job { meta: Some(meta.clone()), ..sharded(c, &meta, prefix, shards)? })
}

/// What lets characters pass until they have so many bytes.
fn cut_at(most: usize) -> impl FnMut(&mut usize, char) -> Option<char> {
    move |bytes, c| {
        *bytes += c.len_utf8();
        (*bytes <= most).then_some(c)
    }
}

/// A tensor whose type nothing but the mix decides.
pub(super) struct Free {
    /// in a GGUF file
    pub name: String,
    /// in the container
    pub index: usize,
    /// it is the output matrix, or the embedding in its place
    pub output: bool,
    /// of its columns, one matrix after the other
    pub importances: Option<Arc<[f32]>>,
    elems: u64,
}

impl Free {
    /// Elements.
    pub fn elems(&self) -> u64 {
        self.elems
    }
}

/// The tensors of a GGUF model whose types nothing but the mix decides.
pub(super) fn free(c: &Container, o: &Options) -> anyhow::Result<Vec<Free>> {
    let mix = o.mix.unwrap_or(Mix::Q4_K_M);
    let (meta, items) = gguf_items(c)?;
    let model = Model::read(&meta, items.iter().map(|i| i.gguf.as_str()));
    let mut all = Vec::new();
    for item in items {
        let Data::Tensor { index, .. } = item.data else { continue };
        let t = &c.tensors[index];
        if t.elems() == 0 || !matches!(asked_for(c, o, mix, &model, &item)?, Asked::Mix) {
            continue;
        }
        // refused before any time is spent on it
        may_change(c, o, t, Some(BlockType::F32))?;
        let importances = importances_of(o, &item)?;
        let output = item.gguf == "output.weight" || model.tied && item.gguf == EMBEDDING;
        all.push(Free { name: item.gguf, index, output, importances, elems: t.elems() });
    }
    Ok(all)
}

/// The metadata of the new file and its tensors, their types not yet chosen.
fn gguf_items(c: &Container) -> anyhow::Result<(Meta, Vec<Item>)> {
    match c.kind {
        ContainerKind::Gguf | ContainerKind::Bump => Ok((c.meta.clone(), from_gguf(c))),
        ContainerKind::HuggingFace => {
            let converted = convert::convert(c)?;
            let items = from_hf(c, &converted)?;
            Ok((converted.meta, items))
        }
        ContainerKind::Safetensors => {
            let file = c.files[0].display();
            bail!("{file}: a lone safetensors file has no config; give the directory that holds config.json")
        }
    }
}

/// The importances of a tensor's columns.
///
/// Errors: as many as it has no columns. llama.cpp passes over those of an embedding.
fn importances_of(o: &Options, item: &Item) -> anyhow::Result<Option<Arc<[f32]>>> {
    let Some((all, found)) = o.importances.as_ref().and_then(|all| Some((all, all.get(&item.gguf)?))) else {
        return Ok(None);
    };
    let dim = |i: usize| item.shape.get(i).copied().unwrap_or(1);
    let want = dim(0).checked_mul(dim(2));
    if want != Some(found.len() as u64) {
        ensure!(
            item.gguf == EMBEDDING,
            "{}: {} has {} importances, and the tensor {} columns in {} matrices: it is of another model",
            all.file,
            item.gguf,
            found.len(),
            dim(0),
            dim(2)
        );
        return Ok(None);
    }
    Ok(Some(found.clone()))
}

/// Head and tensors of one file of the layout.
fn place(file: &str, meta: &Meta, items: Vec<Item>, pieces: &mut Vec<Piece>) -> anyhow::Result<(String, u64)> {
    let entries: Vec<Entry> =
        items.iter().map(|i| Entry { name: i.gguf.clone(), dtype: i.dtype, shape: i.shape.clone() }).collect();
    let head = gguf_write::head("the new file", meta, &entries)?;
    pieces.push(bytes_piece(file.into(), 0, head.bytes));
    for ((item, &offset), &bytes) in items.into_iter().zip(&head.offsets).zip(&head.sizes) {
        pieces.push(Piece { name: item.gguf, file: file.into(), offset, bytes, data: item.data, note: item.note });
    }
    Ok((file.into(), head.file_len))
}

fn one_file(c: &Container, meta: &Meta, items: Vec<Item>) -> anyhow::Result<Job> {
    let mut pieces = Vec::new();
    let file = place("", meta, items, &mut pieces)?;
    Ok(Job { layout: layout(c, false, vec![file]), pieces, side: vec![], meta: None })
}

/// The items of each of the source's files; what has none goes into the first.
fn by_file(c: &Container, items: Vec<Item>) -> Vec<Vec<Item>> {
    let mut shards: Vec<Vec<Item>> = c.files.iter().map(|_| vec![]).collect();
    for item in items {
        let file = match item.data {
            Data::Tensor { index, .. } | Data::Made { index, .. } => c.tensors[index].file,
            Data::Bytes(_) => 0,
        };
        shards[file].push(item);
    }
    shards
}

/// The items cut where the next one would make a file too large.
fn by_size(most: u64, items: Vec<Item>) -> anyhow::Result<Vec<Vec<Item>>> {
    let mut shards: Vec<Vec<Item>> = vec![vec![]];
    let mut at = 0u64;
    for item in items {
        let bytes = item.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).and_then(|n| item.dtype.bytes_for(n));
        let bytes = bytes.with_context(|| format!("tensor {}: shape {:?} has no size", item.gguf, item.shape))?;
        let next = at.saturating_add(bytes);
        let full = next > most && shards.last().is_some_and(|s| !s.is_empty());
        if full {
            shards.push(vec![]);
        }
        at = if full { bytes } else { next };
        shards.last_mut().context("there is a first file")?.push(item);
    }
    Ok(shards)
}

/// A directory of files as llama.cpp names and marks them: the first has the metadata.
fn sharded(c: &Container, meta: &Meta, prefix: &str, shards: Vec<Vec<Item>>) -> anyhow::Result<Job> {
    let count = u16::try_from(shards.len()).ok();
    let count = count.with_context(|| format!("{} files, expected at most {}", shards.len(), u16::MAX))?;
    let tensors = i32::try_from(shards.iter().map(Vec::len).sum::<usize>()).context("the number of tensors")?;
    let (mut pieces, mut files) = (Vec::new(), Vec::new());
    for (no, items) in (0..count).zip(shards) {
        let mut meta = meta.clone();
        if no > 0 {
            meta.entries.retain(|(k, _)| k == "general.alignment");
        }
        let split = [
            ("split.no", Value::U16(no)),
            ("split.count", Value::U16(count)),
            ("split.tensors.count", Value::I32(tensors)),
        ];
        meta.entries.extend(split.map(|(k, v)| (k.to_string(), v)));
        let name = format!("{prefix}-{:05}-of-{count:05}.gguf", no + 1);
        files.push(place(&name, &meta, items, &mut pieces)?);
    }
    Ok(Job { layout: layout(c, true, files), pieces, side: vec![], meta: None })
}

/// The layout of these files; its fingerprint comes when the job is known.
pub(super) fn layout(c: &Container, directory: bool, files: Vec<(String, u64)>) -> Layout {
    Layout { directory, files, fingerprint: String::new(), sources: c.files.clone() }
}

pub(super) fn bytes_piece(file: String, offset: u64, bytes: Vec<u8>) -> Piece {
    let len = bytes.len() as u64;
    Piece { name: String::new(), file, offset, bytes: len, data: Data::Bytes(bytes), note: None }
}

/// The type of a tensor in a GGUF file (`None`: as it is), and why it is not what was asked for.
fn gguf_type(
    c: &Container,
    o: &Options,
    mix: Mix,
    model: &Model,
    item: &Item,
    known: bool,
) -> anyhow::Result<(Option<BlockType>, Option<String>)> {
    let chosen = match asked_for(c, o, mix, model, item)? {
        Asked::AsItIs => return Ok((None, None)),
        Asked::Type(ty) => ty,
        Asked::Mix => match o.chosen.as_ref().and_then(|all| all.get(&item.gguf)) {
            Some(ty) => *ty,
            None if o.pure => mix.base().context("a copy has no type")?,
            None => choose::by_mix(mix, model, &item.gguf, &item.shape, o.importances.is_some())
                .context("a copy has no type")?,
        },
    };
    let columns = item.shape.first().copied().unwrap_or(1);
    ensure!(has_gguf(chosen), "tensor {}: {} has no place in a GGUF file", item.gguf, chosen.name());
    let fits = choose::that_fits(chosen, columns).with_context(|| {
        format!(
            "tensor {}: rows of {columns} are not whole {} blocks, and no type stands in for it",
            item.gguf,
            chosen.name()
        )
    })?;
    let vector = item.shape.len() < 2;
    ensure!(
        known || vector || !mix.needs_importances(&item.gguf, fits),
        Refused::Importances(format!(
            "tensor {}: {} is useless where nothing says how important the columns are{}",
            item.gguf,
            fits.name(),
            if o.importances.is_some() { ", and the importance matrix does not have the tensor" } else { "" }
        ))
    );
    let note = (fits != chosen).then(|| format!("rows of {columns} are not whole {} blocks", chosen.name()));
    Ok((Some(fits), note))
}

/// The embedding's name.
const EMBEDDING: &str = "token_embd.weight";

/// What is said of one tensor.
enum Asked {
    /// it stays, as do norms
    AsItIs,
    /// its type
    Type(BlockType),
    /// nothing: the mix decides
    Mix,
}

/// What patterns, flags and the kind of tensor say, before any mix.
fn asked_for(c: &Container, o: &Options, mix: Mix, model: &Model, item: &Item) -> anyhow::Result<Asked> {
    if mix == Mix::Copy {
        return Ok(Asked::AsItIs);
    }
    // the few elements for each channel are no matrix
    let stays = item.gguf.ends_with("_norm.weight")
        || item.gguf.ends_with("ssm_conv1d.weight")
        || item.gguf.ends_with("shortconv.conv.weight")
        || ["position_embd.weight", "token_types.weight"].contains(&item.gguf.as_str());
    if item.shape.len() < 2 || stays || !item.gguf.ends_with(".weight") {
        // norms, biases and factors of a directory become F32; a GGUF file has them as it should
        let of_directory = c.kind == ContainerKind::HuggingFace;
        return Ok(if of_directory { Asked::Type(BlockType::F32) } else { Asked::AsItIs });
    }
    let output = item.gguf == "output.weight";
    let router = item.gguf.ends_with("ffn_gate_inp.weight");
    // of Gemma 3n, small beside all others; as llama.cpp has it
    let small = ["altup_", "laurel_"].iter().any(|part| item.gguf.contains(part));
    if router && c.kind == ContainerKind::HuggingFace {
        return Ok(Asked::Type(BlockType::F32));
    }
    if (output && o.leave_output) || router || small || item.gguf == "per_layer_model_proj.weight" {
        return Ok(Asked::AsItIs);
    }
    let by_name = match &item.gguf[..] {
        "output.weight" => o.output_type,
        EMBEDDING if o.embedding_type.is_none() && model.tied => o.output_type,
        EMBEDDING => o.embedding_type,
        // unless a pattern names it
        "per_layer_token_embd.weight" => o.embedding_type,
        _ => None,
    };
    Ok(match (choose::by_pattern(&o.patterns, &item.gguf, &item.hf)?, by_name) {
        (Some(None), _) => Asked::AsItIs,
        (Some(Some(ty)), _) | (None, Some(ty)) => Asked::Type(ty),
        (None, None) => Asked::Mix,
    })
}

fn from_gguf(c: &Container) -> Vec<Item> {
    let arch = c.meta.str("general.architecture").unwrap_or("");
    let item = |(index, t): (usize, &Tensor)| Item {
        data: Data::Tensor { index, to: None, heads: None, importances: None },
        hf: names::to_hf(arch, &t.name).unwrap_or_else(|| t.name.clone()),
        gguf: t.name.clone(),
        shape: t.shape.clone(),
        dtype: t.dtype,
        note: None,
    };
    c.tensors.iter().enumerate().map(item).collect()
}

/// Whether a tensor of a state space layer has a number for each head under a name without a suffix.
fn bare_column(gguf: &str) -> bool {
    gguf.ends_with(".ssm_a") || gguf.ends_with(".ssm_d")
}

/// A directory's tensors under their GGUF names, layer by layer as converters write them.
fn from_hf(c: &Container, converted: &Converted) -> anyhow::Result<Vec<Item>> {
    let mut items = Vec::new();
    for (index, t) in c.tensors.iter().enumerate() {
        // other readers of GGUF files refuse tensors they do not know
        // and layers that guess at further tokens are not computed here
        if names::is_frequencies(&t.name) || names::is_of_cache(&t.name) || converted.hyper.is_guessing(&t.name) {
            continue;
        }
        let gguf = names::to_gguf(converted.arch, &t.name).with_context(|| {
            format!("{}: tensor {} has no name in GGUF that is known here", c.files[t.file].display(), t.name)
        })?;
        let heads = converted.permuted.and_then(|(q, k)| {
            if gguf.contains(".attn_q.") {
                Some(q)
            } else if gguf.contains(".attn_k.") {
                Some(k)
            } else {
                None
            }
        });
        // the norm within a recurrent layer is whole in every directory
        let less_one =
            converted.norms_less_one && gguf.ends_with("_norm.weight") && !gguf.ends_with(".ssm_norm.weight");
        // names that have no suffix in a GGUF file
        let bare = gguf.strip_suffix(".weight").filter(|name| bare_column(name));
        let (gguf, decay) = match bare {
            Some(name) => (name.to_string(), name.ends_with(".ssm_a")),
            None => (gguf, false),
        };
        let (data, dtype) = if less_one || decay {
            let values = convert::other_form(c, t, if decay { fading } else { |v| 1.0 + v })?;
            (Data::Bytes(values.iter().flat_map(|v| v.to_le_bytes()).collect()), Dtype::F32)
        } else {
            (Data::Tensor { index, to: None, heads, importances: None }, t.dtype)
        };
        // a matrix of one row, which GGUF files have as a vector
        let is_row = gguf.ends_with("ffn_gate_inp_shexp.weight");
        let shape = match &converted.hyper.ssm {
            // a column of heads, and a row of each group
            Some(_) if bare_column(&gguf) => vec![1, t.elems()],
            Some(s) if gguf.ends_with(".ssm_norm.weight") => vec![t.elems() / s.groups as u64, s.groups as u64],
            _ if is_row => vec![t.elems()],
            _ => t.shape.clone(),
        };
        items.push(Item { data, hf: t.name.clone(), gguf, shape, dtype, note: None });
    }
    let mut made = |name: &str, values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        items.push(Item {
            data: Data::Bytes(bytes),
            hf: String::new(),
            gguf: name.to_string(),
            shape: vec![values.len() as u64],
            dtype: Dtype::F32,
            note: None,
        });
    };
    if let Some(d) = &converted.rope_freqs {
        made("rope_freqs.weight", d);
    }
    if let Some((long, short)) = &converted.rope_factors {
        made(LONG_FACTORS, long);
        made(SHORT_FACTORS, short);
    }
    // globals first, then layers in their order
    items.sort_by_key(|i| (names::layer_of(&i.gguf).map_or(0, |l| l + 1), i.gguf.clone()));
    Ok(items)
}

// ---------------------------------------------------------------- packed

fn to_packed(c: &Container, o: &Options) -> anyhow::Result<Job> {
    // a name that is a mix's and a type's too is the type's here
    let mix = match o.mix {
        Some(Mix::Recipe(r)) => Some(Mix::Plain(BlockType::parse(r.name).ok_or(Refused::Mix)?)),
        other => other,
    };
    if c.kind == ContainerKind::Safetensors {
        bail!(
            "{}: a lone safetensors file has no config; give the directory that holds config.json",
            c.files[0].display()
        )
    }
    let arch = c.meta.str("general.architecture").unwrap_or("");
    // what goes into model.safetensors: key, dtype, shape (slowest first), bytes
    let mut entries: Vec<(String, String, Vec<u64>, u64)> = Vec::new();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut files: Vec<(String, u64)> = Vec::new();
    const MODEL: &str = "model.safetensors";
    for (index, t) in c.tensors.iter().enumerate() {
        let hf = names::to_hf(arch, &t.name).unwrap_or_else(|| t.name.clone());
        let (kind, note) = packed_type(o, mix, t, &hf)?;
        let to = kind.and_then(|k| change(t, k.block));
        may_change(c, o, t, to)?;
        let data = Data::Tensor { index, to, heads: None, importances: None };
        // what is packed already stays packed
        let kind = kind.or_else(|| t.dtype.block().and_then(packed::kind_of));
        let Some(kind) = kind else {
            stored(c, t)?;
            ensure!(
                !c.kind.is_named_as_gguf() || is_float(t.dtype) || t.dtype.ggml_id().is_none(),
                "{}: tensor {} is {}, which a safetensors file cannot hold",
                c.files[t.file].display(),
                t.name,
                t.dtype
            );
            let shape = t.shape.iter().rev().copied().collect();
            entries.push((t.name.clone(), t.dtype.to_string(), shape, t.bytes));
            let file = MODEL.to_string();
            pieces.push(Piece { name: t.name.clone(), file, offset: 0, bytes: t.bytes, data, note });
            continue;
        };
        let [k, rows] = t.shape[..] else {
            bail!(Refused::NotPacked(format!(
                "{}: tensor {} is {} of shape {:?}: a packed matrix has two dimensions; write a GGUF file",
                c.files[t.file].display(),
                t.name,
                t.dtype,
                t.shape
            )))
        };
        let (k, rows) = (dim(t, k)?, dim(t, rows)?);
        // below 2^62 elements, of at most four bytes and a little each
        let bytes = u64::from(rows) * (u64::from(k) / kind.block.elems() as u64) * kind.block.bytes() as u64;
        let key = format!("{}.{}", t.name, kind.suffix);
        let head = packed::header(kind, rows, k).to_vec();
        if o.target == Target::Blocks {
            ensure!(!key.contains(['/', '\\', '\0']), "tensor {key}: not a name a file can have");
            files.push((key.clone(), packed::HEADER + bytes));
            pieces.push(bytes_piece(key.clone(), 0, head));
            pieces.push(Piece { name: t.name.clone(), file: key, offset: packed::HEADER, bytes, data, note });
            continue;
        }
        let file = MODEL.to_string();
        let skip = if kind.keeps_header { packed::HEADER } else { 0 };
        entries.push((key.clone(), "U8".into(), vec![skip + bytes], skip + bytes));
        if kind.keeps_header {
            pieces.push(bytes_piece(file.clone(), 0, head));
        }
        pieces.push(Piece { name: t.name.clone(), file: file.clone(), offset: 0, bytes, data, note });
        let mut meta = vec![rows as i32, k as i32];
        meta.extend(kind.keeps_header.then_some(packed::HEADER as i32));
        let meta: Vec<u8> = meta.iter().flat_map(|v| v.to_le_bytes()).collect();
        entries.push((format!("{key}_meta"), "I32".into(), vec![meta.len() as u64 / 4], meta.len() as u64));
        pieces.push(bytes_piece(file, 0, meta));
    }
    if !entries.is_empty() {
        let data = entries.iter().try_fold(0u64, |n, e| n.checked_add(e.3));
        ensure!(data.is_some_and(|n| n < 1 << 63), "the new model would be larger than a file can be");
        let head = safetensors::head(&entries);
        let mut at = head.len() as u64;
        for p in pieces.iter_mut().filter(|p| p.file == MODEL) {
            p.offset = at;
            at += p.bytes;
        }
        pieces.insert(0, bytes_piece(MODEL.into(), 0, head));
        files.insert(0, (MODEL.into(), at));
    }
    Ok(Job { layout: layout(c, true, files), pieces, side: side_files(c)?, meta: None })
}

/// A dimension as the headers hold it.
fn dim(t: &Tensor, d: u64) -> anyhow::Result<u32> {
    let d = i32::try_from(d).ok().filter(|d| *d > 0);
    Ok(d.with_context(|| format!("tensor {}: shape {:?} does not fit a packed header", t.name, t.shape))? as u32)
}

/// The packed format of a tensor (`None`: as it is), and why it is not packed.
fn packed_type(
    o: &Options,
    mix: Option<Mix>,
    t: &Tensor,
    hf: &str,
) -> anyhow::Result<(Option<&'static Kind>, Option<String>)> {
    let output = names::to_gguf("", hf).as_deref() == Some("output.weight");
    let candidate = hf.ends_with(".weight") && !hf.contains("embed") && !hf.contains("norm") && t.shape.len() == 2;
    if !candidate || mix == Some(Mix::Copy) || (o.leave_output && output) {
        return Ok((None, None));
    }
    let output_type = o.output_type.filter(|_| output);
    let chosen = match (choose::by_pattern(&o.patterns, hf, &t.name)?, output_type, mix) {
        (Some(None), ..) => return Ok((None, None)),
        (Some(Some(ty)), ..) | (None, Some(ty), _) => ty,
        (None, None, Some(Mix::Plain(ty))) => ty,
        (None, None, _) => choose::by_policy(o.policy, hf),
    };
    if t.dtype.block() == Some(chosen) && is_float(t.dtype) {
        return Ok((None, None));
    }
    let kind = packed::kind_of(chosen).with_context(|| {
        format!("tensor {hf}: {} has no packed form (packed: q8k128, q8k, q6k, q4k)", chosen.name())
    })?;
    if !t.shape[0].is_multiple_of(chosen.elems() as u64) {
        let note = format!("rows of {} are not whole {} blocks: kept as it is", t.shape[0], chosen.name());
        return Ok((None, Some(note)));
    }
    Ok((Some(kind), None))
}

/// What a directory holds beside the weights: the config and the tokeniser, or a GGUF file of metadata alone.
pub(super) fn side_files(c: &Container) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut out = Vec::new();
    // not read when a model is run, but other programs ask for them
    for (name, most) in [(SPM, MAX_SPM), (CHAT_TEMPLATE, MAX_TEMPLATE)] {
        if let Some(bytes) = beside(c, name, most)? {
            out.push((name.to_string(), bytes));
        }
    }
    if c.kind.is_named_as_gguf() {
        let mut meta: Meta = c.meta.clone();
        meta.entries.retain(|(k, _)| !k.starts_with("split.") && k != "general.file_type");
        out.push((hf::METADATA.into(), gguf_write::head(hf::METADATA, &meta, &[])?.bytes));
        return Ok(out);
    }
    let json = |v: &serde_json::Value| serde_json::to_vec_pretty(v).context("writing JSON");
    let files = [
        ("config.json", &c.config),
        ("tokenizer_config.json", &c.tokenizer_config),
        ("generation_config.json", &c.generation_config),
    ];
    for (name, value) in files {
        if let Some(v) = value {
            out.push((name.to_string(), json(v)?));
        }
    }
    if let Some(t) = &c.tokenizer_json {
        out.push(("tokenizer.json".into(), t.clone()));
    }
    Ok(out)
}

//! `isobit inspect`: what a model file holds.

use super::common::{self, Load};
use crate::formats::{Activations, Container, ContainerKind, Dtype, Tensor, bump, names};
use crate::models::{Hyper, Pooling, output_name, recent_positions};
use crate::ops::cache::CacheType;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit inspect model.gguf\n  isobit inspect ./hf-directory --tensors\n  isobit inspect model.gguf --style bump"
)]
pub struct InspectArgs {
    /// GGUF, BUMP or safetensors file, or Hugging Face directory; without it the embedded model
    file: Option<PathBuf>,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// own, or bump: the lines of C-Kernel-Engine's tool (with --tensors those of its list)
    #[arg(long, default_value = "own", value_name = "STYLE", value_parser = ["own", "bump"], conflicts_with = "json")]
    #[arg(hide_possible_values = true)]
    style: String,
    /// How files are read: read or mmap
    #[arg(long, value_enum, default_value = "read", value_name = "MODE", hide_possible_values = true)]
    load_mode: Load,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: InspectArgs) -> anyhow::Result<ExitCode> {
    let c = common::open(a.file.as_deref(), a.load_mode)?;
    let held = Held::of(&c);
    let mut out = std::io::stdout().lock();
    if a.style == "bump" {
        as_bump_tool(&held, a.tensors, &mut out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if a.json {
        writeln!(out, "{}", held.json(a.tensors))?;
    } else {
        held.print(a.tensors, &mut out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Names of the chat templates.
fn templates(c: &Container) -> Vec<String> {
    c.chat_templates().unwrap_or_default().into_iter().map(|(name, _)| name).collect()
}

/// What a container holds.
struct Held<'a> {
    c: &'a Container,
    /// the kind of container
    tag: &'static str,
    arch: String,
    /// name, tensors and bytes of each type, the commonest first
    types: Vec<(&'static str, u64, u64)>,
    params: u64,
    /// why it does not run, where it does not
    hyper: anyhow::Result<Hyper>,
    /// by cache type
    cache: Vec<(&'static str, Option<usize>)>,
}

impl Held<'_> {
    fn of(c: &Container) -> Held<'_> {
        let mut types: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for t in &c.tensors {
            let e = types.entry(t.dtype.name()).or_default();
            *e = (e.0 + 1, e.1 + t.bytes);
        }
        let mut types: Vec<_> = types.into_iter().map(|(n, (count, bytes))| (n, count, bytes)).collect();
        types.sort_by_key(|&(name, count, _)| (std::cmp::Reverse(count), name));
        let (tag, arch) = match c.kind {
            ContainerKind::Gguf => ("gguf", c.meta.str("general.architecture")),
            ContainerKind::Bump => ("bump", c.meta.str("general.architecture")),
            ContainerKind::HuggingFace => ("hf", c.config.as_ref().and_then(|v| v["model_type"].as_str())),
            ContainerKind::Safetensors => ("safetensors", None),
        };
        let hyper = Hyper::read(c);
        let cache = cache_bytes(hyper.as_ref().ok());
        let params = c.tensors.iter().map(Tensor::elems).sum();
        Held { c, tag, arch: arch.unwrap_or("?").to_string(), types, params, hyper, cache }
    }

    fn json(&self, all_tensors: bool) -> Value {
        let c = self.c;
        let tensors: Vec<_> = c
            .tensors
            .iter()
            .filter(|_| all_tensors)
            .map(|t| {
                let mut v = json!({"name": t.name, "type": t.dtype.name(), "shape": t.shape, "bytes": t.bytes, "offset": t.offset, "file": t.file});
                if let Some(how) = c.activations(&t.name) {
                    v["activations"] = activations(how);
                }
                v
            })
            .collect();
        let types = self.types.iter().map(|(n, count, bytes)| json!({"type": n, "tensors": count, "bytes": bytes}));
        let (dynamic, fixed) = self.activations();
        json!({
            "format": self.tag,
            "files": c.files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>(),
            "version": c.version,
            "architecture": self.arch,
            "parameters": self.params,
            "bytes": c.total_bytes(),
            "types": types.collect::<Vec<_>>(),
            "activations": {"dynamic": dynamic, "static": fixed},
            "chat_templates": templates(c),
            "tensor_count": c.tensors.len(),
            "metadata_count": c.meta.entries.len(),
            "runs": self.hyper.is_ok(),
            "why_not": self.hyper.as_ref().err().map(|e| format!("{e:#}")),
            "cache_bytes_per_token": self.cache.iter().map(|(n, b)| (n.to_string(), json!(b))).collect::<serde_json::Map<_, _>>(),
            "experts": self.hyper.as_ref().ok().and_then(|h| h.experts.as_ref()).map(|e| json!({
                "count": e.count, "used": e.used, "width": e.width, "shared": e.shared, "layers_without": e.dense,
            })),
            "weight_bytes_per_token": self.hyper.as_ref().ok().map(|h| weights_per_token(c, h)),
            "recent_bytes": self.hyper.as_ref().ok().and_then(recent_bytes),
            "tensors": tensors,
        })
    }

    fn print(&self, all_tensors: bool, out: &mut impl Write) -> anyhow::Result<()> {
        let (c, tag) = (self.c, self.tag);
        self.print_head(out)?;
        writeln!(out, "[{tag}] parameters={} bytes={}", self.params, size(c.total_bytes()))?;
        self.print_types(&self.types, out)?;
        let templates = templates(c).iter().map(|n| super::one_line(n)).collect::<Vec<_>>().join(", ");
        let none = "none; isobit chat --chat-template NAME takes a built-in one";
        writeln!(out, "[{tag}] chat templates: {}", if templates.is_empty() { none } else { &templates })?;
        let (dynamic, fixed) = self.activations();
        if dynamic + fixed > 0 {
            writeln!(
                out,
                "[{tag}] activations of W8A8: {dynamic} matrices with a scale for each token, {fixed} with a fixed one"
            )?;
        }
        match &self.hyper {
            Ok(h) => self.print_shape(h, out)?,
            Err(e) => writeln!(out, "[{tag}] does not run: {}", super::one_line(&format!("{e:#}")))?,
        }
        key_tensors(c, tag, &KEY_TENSORS, out)?;
        if all_tensors {
            self.print_all(out)?;
        }
        Ok(())
    }

    fn print_head(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let (c, tag) = (self.c, self.tag);
        // names come from the file; nothing in them may reach the terminal as a control
        let arch = super::one_line(&self.arch);
        for f in &c.files {
            writeln!(out, "[{tag}] file={}", f.display())?;
        }
        match c.kind {
            ContainerKind::Gguf | ContainerKind::Bump => writeln!(
                out,
                "[{tag}] version={} arch={arch} tensors={} kv={} alignment={} data_start={}",
                c.version,
                c.tensors.len(),
                c.meta.entries.len(),
                c.alignment,
                c.data_start
            )?,
            _ => writeln!(out, "[{tag}] arch={arch} tensors={}", c.tensors.len())?,
        }
        Ok(())
    }

    /// Matrices whose activations get a scale for each token, and those whose scale was fixed beforehand.
    fn activations(&self) -> (usize, usize) {
        let all = || self.c.tensors.iter().filter_map(|t| self.c.activations(&t.name));
        let fixed = all().filter(|how| matches!(how, Activations::Static { .. })).count();
        (all().count() - fixed, fixed)
    }

    fn print_types(&self, types: &[(&str, u64, u64)], out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(out, "[{}] tensor types:", self.tag)?;
        for (name, count, bytes) in types {
            writeln!(out, "  - {name:>10}: {count:>5} tensors, bytes={}", size(*bytes))?;
        }
        Ok(())
    }

    fn print_all(&self, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(out, "[{}] all tensors:", self.tag)?;
        let mut all: Vec<&Tensor> = self.c.tensors.iter().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        for t in all {
            line(self.c, t, out)?;
        }
        Ok(())
    }

    fn print_shape(&self, h: &Hyper, out: &mut impl Write) -> anyhow::Result<()> {
        let tag = self.tag;
        let of_layers = if h.has_attention() {
            format!(" heads={}/{} head_dim={} ffn={}", h.heads, h.kv_heads, h.head_dim, h.ffn)
        } else {
            String::new()
        };
        writeln!(out, "[{tag}] layers={} dim={}{of_layers} vocab={} context={}", h.layers, h.dim, h.vocab, h.context)?;
        if let Some(e) = &h.experts {
            writeln!(
                out,
                "[{tag}] experts={} used={} width={} shared={} layers without={}; weights read per token: {} bytes of {}",
                e.count,
                e.used,
                e.width,
                e.shared,
                e.dense.min(h.layers),
                weights_per_token(self.c, h),
                self.c.total_bytes()
            )?;
        }
        if let Some(m) = &h.mla {
            let queries = if m.query_rank > 0 { format!(", queries from {}", m.query_rank) } else { String::new() };
            writeln!(
                out,
                "[{tag}] latent attention: {} cached and {} rotated for all heads{queries}; heads of {} and {} rotated, values of {}",
                m.rank, m.rope, m.nope, m.rope, m.value
            )?;
        }
        if let Some(uneven) = h.uneven.text(h.layers) {
            writeln!(out, "[{tag}] layers that differ: {uneven}")?;
        }
        if let Some(recurrent) = h.recurrent_text() {
            writeln!(out, "[{tag}] recurrent: {recurrent}")?;
        }
        if let Some(a) = &h.uneven.altup {
            writeln!(out, "[{tag}] alternating updates: {}", a.text())?;
        }
        match Pooling::of(self.c, h) {
            said if h.family.is_encoder() => {
                let pooling = said?.map_or("not said (mean)", Pooling::name);
                writeln!(out, "[{tag}] encoder: vectors of texts; pooling: {pooling}")?;
            }
            Ok(None) => {}
            Ok(Some(pooling)) => writeln!(out, "[{tag}] vectors of texts; pooling: {}", pooling.name())?,
            // it generates all the same
            Err(e) => writeln!(out, "[{tag}] no vectors of texts: {e}")?,
        }
        if !h.has_attention() {
            writeln!(
                out,
                "[{tag}] cache: none, a state of {} bytes for each sequence and checkpoint",
                h.state_bytes()
            )?;
            return Ok(());
        }
        if h.has_states() {
            let bytes = h.state_bytes();
            writeln!(out, "[{tag}] state of recurrent layers: {bytes} bytes for each sequence and checkpoint")?;
        }
        let window = h.window_text().map_or(String::new(), |w| format!(" window={w}"));
        writeln!(out, "[{tag}] rope: {}{window}", h.rope_text())?;
        writeln!(out, "[{tag}] cache bytes per token: {}", cells(&self.cache))?;
        if let Some(bytes) = recent_bytes(h) {
            let ubatch = common::DEFAULT_UBATCH;
            writeln!(out, "[{tag}] f16 copy of recent positions (--kv-recent): {bytes} bytes with --ubatch {ubatch}")?;
        }
        Ok(())
    }
}

/// Whether a tensor is the embedding, which may be the output matrix as well, in either kind of file.
fn is_embedding(name: &str) -> bool {
    name == "token_embd.weight" || name == "model.embed_tokens.weight" || name.ends_with("word_embeddings.weight")
}

/// Bytes of the weights that one token reads: of experts as many as it meets, of an embedding that is not the output matrix
/// a row, of layers that are not computed none.
fn weights_per_token(c: &Container, h: &Hyper) -> u64 {
    let tied = c.tensor(&output_name(c)).is_none();
    let of = |t: &Tensor| {
        let layer = names::layer_of(&t.name);
        let stacked = layer.and_then(|l| h.experts_of(l)).filter(|e| t.shape.get(2) == Some(&(e.count as u64)));
        // matrices of heads are all read
        let stacked = stacked.filter(|_| !t.name.contains("attn"));
        match stacked {
            _ if h.is_guessing(&t.name) => 0,
            Some(e) => t.bytes / e.count as u64 * e.used as u64,
            // what is multiplied with behind the layers is read whole
            None if layer.is_none()
                && t.name.contains("emb")
                && !t.name.contains("unemb")
                && !(tied && is_embedding(&t.name)) =>
            {
                t.bytes / t.shape.get(1).copied().unwrap_or(1).max(1)
            }
            None => t.bytes,
        }
    };
    c.tensors.iter().map(of).sum()
}

/// Cached bytes of one position by the type of keys and values; `None` where the type does not fit the heads.
pub fn cache_bytes(h: Option<&Hyper>) -> Vec<(&'static str, Option<usize>)> {
    CacheType::ALL.iter().map(|t| (t.name(), h.and_then(|h| h.cache_bytes(*t, *t)))).collect()
}

/// Bytes of the f16 copy of recent positions (`--kv-recent`) at the default `--ubatch`, whatever the context; `None` where
/// f16 does not fit the heads, and of an encoder or a model without attention, which has none.
pub fn recent_bytes(h: &Hyper) -> Option<usize> {
    let bytes =
        h.cache_bytes(CacheType::F16, CacheType::F16).filter(|_| !h.family.is_encoder() && h.has_attention())?;
    Some(bytes * recent_positions(common::DEFAULT_UBATCH, 1))
}

/// `f32 4096, f16 2048, q4_0 -`.
pub fn cells(list: &[(&'static str, Option<usize>)]) -> String {
    let cells: Vec<String> =
        list.iter().map(|(n, b)| format!("{n} {}", b.map_or("-".to_string(), |b| b.to_string()))).collect();
    cells.join(", ")
}

/// As C-Kernel-Engine's tool prints a GGUF file: with `all` its `--list`, else its `--inspect`, which of a llama says too
/// what types a BUMP file of it would have. Of a BUMP file the same lines.
fn as_bump_tool(held: &Held, all: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let c = held.c;
    held.print_head(out)?;
    let mut types = held.types.clone();
    let id = |name: &str| Dtype::from_name(name).and_then(Dtype::ggml_id);
    types.sort_by_key(|&(name, count, _)| (std::cmp::Reverse(count), id(name)));
    held.print_types(&types, out)?;
    key_tensors(c, held.tag, &BUMP_KEY_TENSORS, out)?;
    if all {
        return held.print_all(out);
    }
    if held.arch == "llama" || c.kind == ContainerKind::Bump {
        preview(c, out)?;
    }
    Ok(())
}

/// The types of a BUMP file's table by what this container holds.
fn preview(c: &Container, out: &mut impl Write) -> anyhow::Result<()> {
    let layers = (0..).take_while(|l| c.tensor(&format!("blk.{l}.attn_norm.weight")).is_some()).count();
    let of = |name: &str| c.tensor(name).map_or("?", |t| bump::printed(t.dtype));
    let matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down"];
    let of_layer = |l: usize| matrices.map(|m| of(&format!("blk.{l}.{m}.weight")));
    let entries = 14 * layers + 4;
    writeln!(out, "[bump] dtype table preview:")?;
    writeln!(out, "  entries={entries} expected={entries}")?;
    writeln!(out, "  token_emb={} pos_emb=FP32", of("token_embd.weight"))?;
    let mut shown: Vec<usize> = vec![0, layers.saturating_sub(1)];
    shown.dedup();
    for l in shown {
        let [q, k, v, o, w1, w2] = of_layer(l);
        writeln!(out, "  layer{l}: wq={q} wk={k} wv={v} wo={o} w1={w1} w2={w2}")?;
    }
    // the rest of the table are norms, positions and biases
    let mut counts: BTreeMap<&str, usize> = BTreeMap::from([("FP32", 8 * layers + 3)]);
    for name in (0..layers).flat_map(of_layer).chain([of("token_embd.weight")]) {
        *counts.entry(name).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{name}={n}")).collect();
    Ok(writeln!(out, "  counts: {}", counts.join(", "))?)
}

/// Tensors that say most of a model.
const KEY_TENSORS: [&str; 11] = [
    "token_embd.weight",
    "output.weight",
    "output_norm.weight",
    "blk.0.attn_qkv.weight",
    "blk.0.attn_q.weight",
    "blk.0.attn_k.weight",
    "blk.0.attn_v.weight",
    "blk.0.attn_output.weight",
    "blk.0.ffn_gate.weight",
    "blk.0.ffn_up.weight",
    "blk.0.ffn_down.weight",
];

/// Those that C-Kernel-Engine's tool prints.
const BUMP_KEY_TENSORS: [&str; 13] = [
    "token_embd.weight",
    "output.weight",
    "output_norm.weight",
    "blk.0.attn_q.weight",
    "blk.0.attn_k.weight",
    "blk.0.attn_v.weight",
    "blk.0.attn_q.bias",
    "blk.0.attn_k.bias",
    "blk.0.attn_v.bias",
    "blk.0.attn_output.weight",
    "blk.0.ffn_gate.weight",
    "blk.0.ffn_up.weight",
    "blk.0.ffn_down.weight",
];

fn key_tensors(c: &Container, tag: &str, names: &[&str], out: &mut impl Write) -> anyhow::Result<()> {
    let found: Vec<&Tensor> = names.iter().filter_map(|n| c.tensor(n)).collect();
    if !found.is_empty() {
        writeln!(out, "[{tag}] key tensors:")?;
    }
    for t in found {
        line(c, t, out)?;
    }
    Ok(())
}

/// How a matrix of W8A8 wants its activations.
fn activations(how: Activations) -> Value {
    match how {
        Activations::Dynamic { limit } => json!({"kind": "dynamic", "limit": limit}),
        Activations::Static { scale, offset } => json!({"kind": "static", "scale": scale, "offset": offset}),
    }
}

fn line(c: &Container, t: &Tensor, out: &mut impl Write) -> anyhow::Result<()> {
    let dims: Vec<String> = t.shape.iter().map(u64::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let how = match c.activations(&t.name) {
        None => String::new(),
        Some(Activations::Dynamic { limit }) => format!(" activations=dynamic limit={limit}"),
        Some(Activations::Static { scale, offset }) => format!(" activations=static scale={scale} offset={offset}"),
    };
    Ok(writeln!(out, "  - {}: {} dims=({}{comma}){how}", super::one_line(&t.name), t.dtype.name(), dims.join(", "))?)
}

/// `167.62 KiB`.
pub fn size(bytes: u64) -> String {
    let mut v = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if v < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{v:.2} {unit}") };
        }
        v /= 1024.0;
    }
    format!("{v:.2} GiB")
}

//! Writing a BUMP file from a container whose tensors have GGUF's names, their blocks unchanged.
//!
//! [`plan`] looks at names, types and shapes and makes a [`Job`]; [`Job::write`] fills the staged file front to back, since
//! a hash is taken over it. Numbers in the JSON files are those of C-Kernel-Engine's converters, so that the bytes are.
//!
//! What a version cannot hold is refused by name, or left out where [`Options::lose`] says so.

use super::super::dtype::Dtype;
use super::super::error::{FormatError, quote};
use super::super::meta::Meta;
use super::super::output::{Layout, Staged};
use super::super::{Container, Tensor, gguf_write, hf};
use super::header::{Codes, Dims, Header, LATE_START, Version, listed};
use super::layout::{self, Holds, Parts, Slot};
use super::text::{Json, canonical, map};
use super::vocab::{SPECIAL_FLAGS, SPECIAL_IDS, Vocab};
use super::{READ_AT_ONCE, hex};
use crate::blocks::BlockType;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// What may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lose {
    /// an output matrix of its own, in versions 3 and 4: logits are then those of the embedding
    pub output: bool,
    /// the biases of queries, keys and values, in version 3
    pub biases: bool,
}

/// How a file is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// version
    pub version: Version,
    /// codes of the dtype table of version 3; the others have the later ones
    pub codes: Codes,
    /// what may be left out
    pub lose: Lose,
    /// `created_by` and, where there is one, `created_at` of version 5's metadata
    pub created: (String, Option<String>),
    /// version 5's manifest says which tokens are special
    pub special: bool,
}

impl Options {
    /// As `isobit convert` writes a version: the same bytes whenever it is run.
    pub fn new(version: Version) -> Options {
        let created = (format!("isobit {}", env!("CARGO_PKG_VERSION")), None);
        Options { version, codes: Codes::First, lose: Lose::default(), created, special: true }
    }
}

/// Where the bytes of a part come from.
#[derive(Clone, Debug)]
enum From {
    Bytes(Vec<u8>),
    Zeros(u64),
    /// index in the container, and whether its elements become f32
    Tensor(usize, bool),
}

/// A file to be written, and those beside it.
#[derive(Clone, Debug)]
pub struct Job {
    version: Version,
    header: Header,
    parts: Vec<From>,
    /// metadata and footer of version 5
    tail: Vec<u8>,
    /// length of the whole file
    pub len: u64,
    /// architecture and shape, for messages
    pub arch: String,
    /// the same
    pub dims: Dims,
    /// files beside it: what their names end in (`config.json`), and their bytes
    pub side: Vec<(&'static str, Vec<u8>)>,
    /// what is left out, in words
    pub lost: Vec<String>,
}

/// The source on its way.
struct Plan<'a> {
    c: &'a Container,
    o: &'a Options,
    file: String,
    arch: String,
    dims: Dims,
    taken: BTreeSet<usize>,
}

/// Makes the job. Nothing is written, and only norms and biases are not read either.
///
/// Errors: an architecture, a tensor, a type or a vocabulary that the version cannot hold; metadata that are missing.
pub fn plan(c: &Container, o: &Options) -> Result<Job, FormatError> {
    let file = c.described_by().display().to_string();
    if !c.kind.is_named_as_gguf() {
        let what = "a model that is neither a GGUF nor a BUMP file, as the source of a BUMP file,";
        return Err(FormatError::unsupported(
            &file,
            what,
            "make a GGUF file of it first: isobit quantize DIR OUT.gguf copy",
        ));
    }
    let arch = c.meta.str("general.architecture").unwrap_or("").to_string();
    if !["llama", "qwen2", "qwen3"].contains(&arch.as_str()) {
        let what = format!("architecture {} in a BUMP file", quote(&arch));
        return Err(FormatError::unsupported(&file, what, "supported are llama, qwen2 and qwen3"));
    }
    let dims = dims(&file, &c.meta, &arch, c)?;
    Plan { c, o, file, arch, dims, taken: BTreeSet::new() }.job()
}

/// The shape that a GGUF file's metadata give.
fn dims(file: &str, m: &Meta, arch: &str, c: &Container) -> Result<Dims, FormatError> {
    let opt = |key: &str| m.uint(&format!("{arch}.{key}"));
    let need = |key: &str, most: u64| {
        let found = opt(key);
        found.filter(|v| (1..=most).contains(v)).ok_or_else(|| {
            let found = found.map_or("nothing".to_string(), |v| v.to_string());
            FormatError::invalid(
                file,
                format!("key {}", quote(&format!("{arch}.{key}"))),
                "missing, or a number that no BUMP file has",
                format_args!("1 to {most}"),
                found,
            )
        })
    };
    let embed = need("embedding_length", 1 << 20)?;
    let heads = need("attention.head_count", 4096)?;
    let head_dim = opt("attention.key_length").unwrap_or(embed / heads);
    let vocab = c.tensor("token_embd.weight").and_then(|t| t.shape.get(1).copied()).unwrap_or(0);
    Ok(Dims {
        layers: need("block_count", super::header::MAX_LAYERS)?,
        vocab: vocab.min(1 << 24),
        embed,
        ffn: need("feed_forward_length", 1 << 22)?,
        context: need("context_length", 1 << 30)?,
        heads,
        kv_heads: opt("attention.head_count_kv").unwrap_or(heads).min(heads),
        head_dim: head_dim.min(1 << 16),
        aligned_head: head_dim.min(1 << 16),
    })
}

impl Plan<'_> {
    fn unsupported(&self, what: String, remedy: &str) -> FormatError {
        FormatError::unsupported(&self.file, what, remedy)
    }

    fn version(&self) -> String {
        format!("BUMP version {}", self.o.version.number())
    }

    /// The tensor of this name and shape.
    fn take(&mut self, name: &str, shape: &[u64]) -> Result<(usize, Dtype), FormatError> {
        let index = self.c.index_of(name).ok_or_else(|| {
            FormatError::invalid(&self.file, format!("tensor {}", quote(name)), "missing", "a whole decoder", "none")
        })?;
        let t = &self.c.tensors[index];
        if t.shape != shape {
            let place = format!("tensor {}", quote(name));
            let (expected, found) = (format!("{shape:?}"), format!("{:?}", t.shape));
            return Err(FormatError::invalid(&self.file, place, "a shape the metadata do not give", expected, found));
        }
        self.taken.insert(index);
        Ok((index, t.dtype))
    }

    /// The type of a matrix in the file, and whether it has to be converted.
    fn matrix_type(&self, slot: &str, name: &str, dtype: Dtype) -> Result<(Dtype, bool), FormatError> {
        // C-Kernel-Engine has no f16 embeddings; every f16 is a f32
        if slot == "token_emb" && dtype.name() == "F16" && self.o.version != Version::V3 {
            return Ok((Dtype::F32, true));
        }
        let known = match self.o.version {
            Version::V3 => ["F32", "Q4_K", "Q6_K"].contains(&dtype.name()),
            _ => ["F32", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"].contains(&dtype.name()),
        };
        if known {
            return Ok((dtype, false));
        }
        let what = format!("tensor {} of type {dtype} in {}", quote(name), self.version());
        Err(self.unsupported(what, "quantize the model to types it holds (version 3: F32, Q4_K, Q6_K)"))
    }

    /// A vector that becomes f32.
    fn vector(&mut self, name: &str, len: u64) -> Result<From, FormatError> {
        let (index, dtype) = self.take(name, &[len])?;
        match dtype.block() {
            Some(b) if b.is_float() => Ok(From::Tensor(index, b != BlockType::F32)),
            _ => {
                Err(self.unsupported(format!("tensor {} of type {dtype}", quote(name)), "vectors are F32, F16 or BF16"))
            }
        }
    }

    /// Bytes and type of a slot.
    fn slot(&mut self, slot: &Slot, vocab: Option<&Vocab>) -> Result<(Vec<From>, Dtype), FormatError> {
        let f32s = |parts: Vec<From>| (parts, Dtype::F32);
        Ok(match (slot.holds, layout::gguf_name(&slot.name)) {
            (Holds::Matrix { cols, rows, .. }, Some(name)) => {
                let (index, dtype) = self.take(&name, &[cols, rows])?;
                let (dtype, convert) = self.matrix_type(&slot.name, &name, dtype)?;
                (vec![From::Tensor(index, convert)], dtype)
            }
            (Holds::Matrix { cols, rows, .. }, None) => {
                let names = layout::gate_up(&slot.name).unwrap_or_default();
                let [gate, up] = [self.take(&names[0], &[cols, rows / 2])?, self.take(&names[1], &[cols, rows / 2])?];
                if gate.1 != up.1 {
                    let what = format!("tensors {} and {} of types {} and {}", names[0], names[1], gate.1, up.1);
                    return Err(self.unsupported(what, "BUMP keeps them as one matrix; give them one type"));
                }
                let (dtype, _) = self.matrix_type(&slot.name, &names[0], gate.1)?;
                (vec![From::Tensor(gate.0, false), From::Tensor(up.0, false)], dtype)
            }
            (Holds::Vector { len } | Holds::HeadNorm { len, .. }, Some(name)) => f32s(vec![self.vector(&name, len)?]),
            (Holds::Bias { len, .. }, Some(name)) if self.has(&name) && self.o.version != Version::V3 => {
                f32s(vec![self.vector(&name, len)?])
            }
            (Holds::Bias { len, .. } | Holds::Zeros { len }, _) => f32s(vec![From::Zeros(4 * len)]),
            (Holds::Vocab { .. }, _) => {
                let v = vocab.cloned().unwrap_or_default();
                f32s(vec![From::Bytes(match slot.name.as_str() {
                    "vocab_offsets" => v.offsets,
                    "vocab_strings" => v.strings,
                    "vocab_scores" => v.scores,
                    "vocab_types" => v.types,
                    _ => v.merges,
                })])
            }
            (Holds::Vector { .. } | Holds::HeadNorm { .. }, None) => f32s(vec![]),
        })
    }

    fn has(&self, name: &str) -> bool {
        self.c.tensor(name).is_some()
    }

    fn bytes_of(&self, parts: &[From]) -> u64 {
        let of = |p: &From| match p {
            From::Bytes(b) => b.len() as u64,
            From::Zeros(n) => *n,
            From::Tensor(i, false) => self.c.tensors[*i].bytes,
            From::Tensor(i, true) => self.c.tensors[*i].elems().saturating_mul(4),
        };
        parts.iter().map(of).fold(0, u64::saturating_add)
    }

    fn job(mut self) -> Result<Job, FormatError> {
        let (version, d) = (self.o.version, self.dims);
        let v5 = version == Version::V5;
        let vocab = if v5 { Vocab::of(&self.file, &self.c.meta, d.vocab)? } else { None };
        let counts = vocab.as_ref().map(|v| (v.strings.len() as u64, v.merges.len() as u64 / 12));
        let parts = Parts {
            output: v5 && self.has("output.weight"),
            positions: !v5,
            head_norms: v5 && self.has("blk.0.attn_q_norm.weight"),
            vocab: counts,
            scores: true,
            types: true,
        };
        let slots = layout::slots(&d, &parts);
        let start = if v5 { LATE_START } else { super::header::HEADER };
        let mut table = vec![0u8; layout::table_len(&d, parts.output) as usize];
        let mut at = start + 4 + table.len() as u64;
        let codes = if version == Version::V3 { self.o.codes } else { Codes::Later };
        let (mut all, mut entries, mut types) = (vec![], Vec::new(), Vec::new());
        for (slot, place) in slots.iter().zip(layout::table_places(&slots, version)) {
            let (from, dtype) = self.slot(slot, vocab.as_ref())?;
            if let Some(i) = place {
                table[i] = codes.code(dtype).unwrap_or(0);
            }
            let size = self.bytes_of(&from);
            let said = if let Holds::Vocab { dtype, .. } = slot.holds { dtype.to_string() } else { listed(dtype) };
            entries.push(Json::Map(map([
                ("name", slot.name.as_str().into()),
                ("dtype", said.as_str().into()),
                ("file_offset", at.into()),
                ("size", size.into()),
            ])));
            types.push((slot.name.clone(), said));
            at = at.saturating_add(size);
            all.extend(from);
        }
        let lost = self.left_over()?;
        let mut head = (table.len() as u32).to_le_bytes().to_vec();
        head.extend(table);
        all.insert(0, From::Bytes(head));
        let header = Header {
            version,
            dims: d,
            aligned_embed: d.embed,
            aligned_ffn: d.ffn,
            checksum: [0; 32],
            vocab: v5.then(|| counts.map_or((0, 0), |(bytes, merges)| (merges, bytes))),
            starts: if v5 { &[LATE_START] } else { &[super::header::HEADER] },
        };
        let texts = Texts { plan: &self, counts: counts.unwrap_or((0, 0)), types: &types, tied: !parts.output };
        let mut side = vec![("config.json", texts.config().pretty(2).into_bytes())];
        let mut tail = Vec::new();
        if version != Version::V3 {
            let manifest = texts.manifest(entries);
            side.push(("manifest.json", manifest.pretty(2).into_bytes()));
            if v5 {
                tail = texts.tail(&manifest);
            }
        }
        if let Some(bytes) = self.metadata()? {
            side.push((hf::METADATA, bytes));
        }
        let len = at.saturating_add(tail.len() as u64);
        Ok(Job { version, header, parts: all, tail, len, arch: self.arch, dims: d, side, lost })
    }

    /// Tensors without a place: refused, or what is lost in words.
    fn left_over(&self) -> Result<Vec<String>, FormatError> {
        let mut lost = BTreeSet::new();
        for (_, t) in self.c.tensors.iter().enumerate().filter(|(i, _)| !self.taken.contains(i)) {
            let (name, lose) = (t.name.as_str(), self.o.lose);
            let bias = ["attn_q.bias", "attn_k.bias", "attn_v.bias"].iter().any(|b| name.ends_with(b));
            match name {
                "output.weight" if lose.output => {
                    lost.insert("output.weight: logits will be those of token_embd.weight".to_string());
                }
                "output.weight" => {
                    let what = format!("an output matrix of its own (tensor \"output.weight\") in {}", self.version());
                    return Err(self.unsupported(what, "write version 5, or leave it out with --lose output"));
                }
                _ if bias && lose.biases => {
                    lost.insert("biases of queries, keys and values: they will be zero".to_string());
                }
                _ if bias => {
                    let what = format!("tensor {} in {}, whose biases are zeros,", quote(name), self.version());
                    return Err(self.unsupported(what, "write version 4 or 5, or leave them out with --lose biases"));
                }
                _ => {
                    let what = format!("tensor {} in {}", quote(name), self.version());
                    return Err(self.unsupported(what, "it has no place there, and the model is another without it"));
                }
            }
        }
        Ok(lost.into_iter().collect())
    }

    /// Tokeniser and names as a GGUF file without tensors, where there are any.
    fn metadata(&self) -> Result<Option<Vec<u8>>, FormatError> {
        let mut entries = self.c.meta.entries.clone();
        entries.retain(|(k, _)| {
            k.starts_with("tokenizer.")
                || (k.starts_with("general.") && k != "general.file_type" && k != "general.alignment")
        });
        if !entries.iter().any(|(k, _)| k.starts_with("tokenizer.")) {
            return Ok(None);
        }
        Ok(Some(gguf_write::head(hf::METADATA, &Meta { entries }, &[])?.bytes))
    }
}

/// The JSON texts of a file.
struct Texts<'a> {
    plan: &'a Plan<'a>,
    /// bytes of the vocabulary, merges
    counts: (u64, u64),
    /// manifest names and types
    types: &'a [(String, String)],
    tied: bool,
}

impl Texts<'_> {
    fn float(&self, key: &str, none: f64) -> f64 {
        self.plan.c.meta.float(&format!("{}.{key}", self.plan.arch)).unwrap_or(none)
    }

    /// A number that GGUF keeps as f32: version 5's tool writes it as it is widened, those before its shortest decimal.
    fn decimal(&self, v: f64) -> Json {
        let short = (v as f32).to_string().parse().unwrap_or(v);
        Json::Float(if self.plan.o.version == Version::V5 { v } else { short })
    }

    /// How positions are scaled, where they are.
    fn scaling(&self) -> Vec<(String, Json)> {
        let (m, arch) = (&self.plan.c.meta, &self.plan.arch);
        let Some(kind) = m.str(&format!("{arch}.rope.scaling.type")).filter(|k| *k != "none") else { return vec![] };
        let original = m.uint(&format!("{arch}.rope.scaling.original_context_length"));
        map([
            ("rope_scaling_type", kind.into()),
            ("rope_scaling_factor", Json::Float(self.float("rope.scaling.factor", 1.0))),
            ("rope_original_context_length", original.unwrap_or(self.plan.dims.context).into()),
            ("rope_beta_fast", Json::Float(self.float("rope.scaling.yarn_beta_fast", 0.0))),
            ("rope_beta_slow", Json::Float(self.float("rope.scaling.yarn_beta_slow", 0.0))),
            ("rope_attn_factor", Json::Float(self.float("rope.scaling.attn_factor", 1.0))),
        ])
    }

    fn config(&self) -> Json {
        let (p, d) = (self.plan, self.plan.dims);
        let mut list = map([
            ("architectures", Json::List(vec!["LlamaForCausalLM".into()])),
            ("model_type", p.arch.as_str().into()),
            ("num_hidden_layers", d.layers.into()),
            ("hidden_size", d.embed.into()),
            ("intermediate_size", d.ffn.into()),
            ("num_attention_heads", d.heads.into()),
            ("num_key_value_heads", d.kv_heads.into()),
            ("vocab_size", d.vocab.into()),
            ("max_position_embeddings", d.context.into()),
            ("rms_norm_eps", self.decimal(self.float("attention.layer_norm_rms_epsilon", 1e-5))),
            ("rope_theta", self.decimal(self.float("rope.freq_base", 10000.0))),
        ]);
        if p.o.version == Version::V5 {
            list.extend(map([
                ("attn_out_dim", (d.heads * d.head_dim).into()),
                ("tie_word_embeddings", self.tied.into()),
                ("num_merges", self.counts.1.into()),
                ("total_vocab_bytes", self.counts.0.into()),
                ("rope_layout", "split".into()),
            ]));
            for (key, name) in [("tokenizer.chat_template", "chat_template"), ("general.name", "model_name")] {
                list.extend(p.c.meta.str(key).map(|v| (name.to_string(), v.into())));
            }
        }
        let window = p.c.meta.uint(&format!("{}.attention.sliding_window", p.arch)).filter(|w| *w > 0);
        list.extend(window.map(|w| ("sliding_window".to_string(), w.into())));
        list.extend(self.rotated());
        list.extend(self.scaling());
        Json::Map(list)
    }

    /// Rotated elements of a head, where they are not all of them.
    fn rotated(&self) -> Option<(String, Json)> {
        let n = self.plan.c.meta.uint(&format!("{}.rope.dimension_count", self.plan.arch))?;
        (n != self.plan.dims.head_dim).then(|| ("rotary_dim".to_string(), n.into()))
    }

    fn quant_summary(&self) -> Json {
        let of = |name: &str| self.types.iter().find(|(n, _)| n == name).map_or("", |(_, t)| t.as_str());
        let output = if self.tied { "token_emb" } else { "output.weight" };
        let mut list = map([("token_emb", of("token_emb").into()), ("lm_head", of(output).into())]);
        for l in 0..self.plan.dims.layers {
            let part = |what: &str| (what.to_string(), of(&format!("layer.{l}.{what}")).into());
            list.push((format!("layer.{l}"), Json::Map(["wq", "wk", "wv", "wo", "w1", "w2"].map(part).into())));
        }
        Json::Map(list)
    }

    fn special(&self) -> Option<Json> {
        let m = &self.plan.c.meta;
        let mut list = Vec::new();
        for (key, name) in SPECIAL_IDS {
            list.extend(m.uint(&format!("tokenizer.ggml.{name}")).map(|id| (key.to_string(), id.into())));
        }
        for key in SPECIAL_FLAGS {
            list.extend(m.bool(&format!("tokenizer.ggml.{key}")).map(|v| (key.to_string(), v.into())));
        }
        for (key, name) in [("model", "tokenizer_model"), ("pre", "tokenizer_pre")] {
            list.extend(m.str(&format!("tokenizer.ggml.{key}")).map(|v| (name.to_string(), v.into())));
        }
        (!list.is_empty()).then_some(Json::Map(list))
    }

    fn manifest(&self, entries: Vec<Json>) -> Json {
        let (p, d) = (self.plan, self.plan.dims);
        let v5 = p.o.version == Version::V5;
        // the tool has never written another number here
        let mut list = map([("version", 5.into()), ("model", p.arch.as_str().into())]);
        if v5 {
            let places = map([
                ("header_size", super::header::HEADER.into()),
                ("ext_metadata_size", (LATE_START - super::header::HEADER).into()),
                ("data_start", LATE_START.into()),
            ]);
            list.push(("bump_layout".into(), Json::Map(places)));
        }
        list.extend(map([
            ("num_layers", d.layers.into()),
            ("embed_dim", d.embed.into()),
            ("num_heads", d.heads.into()),
            ("num_kv_heads", d.kv_heads.into()),
            ("head_dim", d.head_dim.into()),
            ("intermediate_size", d.ffn.into()),
            ("vocab_size", d.vocab.into()),
            ("context_length", d.context.into()),
            ("has_attention_biases", p.has("blk.0.attn_q.bias").into()),
        ]));
        if v5 {
            list.extend(map([
                ("has_qk_norm", p.has("blk.0.attn_q_norm.weight").into()),
                ("num_merges", self.counts.1.into()),
                ("total_vocab_bytes", self.counts.0.into()),
                ("quant_summary", self.quant_summary()),
            ]));
            if let Some(special) = self.special().filter(|_| p.o.special) {
                list.push(("special_tokens".into(), special));
            }
        }
        list.push(("entries".into(), Json::List(entries)));
        Json::Map(list)
    }

    /// Metadata and footer of version 5.
    fn tail(&self, manifest: &Json) -> Vec<u8> {
        let (p, d) = (self.plan, self.plan.dims);
        let hash = |v: &Json| hex(&Sha256::digest(canonical(&v.value())));
        let template = Json::Map(map([("name", p.arch.as_str().into())]));
        let mut config = map([
            ("model", p.arch.as_str().into()),
            ("embed_dim", d.embed.into()),
            ("attn_out_dim", (d.heads * d.head_dim).into()),
            ("num_layers", d.layers.into()),
            ("num_heads", d.heads.into()),
            ("num_kv_heads", d.kv_heads.into()),
            ("head_dim", d.head_dim.into()),
            ("intermediate_size", d.ffn.into()),
            ("context_length", d.context.into()),
            ("rope_theta", Json::Float(self.float("rope.freq_base", 10000.0))),
            ("vocab_size", d.vocab.into()),
            ("rms_eps", Json::Float(self.float("attention.layer_norm_rms_epsilon", 1e-5))),
            ("tie_word_embeddings", self.tied.into()),
        ]);
        let window = p.c.meta.uint(&format!("{}.attention.sliding_window", p.arch)).filter(|w| *w > 0);
        config.extend(window.map(|w| ("sliding_window".to_string(), w.into())));
        config.extend(self.rotated());
        config.extend(self.scaling());
        let mut metadata = map([
            ("schema_version", 1.into()),
            ("format", "BUMPWGT5".into()),
            ("template_hash", Json::Text(hash(&template))),
            ("template", template),
            ("config", Json::Map(config)),
            ("quant_summary", self.quant_summary()),
            ("manifest_hash", Json::Text(hash(manifest))),
            ("created_by", p.o.created.0.as_str().into()),
        ]);
        metadata.extend(p.o.created.1.as_deref().map(|at| ("created_at".to_string(), at.into())));
        let mut out = canonical(&Json::Map(metadata).value()).into_bytes();
        let (size, found) = (out.len() as u64, Sha256::digest(&out));
        out.extend(super::header::FOOTER_MAGIC);
        out.extend(size.to_le_bytes());
        out.extend(found);
        out
    }
}

impl Job {
    /// One file and nothing else of a directory; `name` is that of the file in the layout.
    pub fn layout(&self, c: &Container, directory: bool, name: &str) -> Layout {
        // a job that was interrupted is begun anew: its hash is
        let fingerprint = format!("bump {}", self.version.number());
        Layout { directory, files: vec![(name.to_string(), self.len)], fingerprint, sources: c.files.clone() }
    }

    /// Writes the file, front to back. `progress` hears how many bytes were written; where it says `false` writing ends,
    /// as the result says.
    ///
    /// Errors: those of reading and writing.
    pub fn write(
        &self,
        c: &Container,
        staged: &Staged,
        name: &str,
        mut progress: impl FnMut(u64) -> bool,
    ) -> Result<bool, FormatError> {
        let out = staged.open(name)?;
        let mut hash = Sha256::new();
        let mut header = self.header.clone();
        let mut at = header.starts[0];
        let mut floats = Vec::new();
        let mut buffer = vec![0u8; READ_AT_ONCE];
        for part in &self.parts {
            match part {
                From::Bytes(bytes) => {
                    out.write_at(at, bytes)?;
                    hash.update(bytes);
                    at += bytes.len() as u64;
                }
                From::Zeros(n) => {
                    // the file was made of zeros
                    buffer.fill(0);
                    let mut left = *n;
                    while left > 0 {
                        let n = left.min(READ_AT_ONCE as u64);
                        hash.update(&buffer[..n as usize]);
                        left -= n;
                        if !progress(n) {
                            return Ok(false);
                        }
                    }
                    at += n;
                }
                From::Tensor(index, convert) => {
                    let t = &c.tensors[*index];
                    let mut done = 0;
                    while done < t.bytes {
                        let n = (t.bytes - done).min(READ_AT_ONCE as u64);
                        c.read(t, done, &mut buffer[..n as usize])?;
                        let bytes = if *convert {
                            widened(t, &buffer[..n as usize], &mut floats)
                        } else {
                            &buffer[..n as usize]
                        };
                        out.write_at(at, bytes)?;
                        hash.update(bytes);
                        at += bytes.len() as u64;
                        done += n;
                        if !progress(n) {
                            return Ok(false);
                        }
                    }
                }
            }
        }
        out.write_at(at, &self.tail)?;
        header.checksum = hash.finalize().into();
        out.write_at(0, &header.bytes())?;
        Ok(true)
    }
}

/// Elements of a float type as f32.
fn widened<'a>(t: &Tensor, bytes: &[u8], out: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(block) = t.dtype.block() else { return out };
    let mut values = vec![0f32; bytes.len() / block.bytes()];
    block.decode_row(bytes, &mut values);
    out.clear();
    out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    out
}

//! Untrusted bytes to named tensors: GGUF files and their shards, safetensors files, Hugging Face directories, BUMP files.
//!
//! A [`Container`] is what a model file holds: typed metadata, tensors with type, shape and place, and positioned
//! reads. Opening one reads headers only, never tensor data, and checks every length against the file; afterwards any
//! byte of any tensor can be read, from several threads.
//!
//! This room trusts nothing it reads: a hostile file is a [`FormatError`], never a panic, a hang or an allocation the
//! file does not justify (its length plus 64 MiB). It must not interpret: what the metadata mean, which tensors a
//! model needs and whether weights are finite is for `models` and the block packers. It prints nothing. What is written
//! goes through `output` alone: under another name until it is complete.

pub mod bump;
pub mod chat;
pub mod dense;
mod digest;
mod dtype;
pub mod encoders;
pub mod ends;
mod error;
pub mod gguf;
pub mod gguf_write;
pub mod hf;
pub mod imatrix;
mod index;
mod int4;
pub mod json;
mod latent;
mod lengthened;
pub mod meta;
pub mod mix;
pub mod names;
mod nets;
mod order;
pub mod output;
pub mod packed;
mod packed_fault;
pub mod policy;
mod relaid;
pub mod safetensors;
mod slim;
pub mod source;
mod stacks;
pub mod synthetic;
mod text_part;

pub use dtype::Dtype;
pub use error::FormatError;
pub use packed_fault::PackedFault;
pub use source::LoadMode;

use error::{quote, show_path};
use index::NameIndex;
use source::Source;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What kind of file or directory a container was opened from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContainerKind {
    /// a GGUF file, the shards of one model, or a directory of packed weights with a GGUF file's metadata
    Gguf,
    /// a single safetensors file, or a single block file
    Safetensors,
    /// a directory with `config.json` and safetensors or block files
    HuggingFace,
    /// a BUMP file, with the files beside it; metadata and names are a GGUF file's
    Bump,
}

impl ContainerKind {
    /// Whether metadata and tensor names are those of a GGUF file.
    pub fn is_named_as_gguf(self) -> bool {
        matches!(self, ContainerKind::Gguf | ContainerKind::Bump)
    }
}

/// Padding inside a tensor: of every `step` bytes of the file the first `run` are the tensor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gaps {
    run: u64,
    step: u64,
}

/// A tensor's name, type, shape and place. Its bytes are fetched with [`Container::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// unique in its container
    pub name: String,
    /// element type
    pub dtype: Dtype,
    /// dimensions, fastest first (GGUF's order; those of safetensors are turned round); empty for a scalar
    pub shape: Vec<u64>,
    /// size of the data in bytes, without padding
    pub bytes: u64,
    /// place of the data, from the start of its file
    pub offset: u64,
    /// position in [`Container::files`]
    pub file: usize,
}

impl Tensor {
    /// Number of elements: the product of the shape, 1 for a scalar.
    pub fn elems(&self) -> u64 {
        // Readers refuse shapes whose product overflows; a tensor made by hand may saturate.
        self.shape.iter().fold(1, |n, &d| n.saturating_mul(d))
    }
}

/// How the activations that a matrix of W8A8 meets become codes of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activations {
    /// with a scale for each token: its greatest magnitude becomes this code, 127 or less
    Dynamic {
        /// the greatest code
        limit: u32,
    },
    /// with a scale fixed when the model was quantised: round(x / scale + offset), ties to even, from -128 to 127
    Static {
        /// finite and at least 2^-40
        scale: f32,
        /// the code of 0
        offset: f32,
    },
}

/// An opened model file or directory.
#[derive(Debug)]
pub struct Container {
    /// what was opened
    pub kind: ContainerKind,
    /// version of a GGUF or BUMP file, else 0
    pub version: u32,
    /// the files with tensors, shards in order; `<embedded>` for bytes in memory
    pub files: Vec<PathBuf>,
    /// metadata of the (first) GGUF file; the `__metadata__` strings of a safetensors file; empty for a directory
    pub meta: meta::Meta,
    /// alignment of tensor data in the first GGUF file; 1 otherwise
    pub alignment: u64,
    /// where tensor data begin in the first file
    pub data_start: u64,
    /// all tensors, in file order, shard after shard
    pub tensors: Vec<Tensor>,
    /// a directory's `config.json`
    pub config: Option<serde_json::Value>,
    /// a directory's `tokenizer.json`, as it is
    pub tokenizer_json: Option<Vec<u8>>,
    /// a directory's `tokenizer_config.json`
    pub tokenizer_config: Option<serde_json::Value>,
    /// a directory's `generation_config.json`
    pub generation_config: Option<serde_json::Value>,
    sources: Vec<Source>,
    index: NameIndex,
    /// tensors with padding between their rows, by name
    gaps: BTreeMap<String, Gaps>,
    /// tensors that do not lie in one place
    stacks: stacks::Stacks,
    /// how matrices of W8A8 want their activations, by name
    activations: BTreeMap<String, Activations>,
    /// the file with metadata or config, where that is not the first with tensors
    described_by: Option<PathBuf>,
}

/// Indexes tensors by name, refusing a name that occurs twice.
fn unique(tensors: &[Tensor], sources: &[Source]) -> Result<NameIndex, FormatError> {
    let mut index = NameIndex::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        if let Some(first) = index.insert(&tensor.name, i, |j| &tensors[j].name) {
            return Err(FormatError::invalid(
                sources[tensor.file].name(),
                format!("tensor {} at byte {}", quote(&tensor.name), tensor.offset),
                "a tensor that is in two files",
                "each name once",
                format_args!("it in {} as well", sources[tensors[first].file].name()),
            ));
        }
    }
    Ok(index)
}

fn is_safetensors_name(name: &str) -> bool {
    name.ends_with(".safetensors")
}

/// What the first bytes say a file is; its name decides when they are of no help.
fn sniff(source: &Source, name: &str) -> Result<ContainerKind, FormatError> {
    let mut head = [0u8; 9];
    let n = source.len().min(9) as usize;
    source.read_at(0, &mut head[..n], &|| "header at byte 0".into())?;
    if bump::is_bump(&head[..n]) || name.ends_with(".bump") {
        return Ok(ContainerKind::Bump);
    }
    // As a safetensors header length these four bytes would mean more than a gigabyte.
    if head[..n].starts_with(&gguf::MAGIC) || name.ends_with(".gguf") {
        return Ok(ContainerKind::Gguf);
    }
    if is_safetensors_name(name) || (n == 9 && head[8] == b'{') {
        return Ok(ContainerKind::Safetensors);
    }
    Err(FormatError::invalid(
        source.name(),
        "header at byte 0",
        "neither GGUF nor BUMP nor safetensors",
        "\"GGUF\", \"BUMPWGT\", or a length and \"{\"",
        format_args!("\"{}\"", head[..n].escape_ascii()),
    ))
}

impl Container {
    /// Opens a `.gguf` file (of shards the first one, the others are found by name), a `.safetensors` file, a
    /// directory with `config.json` and safetensors files (msModelSlim's with their description too), a `.bump` file with
    /// the files beside it, or a directory with exactly one GGUF or BUMP model.
    ///
    /// Reads headers and metadata only (a BUMP file whole, for its checksum). Every rule of the formats is checked here;
    /// see the modules for their limits.
    pub fn open(path: &Path, mode: LoadMode) -> Result<Container, FormatError> {
        let meta = std::fs::metadata(path).map_err(|e| FormatError::io(path, "opening it", e))?;
        if !meta.is_dir() {
            return Container::open_file(path, mode);
        }
        let has_config = path.join("config.json").is_file();
        if has_config && let Some(parsed) = hf::open(path, mode)? {
            let mut c = Container::from_hf(parsed)?;
            // made from a GGUF file, whose vocabulary has no form here
            if c.tokenizer_json.is_none() && path.join(hf::METADATA).is_file() {
                c.take_tokenizer(&path.join(hf::METADATA))?;
            }
            return Ok(c);
        }
        if path.join(hf::METADATA).is_file() && !has_config {
            return Container::from_parts(path, mode);
        }
        let mut models = hf::list(path, ".gguf")?;
        // the metadata of a BUMP file are no model
        models.retain(|name| {
            matches!(gguf::shard_name(name), None | Some((_, 1, _))) && !name.ends_with(&format!(".{}", hf::METADATA))
        });
        let bumps = hf::list(path, ".bump")?;
        if !bumps.is_empty() {
            models.retain(|name| name != hf::METADATA);
            models.extend(bumps);
        }
        match &models[..] {
            [one] => Container::open_file(&path.join(one), mode),
            [] => Err(FormatError::invalid(
                &show_path(path),
                "directory",
                "no model in it",
                "config.json with *.safetensors, or one .gguf or .bump model",
                if has_config { "config.json without weights" } else { "neither" },
            )),
            many => Err(FormatError::invalid(
                &show_path(path),
                "directory",
                "several models in it; name one of them",
                "one .gguf or .bump model",
                hf::some_names(many),
            )),
        }
    }

    /// Opens a GGUF or safetensors file that is in memory already. `name` stands for it in messages.
    pub fn from_bytes(name: &str, bytes: Cow<'static, [u8]>) -> Result<Container, FormatError> {
        let source = Source::bytes(name, bytes);
        let files = vec![PathBuf::from("<embedded>")];
        match sniff(&source, name)? {
            ContainerKind::Gguf => {
                let parsed = gguf::parse(&source, 0)?;
                gguf::refuse_shard(&source, &parsed)?;
                Container::from_gguf(parsed, files, vec![source])
            }
            ContainerKind::Bump => Container::from_bump(source, files, &bump::Beside::default(), None),
            _ => Container::from_safetensors(files, source),
        }
    }

    /// Opens a BUMP file that is in memory, with what else lies beside it.
    pub fn from_bump_bytes(
        name: &str,
        bytes: Cow<'static, [u8]>,
        beside: &bump::Beside,
    ) -> Result<Container, FormatError> {
        Container::from_bump(Source::bytes(name, bytes), vec![PathBuf::from("<embedded>")], beside, None)
    }

    /// Opens a BUMP file with what would lie beside it, whatever does.
    pub fn open_bump(path: &Path, mode: LoadMode, beside: &bump::Beside) -> Result<Container, FormatError> {
        Container::from_bump(Source::open(path, mode)?, vec![path.to_path_buf()], beside, None)
    }

    fn from_bump(
        source: Source,
        files: Vec<PathBuf>,
        beside: &bump::Beside,
        described_by: Option<PathBuf>,
    ) -> Result<Container, FormatError> {
        let parsed = bump::parse(&source, beside, 0)?;
        let sources = vec![source];
        let index = unique(&parsed.tensors, &sources)?;
        Ok(Container {
            version: parsed.version,
            meta: parsed.meta,
            data_start: parsed.data_start,
            gaps: parsed.gaps.into_iter().collect(),
            described_by,
            ..Container::holding(ContainerKind::Bump, files, parsed.tensors, index, sources)
        })
    }

    /// Takes the tokeniser of another model: of a GGUF or BUMP file, or of a directory with `tokenizer.json`.
    ///
    /// Errors: those of opening it; a file without a tokeniser.
    pub fn take_tokenizer(&mut self, from: &Path) -> Result<(), FormatError> {
        let none = |found: &str| {
            let what = "no tokeniser in it";
            let expected = "a GGUF file with tokenizer.ggml keys, or a directory with tokenizer.json";
            Err(FormatError::invalid(&show_path(from), "tokeniser", what, expected, found))
        };
        let is_json = from.file_name().is_some_and(|n| n == "tokenizer.json");
        let dir = if is_json { from.parent() } else { Some(from).filter(|p| p.is_dir()) };
        let (mut keys, mut json, mut config) = (vec![], None, None);
        match dir.map(|d| (d, d.join("tokenizer.json"))).filter(|(_, p)| p.is_file()) {
            Some((dir, path)) => {
                json = Some(source::read_whole(&path, hf::MAX_TOKENIZER)?);
                config = hf::read_optional(&dir.join("tokenizer_config.json"))?;
            }
            None if is_json => return none("nothing of that name"),
            None => {
                keys = Container::open(from, LoadMode::Read)?.meta.entries;
                keys.retain(|(key, _)| key.starts_with("tokenizer."));
                if keys.is_empty() {
                    return none("none of them");
                }
            }
        }
        self.meta.entries.retain(|(key, _)| !key.starts_with("tokenizer."));
        self.meta.entries.extend(keys);
        (self.tokenizer_json, self.tokenizer_config) = (json, config);
        Ok(())
    }

    /// A directory with the metadata of a GGUF file and packed weights under that file's names.
    fn from_parts(dir: &Path, mode: LoadMode) -> Result<Container, FormatError> {
        let source = Source::open(&dir.join(hf::METADATA), mode)?;
        let parsed = gguf::parse(&source, 0)?;
        if let Some(t) = parsed.tensors.first() {
            let place = format!("tensor {}", quote(&t.name));
            return Err(FormatError::invalid(
                source.name(),
                place,
                "weights beside weights",
                "metadata alone",
                "a tensor",
            ));
        }
        let weights = hf::open_weights(dir, mode)?.ok_or_else(|| {
            FormatError::invalid(
                &show_path(dir),
                "directory",
                "no weights in it",
                "*.safetensors or block files",
                "none",
            )
        })?;
        let hf::WeightFiles { files, tensors, index, sources, data_start, .. } = weights;
        Ok(Container {
            version: parsed.version,
            meta: parsed.meta,
            alignment: parsed.alignment,
            data_start,
            described_by: Some(dir.join(hf::METADATA)),
            ..Container::holding(ContainerKind::Gguf, files, tensors, index, sources)
        })
    }

    fn open_file(path: &Path, mode: LoadMode) -> Result<Container, FormatError> {
        let source = Source::open(path, mode)?;
        let mut files = vec![path.to_path_buf()];
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if packed::block_file(name).is_some() {
            let (source, tensor) = packed::open_block_file(path, mode, 0)?;
            let data_start = tensor.offset;
            return Container::bare(files, source, meta::Meta::default(), data_start, vec![tensor]);
        }
        match sniff(&source, name)? {
            ContainerKind::Gguf => {
                let mut parsed = gguf::parse(&source, 0)?;
                let mut sources = vec![source];
                gguf::open_shards(path, mode, &mut parsed, &mut files, &mut sources)?;
                Container::from_gguf(parsed, files, sources)
            }
            ContainerKind::Bump => {
                let (beside, config) = bump::beside(path, mode)?;
                let mut c = Container::from_bump(source, files, &beside, config)?;
                let dir = path.parent().unwrap_or(Path::new(""));
                let tokenizer = dir.join("tokenizer.json");
                if c.meta.get("tokenizer.ggml.model").is_none() && tokenizer.is_file() {
                    c.take_tokenizer(&tokenizer)?;
                }
                Ok(c)
            }
            _ => Container::from_safetensors(files, source),
        }
    }

    fn from_gguf(
        mut parsed: gguf::Parsed,
        files: Vec<PathBuf>,
        sources: Vec<Source>,
    ) -> Result<Container, FormatError> {
        let (tensors, stacks) = stacks::of_old_file(parsed.tensors, &sources)?;
        let (tensors, sources) = latent::renew(&mut parsed.meta, tensors, sources);
        let index = unique(&tensors, &sources)?;
        Ok(Container {
            version: parsed.version,
            meta: parsed.meta,
            alignment: parsed.alignment,
            data_start: parsed.data_start,
            stacks,
            ..Container::holding(ContainerKind::Gguf, files, tensors, index, sources)
        })
    }

    fn from_safetensors(files: Vec<PathBuf>, source: Source) -> Result<Container, FormatError> {
        let parsed = safetensors::parse(&source, 0)?;
        let tensors = packed::resolve(parsed.tensors, std::slice::from_ref(&source))?;
        Container::bare(files, source, parsed.meta, parsed.data_start, tensors)
    }

    /// One file of tensors without a config.
    fn bare(
        files: Vec<PathBuf>,
        source: Source,
        meta: meta::Meta,
        data_start: u64,
        tensors: Vec<Tensor>,
    ) -> Result<Container, FormatError> {
        let sources = vec![source];
        let index = unique(&tensors, &sources)?;
        Ok(Container {
            meta,
            data_start,
            ..Container::holding(ContainerKind::Safetensors, files, tensors, index, sources)
        })
    }

    fn from_hf(parsed: hf::Parsed) -> Result<Container, FormatError> {
        let hf::Parsed { weights, activations, config, tokenizer_json, tokenizer_config, generation_config } = parsed;
        let described_by = weights.files.first().and_then(|f| f.parent()).map(|dir| dir.join("config.json"));
        let hf::WeightFiles { files, tensors, stacks, index, sources, data_start } = weights;
        Ok(Container {
            data_start,
            stacks,
            activations,
            config: Some(config),
            tokenizer_json,
            tokenizer_config,
            generation_config,
            described_by,
            ..Container::holding(ContainerKind::HuggingFace, files, tensors, index, sources)
        })
    }

    /// Tensors and where they lie, and of everything else nothing.
    fn holding(
        kind: ContainerKind,
        files: Vec<PathBuf>,
        tensors: Vec<Tensor>,
        index: NameIndex,
        sources: Vec<Source>,
    ) -> Container {
        Container {
            kind,
            version: 0,
            files,
            meta: meta::Meta::default(),
            tensors,
            alignment: 1,
            data_start: 0,
            config: None,
            tokenizer_json: None,
            tokenizer_config: None,
            generation_config: None,
            sources,
            index,
            gaps: BTreeMap::new(),
            stacks: BTreeMap::new(),
            activations: BTreeMap::new(),
            described_by: None,
        }
    }

    /// The file with the metadata or the config, for messages about them.
    pub fn described_by(&self) -> &Path {
        self.described_by.as_deref().or(self.files.first().map(PathBuf::as_path)).unwrap_or(Path::new(""))
    }

    /// The tensor of this name, in constant time.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(self.index_of(name)?)
    }

    /// Where in `tensors` the tensor of this name is.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        let name_of = |i: usize| self.tensors.get(i).map_or("", |t| t.name.as_str());
        self.index.get(name, name_of)
    }

    /// How the activations of a matrix of W8A8 become codes; `None` for tensors of other types.
    pub fn activations(&self, name: &str) -> Option<Activations> {
        self.activations.get(name).copied()
    }

    /// Fills `out` with the tensor's bytes from `offset` (from its start) on.
    ///
    /// May be called from several threads at once. Fails when the range leaves the tensor, when the tensor is not of
    /// this container, when the file became shorter since it was opened, and when the system cannot read it.
    pub fn read(&self, t: &Tensor, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        let place = || format!("tensor {} at byte {}", quote(&t.name), t.offset.saturating_add(offset));
        let source = self.sources.get(t.file).ok_or_else(|| {
            FormatError::invalid(
                "<no file>",
                place(),
                "a tensor of another container",
                format_args!("a file number below {}", self.sources.len()),
                t.file,
            )
        })?;
        let inside = offset.checked_add(out.len() as u64).is_some_and(|end| end <= t.bytes);
        if let Some(parts) = self.stacks.get(&t.name).filter(|_| inside) {
            return self.read_parts(parts, offset, out);
        }
        match t.offset.checked_add(offset) {
            Some(_) if inside && self.gaps.contains_key(&t.name) => {
                let Gaps { run, step } = self.gaps[&t.name];
                let (mut at, mut rest) = (offset, out);
                while !rest.is_empty() {
                    let n = (run - at % run).min(rest.len() as u64) as usize;
                    let (piece, left) = rest.split_at_mut(n);
                    // the padded ends of all runs were compared with the file's length
                    source.read_at(t.offset + at / run * step + at % run, piece, &place)?;
                    (at, rest) = (at + n as u64, left);
                }
                Ok(())
            }
            Some(start) if inside => source.read_at(start, out, &place),
            _ => Err(FormatError::invalid(
                source.name(),
                place(),
                "a read past the end of the tensor",
                format_args!("a range within {} bytes", t.bytes),
                format_args!("{} bytes from {offset} on", out.len()),
            )),
        }
    }

    /// As [`Container::read`], of a tensor of parts, one after the other. `offset` and length lie within them.
    fn read_parts(&self, parts: &[Tensor], offset: u64, mut out: &mut [u8]) -> Result<(), FormatError> {
        let mut first = 0;
        for t in parts {
            let at = offset.max(first) - first;
            if at < t.bytes && !out.is_empty() {
                let n = (t.bytes - at).min(out.len() as u64) as usize;
                let (piece, rest) = out.split_at_mut(n);
                let place = || format!("tensor {} at byte {}", quote(&t.name), t.offset + at);
                self.sources[t.file].read_at(t.offset + at, piece, &place)?;
                out = rest;
            }
            first += t.bytes;
        }
        Ok(())
    }

    /// Length and time of the last change of each file, as text: what tells whether a file is still the one it was.
    pub fn stamps(&self) -> Vec<String> {
        let stamp = |path: &PathBuf| match std::fs::metadata(path) {
            Ok(m) => format!("{} {:?}", m.len(), m.modified().ok()),
            Err(_) => "in memory".to_string(),
        };
        self.files.iter().map(stamp).collect()
    }

    /// Bytes of all tensors together, without padding.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |n, t| n.saturating_add(t.bytes))
    }
}

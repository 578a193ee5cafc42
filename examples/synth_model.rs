//! Writes a GGUF model of random weights with the shape and metadata of a real one, for measurements and tests.
//!
//! ```text
//! cargo run --release --example synth_model -- --out small.gguf --preset small
//! cargo run --release --example synth_model -- --out odd.gguf   --preset odd  --type f16
//! cargo run --release --example synth_model -- --out big.gguf   --preset 100m --type f16 --seed 7
//! cargo run --release --example synth_model -- --out wide.gguf  --preset tiny --dim 512 --heads 8 --tied
//! ```
//!
//! | preset | dim | layers | ffn | heads / KV heads | vocabulary | context | parameters | what for |
//! |---|---|---|---|---|---|---|---|---|
//! | `tiny` | 256 | 2 | 512 | 4 / 2 | 512 | 512 | 1.4 M | unit tests |
//! | `small` | 512 | 8 | 1536 | 8 / 4 | 32000 | 4096 | 58 M | quick measurements |
//! | `medium` | 2048 | 22 | 5632 | 32 / 4 | 32000 | 4096 | 1.1 G | TinyLlama's shape |
//! | `odd` | 160 | 3 | 352 | 4 / 2 | 333 | 256 | 0.8 M | rows that are no multiple of 128 (f32, f16, bf16, q8_0, q4_0 only) |
//! | `100m` | 1024 | 2 | 2816 | 16 / 4 | 131072, tied | 2048 | 157 M | one tensor beyond 128 MiB as f16 or q8_0 |
//!
//! Every preset can be changed by `--dim --layers --ffn --heads --kv-heads --head-dim --vocab --ctx --tied`. Types:
//! `q4_k_m` (Q4_K, with Q6_K for the output matrix and for the attn_v and ffn_down layers that the usual mix raises),
//! `q4_0` and `q5_k` (the output matrix in Q6_K, or Q8_0 where its rows do not allow that), `q8_0`, `q6_k`, `f16`,
//! `bf16`, `f32`. With `--tied` the embedding is the output matrix and has its type.
//!
//! The weights are noise scaled so that activations stay finite through every layer and logits spread like a trained
//! model's. Element i of a tensor depends only on the seed, the tensor's name and i, by integer operations and one
//! multiplication, so the file is the same on every machine and the same weights underlie every type. The vocabulary
//! is made up and of the sentencepiece kind (control tokens, 256 bytes, letters, letter pairs and triples).
//!
//! Memory use is a few dozen MiB whatever the model's size. The file appears under its name only when it is complete.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use isobit::blocks::BlockType;
use rayon::prelude::*;

#[derive(Parser)]
#[command(about = "Write a GGUF model of random weights with the shape and metadata of a real one")]
struct Args {
    /// The file to write
    #[arg(long)]
    out: PathBuf,
    /// The shape to start from
    #[arg(long, value_enum, default_value = "small")]
    preset: Preset,
    /// How the matrices are stored (q4_k_m unless given, q8_0 for the odd preset)
    #[arg(long = "type", value_enum)]
    mix: Option<Mix>,
    /// Another seed gives other weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Width of the residual stream
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    dim: Option<u32>,
    /// Number of layers
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    layers: Option<u32>,
    /// Width of the feed-forward part
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ffn: Option<u32>,
    /// Number of query heads
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    heads: Option<u32>,
    /// Number of key and value heads
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    kv_heads: Option<u32>,
    /// Width of a head (dim / heads unless given)
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=4096))]
    head_dim: Option<u32>,
    /// Number of tokens
    #[arg(long, value_parser = clap::value_parser!(u32).range(260..=1 << 24))]
    vocab: Option<u32>,
    /// Context length written in the metadata
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    ctx: Option<u32>,
    /// No output matrix of its own: the embedding is used
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    tied: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Preset {
    Tiny,
    Small,
    Medium,
    Odd,
    #[value(name = "100m")]
    M100,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Mix {
    #[value(name = "q4_k_m")]
    Q4KM,
    #[value(name = "q4_0")]
    Q40,
    #[value(name = "q8_0")]
    Q80,
    F16,
    F32,
    Bf16,
    #[value(name = "q5_k")]
    Q5K,
    #[value(name = "q6_k")]
    Q6K,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    dim: u32,
    layers: u32,
    ffn: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    vocab: u32,
    ctx: u32,
    tied: bool,
}

impl Preset {
    fn shape(self) -> Shape {
        let (dim, layers, ffn, heads, kv_heads, vocab, ctx, tied) = match self {
            Preset::Tiny => (256, 2, 512, 4, 2, 512, 512, false),
            Preset::Small => (512, 8, 1536, 8, 4, 32000, 4096, false),
            Preset::Medium => (2048, 22, 5632, 32, 4, 32000, 4096, false),
            Preset::Odd => (160, 3, 352, 4, 2, 333, 256, false),
            Preset::M100 => (1024, 2, 2816, 16, 4, 131072, 2048, true),
        };
        Shape {
            dim,
            layers,
            ffn,
            heads,
            kv_heads,
            head_dim: dim / heads,
            vocab,
            ctx,
            tied,
        }
    }

    fn name(self) -> String {
        self.to_possible_value()
            .map(|v| v.get_name().to_owned())
            .unwrap_or_default()
    }
}

impl Args {
    fn shape(&self) -> Result<Shape> {
        let base = self.preset.shape();
        let dim = self.dim.unwrap_or(base.dim);
        let heads = self.heads.unwrap_or(base.heads);
        let head_dim = match self.head_dim {
            Some(n) => n,
            None => {
                ensure!(
                    dim.is_multiple_of(heads),
                    "--dim {dim} is not a multiple of --heads {heads}; give --head-dim"
                );
                dim / heads
            }
        };
        let shape = Shape {
            dim,
            layers: self.layers.unwrap_or(base.layers),
            ffn: self.ffn.unwrap_or(base.ffn),
            heads,
            kv_heads: self.kv_heads.unwrap_or(base.kv_heads),
            head_dim,
            vocab: self.vocab.unwrap_or(base.vocab),
            ctx: self.ctx.unwrap_or(base.ctx),
            tied: self.tied.unwrap_or(base.tied),
        };
        ensure!(
            heads.is_multiple_of(shape.kv_heads),
            "--heads {heads} is not a multiple of --kv-heads {}",
            shape.kv_heads
        );
        ensure!(
            head_dim.is_multiple_of(2),
            "a head of {head_dim} elements is odd: rotation needs pairs"
        );
        Ok(shape)
    }
}

// ---------------------------------------------------------------- tensors and their types

/// What the type of a tensor depends on.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Output,
    /// attn_v or ffn_down of a layer
    Raised(u32),
    Plain,
    /// norms: one dimension, F32, around 1
    Norm,
}

struct Tensor {
    name: String,
    /// 1 for norms
    rows: usize,
    cols: usize,
    /// standard deviation of the weights
    std: f64,
    role: Role,
    ty: BlockType,
}

impl Tensor {
    fn row_bytes(&self) -> Result<usize> {
        match self.ty.row_bytes(self.cols) {
            Some(n) => Ok(n),
            None => bail!(
                "{}: rows of {} elements are not a multiple of {} ({})",
                self.name,
                self.cols,
                self.ty.elems(),
                self.ty.name()
            ),
        }
    }
}

impl Mix {
    /// `general.file_type`: the number of the mix in llama.cpp.
    fn file_type(self) -> u32 {
        match self {
            Mix::F32 => 0,
            Mix::F16 => 1,
            Mix::Q40 => 2,
            Mix::Q80 => 7,
            Mix::Q4KM => 15,
            Mix::Q5K => 16,
            Mix::Q6K => 18,
            Mix::Bf16 => 32,
        }
    }

    fn pick(self, role: Role, layers: u32, cols: usize) -> BlockType {
        let plain = match self {
            Mix::F32 => BlockType::F32,
            Mix::F16 => BlockType::F16,
            Mix::Bf16 => BlockType::BF16,
            Mix::Q80 => BlockType::Q8_0,
            Mix::Q40 => BlockType::Q4_0,
            Mix::Q4KM => BlockType::Q4_K,
            Mix::Q5K => BlockType::Q5_K,
            Mix::Q6K => BlockType::Q6_K,
        };
        match role {
            Role::Norm => BlockType::F32,
            Role::Output if matches!(self, Mix::Q40 | Mix::Q4KM | Mix::Q5K) => {
                if cols.is_multiple_of(BlockType::Q6_K.elems()) {
                    BlockType::Q6_K
                } else {
                    BlockType::Q8_0
                }
            }
            Role::Raised(layer) if self == Mix::Q4KM && raised(layer, layers) => BlockType::Q6_K,
            _ => plain,
        }
    }
}

/// The layers whose attn_v and ffn_down the Q4_K_M mix stores as Q6_K: the first and last eighth, and every third of
/// the others.
fn raised(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// Every tensor in the order of the file.
fn tensors(s: &Shape, mix: Mix) -> Vec<Tensor> {
    let [dim, ffn, vocab] = [s.dim, s.ffn, s.vocab].map(|n| n as usize);
    let q = s.heads as usize * s.head_dim as usize;
    let kv = s.kv_heads as usize * s.head_dim as usize;
    let mut list = Vec::new();
    let mut add = |name: String, rows: usize, cols: usize, std: f64, role: Role| {
        let ty = mix.pick(role, s.layers, cols);
        list.push(Tensor {
            name,
            rows,
            cols,
            std,
            role,
            ty,
        });
    };
    let over_root = |n: usize| 1.0 / (n as f64).sqrt();
    // Two additions to the residual stream per layer: this keeps its size steady.
    let residual = 1.0 / (2.0 * s.layers as f64).sqrt();
    // Logits with a standard deviation of 3.
    let output_std = 3.0 * over_root(dim);
    if s.tied {
        add(
            "token_embd.weight".into(),
            vocab,
            dim,
            output_std,
            Role::Output,
        );
    } else {
        add("token_embd.weight".into(), vocab, dim, 1.0, Role::Plain);
    }
    for i in 0..s.layers {
        let b = |part: &str| format!("blk.{i}.{part}.weight");
        add(b("attn_norm"), 1, dim, 0.1, Role::Norm);
        add(b("attn_q"), q, dim, over_root(dim), Role::Plain);
        add(b("attn_k"), kv, dim, over_root(dim), Role::Plain);
        add(b("attn_v"), kv, dim, over_root(dim), Role::Raised(i));
        add(
            b("attn_output"),
            dim,
            q,
            residual * over_root(q),
            Role::Plain,
        );
        add(b("ffn_norm"), 1, dim, 0.1, Role::Norm);
        add(b("ffn_gate"), ffn, dim, over_root(dim), Role::Plain);
        add(b("ffn_up"), ffn, dim, over_root(dim), Role::Plain);
        add(
            b("ffn_down"),
            dim,
            ffn,
            residual * 2.0 * over_root(ffn),
            Role::Raised(i),
        );
    }
    add("output_norm.weight".into(), 1, dim, 0.1, Role::Norm);
    if !s.tied {
        add("output.weight".into(), vocab, dim, output_std, Role::Output);
    }
    list
}

// ---------------------------------------------------------------- weights

/// splitmix64's finaliser.
fn mix64(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The noise of one tensor.
struct Noise {
    key: u64,
    /// what one unit of the integer sum is worth
    unit: f32,
    mean: f32,
}

impl Noise {
    fn new(seed: u64, t: &Tensor) -> Noise {
        // FNV-1a over the name, so that tensors are independent.
        let name = t.name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
            (h ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // The sum of four uniform 16-bit numbers has this standard deviation: sqrt(4 * (2^32 - 1) / 12).
        let sigma = (((1u64 << 32) - 1) as f64 / 3.0).sqrt();
        Noise {
            key: mix64(mix64(seed) ^ name),
            unit: (t.std / sigma) as f32,
            mean: if t.role == Role::Norm { 1.0 } else { 0.0 },
        }
    }

    /// Element `index`, nearly Gaussian: within 3.5 standard deviations.
    fn at(&self, index: u64) -> f32 {
        let h = mix64(
            self.key
                .wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        );
        const HALVES: u64 = 0x0000_ffff_0000_ffff;
        let pairs = (h & HALVES) + ((h >> 16) & HALVES);
        let sum = (pairs as u32) as i32 + (pairs >> 32) as i32 - 2 * 65535;
        self.mean + sum as f32 * self.unit
    }
}

/// Writes the tensor's rows, a few MiB at a time.
fn write_tensor(w: &mut impl Write, t: &Tensor, seed: u64) -> Result<()> {
    const CHUNK: usize = 8 << 20;
    let row_bytes = t.row_bytes()?;
    let noise = Noise::new(seed, t);
    let rows_per_chunk = (CHUNK / row_bytes).clamp(1, t.rows);
    let mut buffer = vec![0u8; rows_per_chunk * row_bytes];
    for first in (0..t.rows).step_by(rows_per_chunk) {
        let rows = rows_per_chunk.min(t.rows - first);
        let part = &mut buffer[..rows * row_bytes];
        part.par_chunks_mut(row_bytes).enumerate().for_each_init(
            || vec![0.0f32; t.cols],
            |x, (r, out)| {
                let start = (first + r) as u64 * t.cols as u64;
                for (i, v) in x.iter_mut().enumerate() {
                    *v = noise.at(start + i as u64);
                }
                t.ty.encode_row(x, out);
            },
        );
        w.write_all(part)?;
    }
    Ok(())
}

// ---------------------------------------------------------------- vocabulary

/// Token texts, scores and types of a sentencepiece vocabulary of `n` tokens (at least 260).
fn vocabulary(n: usize) -> (Vec<String>, Vec<f32>, Vec<i32>) {
    const LETTERS: &str = "etaoinshrdlucmfwygpbvkxqjz";
    // A word's first piece starts with this sign, which stands for the space before it.
    const SPACE: char = '\u{2581}';
    let letters = || LETTERS.chars();
    let pairs = || letters().flat_map(move |a| letters().map(move |b| format!("{a}{b}")));
    let triples = || pairs().flat_map(move |ab| letters().map(move |c| format!("{ab}{c}")));
    let special = ["<unk>", "<s>", "</s>"].map(String::from).into_iter();
    let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
    let pieces = std::iter::once(SPACE.to_string())
        .chain((33..127u8).map(|c| (c as char).to_string()))
        .chain(letters().map(|c| format!("{SPACE}{c}")))
        .chain(letters().map(|c| format!("{SPACE}{}", c.to_ascii_uppercase())))
        .chain(pairs())
        .chain(pairs().map(|p| format!("{SPACE}{p}")))
        .chain(triples())
        .chain(triples().map(|p| format!("{SPACE}{p}")))
        // Larger vocabularies: numbered words, which merge digit by digit.
        .chain((0u32..).map(|i| format!("{SPACE}w{i}")));
    let tokens: Vec<String> = special.chain(bytes).chain(pieces).take(n).collect();
    let scores = (0..n)
        .map(|i| if i < 259 { 0.0 } else { 259.0 - i as f32 })
        .collect();
    // 1 normal, 2 unknown, 3 control, 6 byte
    let types = (0..n)
        .map(|i| match i {
            0 => 2,
            1 | 2 => 3,
            3..259 => 6,
            _ => 1,
        })
        .collect();
    (tokens, scores, types)
}

// ---------------------------------------------------------------- GGUF

/// Tensors start at multiples of this; the format's default.
const ALIGNMENT: u64 = 32;

/// Key-value pairs as GGUF stores them.
#[derive(Default)]
struct Metadata {
    bytes: Vec<u8>,
    count: u64,
}

impl Metadata {
    fn text(&mut self, s: &str) {
        self.bytes.extend((s.len() as u64).to_le_bytes());
        self.bytes.extend(s.as_bytes());
    }

    fn key(&mut self, key: &str, value_type: u32) {
        self.count += 1;
        self.text(key);
        self.bytes.extend(value_type.to_le_bytes());
    }

    fn u32(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn f32(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    fn bool(&mut self, key: &str, value: bool) {
        self.key(key, 7);
        self.bytes.push(value as u8);
    }

    fn string(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        self.text(value);
    }

    fn array<T>(
        &mut self,
        key: &str,
        elem_type: u32,
        values: &[T],
        mut put: impl FnMut(&mut Self, &T),
    ) {
        self.key(key, 9);
        self.bytes.extend(elem_type.to_le_bytes());
        self.bytes.extend((values.len() as u64).to_le_bytes());
        for v in values {
            put(self, v);
        }
    }
}

fn metadata(name: &str, s: &Shape, mix: Mix) -> Metadata {
    let mut m = Metadata::default();
    m.string("general.architecture", "llama");
    m.string("general.type", "model");
    m.string("general.name", name);
    m.u32("llama.block_count", s.layers);
    m.u32("llama.context_length", s.ctx);
    m.u32("llama.embedding_length", s.dim);
    m.u32("llama.feed_forward_length", s.ffn);
    m.u32("llama.attention.head_count", s.heads);
    m.u32("llama.attention.head_count_kv", s.kv_heads);
    m.f32("llama.rope.freq_base", 10000.0);
    m.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    if s.heads as u64 * s.head_dim as u64 != s.dim as u64 {
        m.u32("llama.attention.key_length", s.head_dim);
        m.u32("llama.attention.value_length", s.head_dim);
    }
    m.u32("llama.vocab_size", s.vocab);
    m.u32("llama.rope.dimension_count", s.head_dim);
    let (tokens, scores, types) = vocabulary(s.vocab as usize);
    m.string("tokenizer.ggml.model", "llama");
    m.string("tokenizer.ggml.pre", "default");
    m.array("tokenizer.ggml.tokens", 8, &tokens, |m, t| m.text(t));
    m.array("tokenizer.ggml.scores", 6, &scores, |m, v| {
        m.bytes.extend(v.to_le_bytes())
    });
    m.array("tokenizer.ggml.token_type", 5, &types, |m, v| {
        m.bytes.extend(v.to_le_bytes())
    });
    m.u32("tokenizer.ggml.bos_token_id", 1);
    m.u32("tokenizer.ggml.eos_token_id", 2);
    m.u32("tokenizer.ggml.unknown_token_id", 0);
    m.bool("tokenizer.ggml.add_bos_token", true);
    m.bool("tokenizer.ggml.add_eos_token", false);
    m.u32("general.quantization_version", 2);
    m.u32("general.file_type", mix.file_type());
    m
}

/// The type's number in GGUF.
fn type_id(ty: BlockType) -> u32 {
    match ty {
        BlockType::F32 => 0,
        BlockType::F16 => 1,
        BlockType::Q4_0 => 2,
        BlockType::Q8_0 => 8,
        BlockType::Q4_K => 12,
        BlockType::Q5_K => 13,
        BlockType::Q6_K => 14,
        BlockType::BF16 => 30,
        BlockType::Q8_K | BlockType::Q8K128 => unreachable!("no mix has {}", ty.name()),
    }
}

struct Summary {
    parameters: u64,
    data: u64,
    largest: u64,
}

fn write_model(w: &mut impl Write, name: &str, s: &Shape, mix: Mix, seed: u64) -> Result<Summary> {
    let list = tensors(s, mix);
    let meta = metadata(name, s, mix);
    let mut head = Metadata::default();
    head.bytes.extend(b"GGUF");
    head.bytes.extend(3u32.to_le_bytes());
    head.bytes.extend((list.len() as u64).to_le_bytes());
    head.bytes.extend(meta.count.to_le_bytes());
    head.bytes.extend(&meta.bytes);
    let mut sum = Summary {
        parameters: 0,
        data: 0,
        largest: 0,
    };
    for t in &list {
        let size = t.rows as u64 * t.row_bytes()? as u64;
        head.text(&t.name);
        // The fastest dimension first.
        let dims: &[usize] = if t.role == Role::Norm {
            &[t.cols]
        } else {
            &[t.cols, t.rows]
        };
        head.bytes.extend((dims.len() as u32).to_le_bytes());
        for &d in dims {
            head.bytes.extend((d as u64).to_le_bytes());
        }
        head.bytes.extend(type_id(t.ty).to_le_bytes());
        head.bytes.extend(sum.data.to_le_bytes());
        sum.parameters += t.rows as u64 * t.cols as u64;
        sum.data += size.next_multiple_of(ALIGNMENT);
        sum.largest = sum.largest.max(size);
    }
    head.bytes
        .resize(head.bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
    w.write_all(&head.bytes)?;
    for t in &list {
        write_tensor(w, t, seed)?;
        let size = t.rows as u64 * t.row_bytes()? as u64;
        let padding = (size.next_multiple_of(ALIGNMENT) - size) as usize;
        w.write_all(&[0; ALIGNMENT as usize][..padding])?;
    }
    Ok(sum)
}

/// Writes under a temporary name in the same folder, which becomes `out` when the model is complete.
fn write_file(out: &Path, name: &str, s: &Shape, mix: Mix, seed: u64) -> Result<Summary> {
    let mut temporary = out.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let write = || -> Result<Summary> {
        let mut file = File::create(&temporary)?;
        let sum = write_model(&mut file, name, s, mix, seed)?;
        file.sync_all()?;
        drop(file);
        std::fs::rename(&temporary, out)?;
        Ok(sum)
    };
    let result = write();
    if result.is_err() {
        // The first error is the one to report; the file may not even exist.
        let _ = std::fs::remove_file(&temporary);
    }
    result.with_context(|| format!("writing {}", out.display()))
}

#[allow(dead_code, reason = "not called where this file is included as a module")]
fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Writes the model that these arguments (the first is the program's name) ask for; for tests.
#[allow(dead_code, reason = "used where this file is included as a module")]
pub fn generate(args: &[&str]) -> Result<()> {
    run(&Args::try_parse_from(args)?)
}

fn run(args: &Args) -> Result<()> {
    let mix = args.mix.unwrap_or(match args.preset {
        Preset::Odd => Mix::Q80,
        _ => Mix::Q4KM,
    });
    let shape = args.shape()?;
    let start = std::time::Instant::now();
    let kind = mix
        .to_possible_value()
        .map(|v| v.get_name().to_owned())
        .unwrap_or_default();
    let name = format!("synthetic-{}-{kind}-seed{}", args.preset.name(), args.seed);
    let sum = write_file(&args.out, &name, &shape, mix, args.seed)?;
    println!(
        "{}: {:.1} M parameters, {:.1} MiB of tensors, the largest {:.1} MiB, {:.1} s",
        args.out.display(),
        sum.parameters as f64 / 1e6,
        sum.data as f64 / (1 << 20) as f64,
        sum.largest as f64 / (1 << 20) as f64,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// `cargo test --example synth_model`
#[cfg(test)]
mod tests {
    use super::*;

    fn model(preset: Preset, mix: Mix, seed: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_model(&mut bytes, "test", &preset.shape(), mix, seed).unwrap();
        bytes
    }

    fn fnv(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
            (h ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    #[test]
    fn the_same_seed_gives_the_same_file_on_every_machine() {
        let tiny = model(Preset::Tiny, Mix::Q4KM, 1);
        assert_eq!(tiny, model(Preset::Tiny, Mix::Q4KM, 1));
        assert_ne!(tiny, model(Preset::Tiny, Mix::Q4KM, 2));
        let digests = [tiny, model(Preset::Odd, Mix::F32, 1)].map(|b| fnv(&b));
        assert_eq!(
            digests,
            [0x2e86f77fa894107b, 0x7d31f734ca3e18f0],
            "{digests:016x?}"
        );
    }

    #[test]
    fn noise_has_the_deviation_asked_for_and_no_two_tensors_share_it() {
        let list = tensors(&Preset::Tiny.shape(), Mix::F32);
        let mut first = Vec::new();
        for t in &list {
            let noise = Noise::new(1, t);
            let n = 20000;
            let x: Vec<f64> = (0..n).map(|i| noise.at(i) as f64).collect();
            let mean = x.iter().sum::<f64>() / n as f64;
            let std = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
            let centre = if t.role == Role::Norm { 1.0 } else { 0.0 };
            assert!(
                (mean - centre).abs() < 0.03 * t.std,
                "{}: mean {mean}",
                t.name
            );
            assert!(
                (std / t.std - 1.0).abs() < 0.03,
                "{}: {std} for {}",
                t.name,
                t.std
            );
            first.push(noise.key);
        }
        first.sort();
        first.dedup();
        assert_eq!(first.len(), list.len());
    }

    #[test]
    fn vocabularies_have_the_asked_size_and_no_token_twice() {
        for n in [260, 333, 512, 32000, 131072] {
            let (tokens, scores, types) = vocabulary(n);
            assert_eq!([tokens.len(), scores.len(), types.len()], [n; 3]);
            assert_eq!(
                tokens
                    .iter()
                    .collect::<std::collections::HashSet<_>>()
                    .len(),
                n
            );
        }
    }

    #[test]
    fn rows_that_do_not_fit_the_type_are_an_error_and_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("odd.gguf");
        let error = write_file(&out, "test", &Preset::Odd.shape(), Mix::Q5K, 1)
            .err()
            .unwrap();
        assert!(format!("{error:#}").contains("160"), "{error:#}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        for mix in [Mix::F32, Mix::F16, Mix::Bf16, Mix::Q80, Mix::Q40] {
            write_file(&out, "test", &Preset::Odd.shape(), mix, 1).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_100m_preset_has_a_tensor_beyond_128_mib() {
        for mix in [Mix::F16, Mix::Q80] {
            let list = tensors(&Preset::M100.shape(), mix);
            let largest = list
                .iter()
                .map(|t| t.rows * t.row_bytes().unwrap())
                .max()
                .unwrap();
            assert!(largest > 128 << 20, "{mix:?}: {largest}");
            assert!(list.iter().map(|t| t.rows * t.cols).sum::<usize>() >= 100_000_000);
        }
    }

    #[test]
    fn the_q4_k_m_mix_is_the_usual_one() {
        let list = tensors(&Preset::Medium.shape(), Mix::Q4KM);
        let types = |part: &str| -> Vec<BlockType> {
            list.iter()
                .filter(|t| t.name.contains(part))
                .map(|t| t.ty)
                .collect()
        };
        assert_eq!(types("output.weight").last(), Some(&BlockType::Q6_K));
        assert_eq!(types("token_embd"), [BlockType::Q4_K]);
        // 22 layers: 0, 1, then every third from 4, then 19 to 21.
        let six: Vec<usize> = (0..22)
            .filter(|&i| types("ffn_down")[i] == BlockType::Q6_K)
            .collect();
        assert_eq!(six, [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
        assert_eq!(types("attn_v"), types("ffn_down"));
        assert!(types("ffn_up").iter().all(|&t| t == BlockType::Q4_K));
    }
}

//! Writes a model of random weights with the shape and metadata of a real one, as a GGUF file or a Hugging Face
//! directory, for measurements and tests.
//!
//! ```text
//! cargo run --release --example synth_model -- --out small.gguf --preset small
//! cargo run --release --example synth_model -- --out odd.gguf   --preset odd  --type f16
//! cargo run --release --example synth_model -- --out big.gguf   --preset 100m --type f16 --seed 7
//! cargo run --release --example synth_model -- --out wide.gguf  --preset tiny --dim 512 --heads 8 --tied
//! cargo run --release --example synth_model -- --out phi.gguf   --preset phi3-tiny --outliers
//! cargo run --release --example synth_model -- --out qwen-dir   --preset qwen3-tiny --format hf --type bf16
//! ```
//!
//! | preset | dim | layers | ffn | heads / KV heads | vocabulary | context | parameters | what for |
//! |---|---|---|---|---|---|---|---|---|
//! | `tiny` | 256 | 2 | 512 | 4 / 2 | 512 | 512 | 1.4 M | unit tests |
//! | `small` | 512 | 8 | 1536 | 8 / 4 | 32000 | 4096 | 58 M | quick measurements |
//! | `medium` | 2048 | 22 | 5632 | 32 / 4 | 32000 | 4096 | 1.1 G | TinyLlama's shape |
//! | `odd` | 160 | 3 | 352 | 4 / 2 | 333 | 256 | 0.8 M | rows that are no multiple of 128 |
//! | `phi3-tiny` | 256 | 2 | 512 | 4 / 4 | 512 | 512, longrope from 128 | 1.6 M | tests of phi3 |
//! | `qwen2-tiny` | 256 | 2 | 512 | 4 / 2 | 512, tied | 512 | 1.3 M | tests of qwen2 |
//! | `qwen3-tiny` | 256 | 2 | 512 | 4 / 2 of 128 | 512 | 512 | 1.8 M | tests of qwen3 |
//! | `chatglm-tiny` | 256 | 2 | 512 | 4 / 2 | 512 | 512 | 1.4 M | tests of chatglm |
//! | `100m` | 1024 | 2 | 2816 | 16 / 4 | 131072, tied | 2048 | 157 M | one tensor beyond 128 MiB as f16 or q8_0 |
//!
//! Every preset can be changed by `--arch --dim --layers --ffn --heads --kv-heads --head-dim --vocab --ctx --tied --larger`, by
//! `--experts --used --expert-ffn --shared --dense` (llama, qwen2moe, qwen3moe, granitemoe, glm4moe, lfm2moe, deepseek2, gemma4), and by
//! `--rope --original-ctx --rotary` (how positions are scaled, and which share of a head is rotated) and `--window`. With `--outliers`
//! one input channel in 64 of every matrix has weights 8 times (or as given) those of the others, so that error
//! histograms have something to show. `--format hf` writes f32, f16 or bf16 in `--shards` safetensors files, as transformers
//! names them; `--format chatglm` the same with the names and the config of ChatGLM's own code. Types:
//! `q4_k_m` (Q4_K, with Q6_K for the output matrix and for the attn_v, attn_qkv and ffn_down that the usual mix raises),
//! `q4_0`, `q4_1`, `q5_0`, `q5_1` and `q5_k` (the output matrix in Q6_K), `q8_0`, `q6_k`, `f16`, `bf16`, `f32`. Where rows are
//! not whole blocks of the type, the one that llama.cpp takes instead. With `--tied` the embedding is the output matrix and has its type.
//!
//! The weights are noise scaled so that activations stay finite through every layer and logits spread like a trained
//! model's. Element i of a tensor depends only on the seed, the tensor's name and i, by integer operations and one
//! multiplication, so the file is the same on every machine and the same weights underlie every type. The vocabulary
//! is made up: of the sentencepiece kind (control tokens, 256 bytes, letters, letter pairs and triples) for llama and
//! phi3, byte-level for qwen2, qwen3 and chatglm. All forms of a model have the same weights, vocabulary and texts.
//!
//! Memory use is a few dozen MiB whatever the model's size. The file or directory appears under its name only when it is complete.

#[path = "synth_model/deepseek2.rs"]
mod deepseek2;
#[path = "synth_model/gemma3n.rs"]
mod gemma3n;
#[path = "synth_model/gemma4.rs"]
mod gemma4;
#[path = "synth_model/gguf.rs"]
mod gguf;
#[path = "synth_model/hf.rs"]
mod hf;
#[path = "synth_model/hybrid.rs"]
mod hybrid;
#[path = "synth_model/layernormed.rs"]
mod layernormed;
#[path = "synth_model/lfm2.rs"]
mod lfm2;
#[path = "synth_model/mamba2.rs"]
mod mamba2;
#[path = "synth_model/vocabulary.rs"]
mod vocabulary;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use isobit::internals::blocks::BlockType;
use isobit::internals::formats::synthetic::{self, Arch, Delta, Experts, Latent, Role, Shape, Uneven};
use rayon::prelude::*;

#[derive(Parser)]
#[command(
    about = "Write a model of random weights with the shape and metadata of a real one",
    args_override_self = true
)]
struct Args {
    /// The file or directory to write
    #[arg(long)]
    out: PathBuf,
    /// The shape to start from
    #[arg(long, value_enum, default_value = "small")]
    preset: Preset,
    /// A GGUF file or a Hugging Face directory; chatglm is one for ChatGLM's own code
    #[arg(long, value_enum, default_value = "gguf")]
    format: Format,
    /// Safetensors files of a Hugging Face directory
    #[arg(long, default_value_t = 2)]
    shards: usize,
    /// The architecture (the preset's unless given)
    #[arg(long, value_parser = architecture)]
    arch: Option<Arch>,
    /// How the matrices are stored (q4_k_m unless given, q8_0 for the odd preset, bf16 for hf)
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
    /// Scaling of positions (longrope for the phi3 preset, else plain); longrope is phi3's, llama3 is for hf
    #[arg(long, value_enum)]
    rope: Option<Rope>,
    /// Context before scaling (a quarter of the context unless given)
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1 << 30))]
    original_ctx: Option<u32>,
    /// Share of a head that is rotated (1 unless given, 0.5 of chatglm); only phi3 and chatglm have another than 1
    #[arg(long)]
    rotary: Option<f64>,
    /// Positions a query sees in layers with a window, of an architecture that has such; 0 for none
    #[arg(long, default_value_t = 0)]
    window: u32,
    /// Experts of a layer, in the place of the feed-forward; 0 for none
    #[arg(long, default_value_t = 0)]
    experts: u32,
    /// Experts that a token meets
    #[arg(long, default_value_t = 2)]
    used: u32,
    /// Width of an expert (the feed-forward's unless given)
    #[arg(long)]
    expert_ffn: Option<u32>,
    /// Width of an expert that all tokens meet; 0 for none
    #[arg(long, default_value_t = 0)]
    shared: u32,
    /// Layers in front that have no experts
    #[arg(long, default_value_t = 0)]
    dense: u32,
    /// Heads of keys of recurrent layers (of an architecture that has some); groups of heads of state spaces
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    delta_keys: u32,
    /// Heads of values of recurrent layers; heads of state spaces, of --head-dim channels
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    delta_heads: u32,
    /// Width of a head of recurrent layers; elements of a channel's state of state spaces
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(32..=256))]
    delta_size: u32,
    /// Latent attention: the rank of queries (0: none), that of keys and values, and of a head what is rotated, what is not, and
    /// the width of values
    #[arg(long, value_delimiter = ',', default_values_t = [0, 48, 16, 24, 20])]
    latent: Vec<u32>,
    /// What differs from layer to layer in gemma4: elements of a head and key-value heads in layers with a window, one layer in how
    /// many has none, layers without keys and values, how many times as wide their feed-forwards are, elements of a token's
    /// vector for each layer, and whether keys are values (1) in layers without a window
    #[arg(long, value_delimiter = ',', default_values_t = [32, 2, 3, 0, 1, 24, 0])]
    uneven: Vec<u32>,
    /// The greatest step of state spaces; only a directory says so
    #[arg(long)]
    most_step: Option<f64>,
    /// The form of the family's larger models (stablelm, command-r, falcon, deepseek2)
    #[arg(long)]
    larger: bool,
    /// One input channel in 64 has weights this many times the others'
    #[arg(long, num_args = 0..=1, default_missing_value = "8", default_value_t = 1.0, value_name = "FACTOR")]
    outliers: f32,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Format {
    Gguf,
    Hf,
    Chatglm,
}

fn architecture(s: &str) -> Result<Arch, String> {
    Arch::parse(s).ok_or_else(|| format!("expected {}", Arch::ALL.map(Arch::name).join(", ")))
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Rope {
    Plain,
    Longrope,
    Yarn,
    Llama3,
    Linear,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Preset {
    Tiny,
    Small,
    Medium,
    Odd,
    Phi3Tiny,
    Qwen2Tiny,
    Qwen3Tiny,
    #[value(name = "chatglm-tiny")]
    ChatGlmTiny,
    #[value(name = "100m")]
    M100,
}

#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
enum Mix {
    #[value(name = "q4_k_m")]
    Q4KM,
    #[value(name = "q4_0")]
    Q40,
    #[value(name = "q4_1")]
    Q41,
    #[value(name = "q5_0")]
    Q50,
    #[value(name = "q5_1")]
    Q51,
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

/// Rotated elements of a head.
fn n_rot(head_dim: u32, rotary: f64) -> u32 {
    (f64::from(head_dim) * rotary) as u32
}

/// Everything that a file's bytes follow from.
struct Model {
    name: String,
    shape: Shape,
    /// share of a head that is rotated
    rotary: f64,
    mix: Mix,
    seed: u64,
    rope: Rope,
    /// context before scaling
    original: u32,
    outliers: f32,
    norms: Norms,
    /// how fast states fade is written as its logarithm
    logarithms: bool,
    /// the greatest step of state spaces
    most_step: Option<f64>,
}

/// What is written of norms.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Norms {
    /// noise around 1
    AsTheyAre,
    /// noise around 0
    LessOne,
    /// 1 and that
    PlusOne,
}

impl Preset {
    fn shape(self) -> Shape {
        let (dim, layers, ffn, heads, kv_heads, vocab, ctx, tied) = match self {
            Preset::Tiny => (256, 2, 512, 4, 2, 512, 512, false),
            Preset::Small => (512, 8, 1536, 8, 4, 32000, 4096, false),
            Preset::Medium => (2048, 22, 5632, 32, 4, 32000, 4096, false),
            Preset::Odd => (160, 3, 352, 4, 2, 333, 256, false),
            Preset::M100 => (1024, 2, 2816, 16, 4, 131072, 2048, true),
            Preset::Phi3Tiny => (256, 2, 512, 4, 4, 512, 512, false),
            Preset::Qwen2Tiny => (256, 2, 512, 4, 2, 512, 512, true),
            Preset::Qwen3Tiny | Preset::ChatGlmTiny => (256, 2, 512, 4, 2, 512, 512, false),
        };
        let head_dim = if self == Preset::Qwen3Tiny { 128 } else { dim / heads };
        Shape {
            name: "",
            arch: self.arch(),
            dim,
            layers,
            ffn,
            heads,
            kv_heads,
            head_dim,
            vocab,
            ctx,
            tied,
            window: 0,
            experts: Experts::NONE,
            delta: Delta::NONE,
            latent: Latent::NONE,
            uneven: Uneven::NONE,
            larger: false,
        }
    }

    fn arch(self) -> Arch {
        match self {
            Preset::Phi3Tiny => Arch::Phi3,
            Preset::Qwen2Tiny => Arch::Qwen2,
            Preset::Qwen3Tiny => Arch::Qwen3,
            Preset::ChatGlmTiny => Arch::ChatGlm,
            _ => Arch::Llama,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }
}

impl Args {
    fn shape(&self) -> Result<Shape> {
        let base = self.preset.shape();
        let dim = self.dim.unwrap_or(base.dim);
        let heads = self.heads.unwrap_or(base.heads);
        let head_dim = match self.head_dim {
            Some(n) => n,
            None if self.dim.is_none() && self.heads.is_none() => base.head_dim,
            None => {
                ensure!(dim.is_multiple_of(heads), "--dim {dim} is not a multiple of --heads {heads}; give --head-dim");
                dim / heads
            }
        };
        let shape = Shape {
            name: "",
            arch: self.arch.unwrap_or(base.arch),
            dim,
            layers: self.layers.unwrap_or(base.layers),
            ffn: self.ffn.unwrap_or(base.ffn),
            heads,
            kv_heads: self.kv_heads.unwrap_or(base.kv_heads),
            head_dim,
            vocab: self.vocab.unwrap_or(base.vocab),
            ctx: self.ctx.unwrap_or(base.ctx),
            tied: self.tied.unwrap_or(base.tied),
            experts: Experts::NONE,
            delta: match self.arch {
                Some(arch) if arch.is_hybrid() || arch == Arch::Mamba2 => {
                    Delta { key_heads: self.delta_keys, heads: self.delta_heads, size: self.delta_size }
                }
                _ => Delta::NONE,
            },
            latent: Latent::NONE,
            uneven: Uneven::NONE,
            window: match self.arch {
                // which layers are rotated follows from it
                Some(Arch::Cohere2 | Arch::Gemma3n | Arch::Gemma4) if self.window == 0 => 4096,
                _ => self.window,
            },
            larger: self.larger,
        };
        let experts = Experts {
            count: self.experts,
            used: self.used,
            width: self.expert_ffn.unwrap_or(shape.ffn),
            shared: self.shared,
            dense: self.dense,
        };
        let shape = if self.experts > 0 { Shape { experts, ..shape } } else { shape };
        if shape.arch == Arch::DeepSeek2 {
            let [query_rank, rank, rope, nope, value] = self.latent[..] else { bail!("--latent takes five numbers") };
            ensure!(rank > 0 && rope >= 2 && rope.is_multiple_of(2), "--latent: {rank} and {rope} make no key");
            let latent = Latent { query_rank, rank, rope, nope, value };
            return Ok(Shape { kv_heads: 1, head_dim: rank + rope, latent, ..shape });
        }
        if shape.arch.is_uneven() {
            let [own_dim, kv_heads, period, sharing, wider, embedding, equal] = self.uneven[..] else {
                bail!("--uneven takes seven numbers")
            };
            let heads_fit = kv_heads > 0 && heads.is_multiple_of(kv_heads);
            ensure!(heads_fit, "--uneven: --heads {heads} is not a multiple of {kv_heads}");
            let sizes_fit =
                own_dim.is_multiple_of(2) && own_dim > 0 && period > 0 && wider > 0 && sharing < shape.layers;
            ensure!(sizes_fit, "--uneven: no layers are of {own_dim}, {period}, {sharing} and {wider}");
            // of one size and number in a Gemma 3n
            let one = shape.arch == Arch::Gemma3n;
            let (own_dim, kv_heads) = if one { (head_dim, shape.kv_heads) } else { (own_dim, kv_heads) };
            let uneven = Uneven { head_dim: own_dim, kv_heads, period, sharing, wider, embedding, equal: equal == 1 };
            return Ok(Shape { uneven, ..shape });
        }
        if shape.arch == Arch::Mamba2 {
            let (inner, dim) = (shape.delta.heads * head_dim, shape.dim);
            ensure!(inner.is_multiple_of(dim), "{inner} channels of all heads are not a multiple of --dim {dim}");
        }
        ensure!(
            heads.is_multiple_of(shape.kv_heads),
            "--heads {heads} is not a multiple of --kv-heads {}",
            shape.kv_heads
        );
        ensure!(head_dim.is_multiple_of(2), "a head of {head_dim} elements is odd: rotation needs pairs");
        let rotary = self.rotary(shape.arch);
        let n_rot = n_rot(head_dim, rotary);
        ensure!(
            n_rot >= 2 && n_rot <= head_dim && n_rot.is_multiple_of(2),
            "--rotary {rotary}: {n_rot} of {head_dim} elements cannot be rotated in pairs",
        );
        Ok(shape)
    }

    /// Share of a head that is rotated.
    fn rotary(&self, arch: Arch) -> f64 {
        self.rotary.unwrap_or(match arch {
            Arch::StableLm => 0.25,
            Arch::Phi2 => 0.4,
            _ if arch.is_hybrid() => 0.25,
            _ if arch.turns_half() => 0.5,
            _ => 1.0,
        })
    }

    fn model(&self) -> Result<Model> {
        let shape = self.shape()?;
        let (arch, rotary) = (shape.arch, self.rotary(shape.arch));
        ensure!(self.format != Format::Chatglm || arch == Arch::ChatGlm, "--format chatglm is for --arch chatglm");
        let bounded = self.most_step.is_some();
        ensure!(
            !bounded || arch == Arch::Mamba2 && self.format == Format::Hf,
            "--most-step is mamba2's, of a directory"
        );
        let mix = self.mix.unwrap_or(match (self.format, self.preset) {
            (Format::Hf | Format::Chatglm, _) => Mix::Bf16,
            (_, Preset::Odd) => Mix::Q80,
            _ => Mix::Q4KM,
        });
        let rope = self.rope.unwrap_or(if self.preset == Preset::Phi3Tiny && arch == Arch::Phi3 {
            Rope::Longrope
        } else {
            Rope::Plain
        });
        ensure!(rope != Rope::Longrope || arch == Arch::Phi3, "--rope longrope is phi3's");
        let in_part =
            arch.has_fused_gate() || arch.is_hybrid() || [Arch::StableLm, Arch::Phi2, Arch::Glm4Moe].contains(&arch);
        ensure!(rotary == 1.0 || in_part, "--rotary is phi3's, chatglm's, stablelm's, phi2's and glm4moe's");
        let original = match (rope, self.original_ctx) {
            (_, Some(n)) => n,
            (Rope::Plain, None) => shape.ctx,
            _ => (shape.ctx / 4).max(2),
        };
        let kind = mix.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        let name = format!("synthetic-{}-{kind}-seed{}", self.preset.name(), self.seed);
        // norms that a directory keeps less 1 are noise around 0, which the other form has 1 added to
        let norms = match (arch, self.format) {
            (Arch::Gemma2 | Arch::Gemma3, Format::Gguf) => Norms::PlusOne,
            (Arch::Gemma2 | Arch::Gemma3, _) => Norms::LessOne,
            (arch, Format::Gguf) if arch.is_hybrid() => Norms::PlusOne,
            (arch, _) if arch.is_hybrid() => Norms::LessOne,
            _ => Norms::AsTheyAre,
        };
        Ok(Model {
            name,
            shape,
            rotary,
            mix,
            seed: self.seed,
            rope,
            original,
            outliers: self.outliers,
            norms,
            logarithms: self.format != Format::Gguf,
            most_step: self.most_step,
        })
    }
}

// ---------------------------------------------------------------- tensors and their types

struct Tensor {
    /// GGUF's
    name: String,
    /// gate and up in one
    fused: bool,
    /// instead of noise: divisors of the rotation
    values: Option<Vec<f32>>,
    /// which column of the noise each column is, where that is another
    columns: Option<Vec<usize>>,
    /// element of the noise that the tensor begins at
    first: u64,
    /// 1 for norms
    rows: usize,
    /// matrices that these are of
    stack: usize,
    cols: usize,
    /// standard deviation of the weights
    std: f64,
    role: Role,
    ty: BlockType,
}

impl Tensor {
    /// Whether it has one dimension.
    fn is_vector(&self) -> bool {
        self.role.is_vector() && self.rows == 1
    }

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
    fn types(self) -> synthetic::Mix {
        let name = self.to_possible_value();
        let mix = name.and_then(|v| synthetic::Mix::parse(v.get_name()));
        mix.expect("every mix here is one of the engine's table")
    }

    fn plain(self) -> BlockType {
        self.types().plain
    }
}

impl Tensor {
    /// Size of the data.
    fn bytes(&self) -> Result<u64> {
        Ok(self.rows as u64 * self.row_bytes()? as u64)
    }
}

impl Model {
    /// Rotated elements of a head.
    fn n_rot(&self) -> u32 {
        if self.shape.latent.rank > 0 { self.shape.latent.rope } else { n_rot(self.shape.head_dim, self.rotary) }
    }

    /// How many times the original context the context is.
    fn factor(&self) -> f64 {
        f64::from(self.shape.ctx) / f64::from(self.original)
    }

    /// LongRoPE's factor on cos and sin.
    fn longrope_magnitude(&self) -> f64 {
        if self.factor() <= 1.0 { 1.0 } else { (1.0 + self.factor().ln() / f64::from(self.original).ln()).sqrt() }
    }

    /// LongRoPE's divisors, short and long: growing from 1 as trained ones do, by eighths so that every form is exact.
    fn longrope_factors(&self) -> [Vec<f32>; 2] {
        let pairs = (self.n_rot() / 2) as usize;
        [16, 2]
            .map(|slow| (0..pairs).map(|i| 1.0 + (i / slow) as f32 * 0.125 + (i * 8 / slow) as f32 * 0.125).collect())
    }

    /// Every tensor in the order of the GGUF file.
    fn tensors(&self) -> Vec<Tensor> {
        let (mix, s) = (self.mix.types(), &self.shape);
        let tensor = |t: synthetic::Tensor| {
            let fused = s.arch.has_fused_gate() && t.name.ends_with("ffn_up.weight");
            let ty = mix.pick(t.role, s.layers, t.cols);
            let (rows, stack, cols) = (t.rows as usize, t.stack as usize, t.cols as usize);
            // a directory has the logarithm of what a GGUF file has
            let log = |i: usize| synthetic::Noise::new(self.seed, &t.name, -1.5, 0.7).at(i as u64);
            let of = |log: f32| if self.logarithms { log } else { -libm::exp(f64::from(log)) as f32 };
            let values = match t.role {
                Role::Decay => Some((0..cols).map(|i| of(log(i))).collect()),
                Role::Turns(n) => Some((0..cols as u64).map(|i| synthetic::divisor(n, i)).collect()),
                _ => None,
            };
            Tensor {
                name: t.name,
                fused,
                values,
                columns: None,
                first: 0,
                rows,
                stack,
                cols,
                std: t.std,
                role: t.role,
                ty,
            }
        };
        let mut list: Vec<Tensor> = s.tensors().into_iter().map(tensor).collect();
        if self.rope == Rope::Longrope {
            for (which, values) in ["short", "long"].into_iter().zip(self.longrope_factors()) {
                list.push(Tensor {
                    name: format!("rope_factors_{which}.weight"),
                    fused: false,
                    columns: None,
                    first: 0,
                    rows: 1,
                    stack: 1,
                    cols: values.len(),
                    values: Some(values),
                    std: 0.0,
                    role: Role::Norm,
                    ty: BlockType::F32,
                });
            }
        }
        list
    }
}

// ---------------------------------------------------------------- weights

/// The noise of one tensor, and what the weights of an outlying input channel are multiplied by.
fn noise(seed: u64, outliers: f32, t: &Tensor) -> (synthetic::Noise, f32) {
    let outliers = if t.role.is_vector() { 1.0 } else { outliers };
    // with outliers the others are smaller, so that sums stay as large
    let spread = (1.0 + (outliers * outliers - 1.0) / 64.0).sqrt();
    (synthetic::Noise::new(seed, &t.name, t.role.mean(), t.std / f64::from(spread)), outliers)
}

/// Writes the tensor's rows, a few MiB at a time; row r of the file is row `source(r)` of the noise.
fn write_tensor(w: &mut impl Write, t: &Tensor, model: &Model, source: impl Fn(usize) -> usize + Sync) -> Result<()> {
    const CHUNK: usize = 8 << 20;
    let row_bytes = t.row_bytes()?;
    if let Some(values) = &t.values {
        let mut bytes = vec![0u8; row_bytes];
        t.ty.encode_row(values, &mut bytes);
        return Ok(w.write_all(&bytes)?);
    }
    // one norm of recurrent layers is whole in every form
    let of_norm = t.role == Role::Norm && model.norms != Norms::AsTheyAre && !t.name.ends_with("ssm_norm.weight");
    let (noise, outliers) = match of_norm {
        true => (synthetic::Noise::new(model.seed, &t.name, 0.0, t.std), 1.0),
        false => noise(model.seed, model.outliers, t),
    };
    let added = if of_norm && model.norms == Norms::PlusOne { 1.0 } else { 0.0 };
    // one in 64 is an outlier
    let outlying = |i: usize| noise.choice(i as u64).is_multiple_of(64);
    let columns: Vec<usize> = t.columns.clone().unwrap_or_else(|| (0..t.cols).collect());
    let channels: Vec<f32> = columns.iter().map(|i| if outlying(*i) { outliers } else { 1.0 }).collect();
    let rows_per_chunk = (CHUNK / row_bytes).clamp(1, t.rows);
    let mut buffer = vec![0u8; rows_per_chunk * row_bytes];
    for first in (0..t.rows).step_by(rows_per_chunk) {
        let rows = rows_per_chunk.min(t.rows - first);
        let part = &mut buffer[..rows * row_bytes];
        part.par_chunks_mut(row_bytes).enumerate().for_each_init(
            || vec![0.0f32; t.cols],
            |x, (r, out)| {
                let start = t.first + source(first + r) as u64 * t.cols as u64;
                for (i, v) in x.iter_mut().enumerate() {
                    *v = added + noise.at(start + columns[i] as u64) * channels[i];
                }
                t.ty.encode_row(x, out);
            },
        );
        w.write_all(part)?;
    }
    Ok(())
}

/// What was written.
#[derive(Default)]
struct Summary {
    parameters: u64,
    data: u64,
    largest: u64,
}

/// Writes under a temporary name in the same folder, which becomes `out` when the model is complete.
fn write_out(out: &Path, format: Format, shards: usize, model: &Model) -> Result<Summary> {
    let mut temporary = out.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let write = || -> Result<Summary> {
        let sum = if format != Format::Gguf {
            ensure!(!out.exists(), "it is there already");
            std::fs::create_dir(&temporary)?;
            hf::write_model(&temporary, model, shards, format)?
        } else {
            let mut file = File::create(&temporary)?;
            let sum = gguf::write_model(&mut file, model)?;
            file.sync_all()?;
            sum
        };
        std::fs::rename(&temporary, out)?;
        Ok(sum)
    };
    let result = write();
    if result.is_err() {
        // The first error is the one to report; neither may even exist.
        let _ = std::fs::remove_file(&temporary);
        let _ = std::fs::remove_dir_all(&temporary);
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
    let start = std::time::Instant::now();
    let sum = write_out(&args.out, args.format, args.shards, &args.model()?)?;
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

    fn of(preset: Preset, mix: Mix, seed: u64) -> Model {
        let shape = preset.shape();
        let rope = if shape.arch == Arch::Phi3 { Rope::Longrope } else { Rope::Plain };
        Model {
            name: "test".into(),
            mix,
            seed,
            rope,
            original: shape.ctx / 4,
            outliers: 1.0,
            rotary: 1.0,
            norms: Norms::AsTheyAre,
            logarithms: false,
            most_step: None,
            shape,
        }
    }

    fn model(preset: Preset, mix: Mix, seed: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        gguf::write_model(&mut bytes, &of(preset, mix, seed)).unwrap();
        bytes
    }

    fn fnv(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3))
    }

    #[test]
    fn the_same_seed_gives_the_same_file_on_every_machine() {
        let tiny = model(Preset::Tiny, Mix::Q4KM, 1);
        assert_eq!(tiny, model(Preset::Tiny, Mix::Q4KM, 1));
        assert_ne!(tiny, model(Preset::Tiny, Mix::Q4KM, 2));
        let digests = [tiny, model(Preset::Odd, Mix::F32, 1)].map(|b| fnv(&b));
        assert_eq!(digests, [0x2e86f77fa894107b, 0x7d31f734ca3e18f0], "{digests:016x?}");
    }

    #[test]
    fn noise_has_the_deviation_asked_for_and_no_two_tensors_share_it() {
        let list = of(Preset::Tiny, Mix::F32, 1).tensors();
        let mut first = Vec::new();
        for t in &list {
            let (noise, _) = noise(1, 1.0, t);
            let n = 20000;
            let x: Vec<f64> = (0..n).map(|i| noise.at(i) as f64).collect();
            let mean = x.iter().sum::<f64>() / n as f64;
            let std = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
            let centre = f64::from(t.role.mean());
            assert!((mean - centre).abs() < 0.03 * t.std, "{}: mean {mean}", t.name);
            assert!((std / t.std - 1.0).abs() < 0.03, "{}: {std} for {}", t.name, t.std);
            first.push(noise.choice(0));
        }
        first.sort();
        first.dedup();
        assert_eq!(first.len(), list.len());
    }

    #[test]
    fn vocabularies_have_the_asked_size_and_no_token_twice() {
        for n in [260, 333, 512, 32000, 131072] {
            for arch in Arch::ALL {
                let v = vocabulary::vocabulary(arch, n);
                assert_eq!([v.tokens.len(), v.types.len()], [n; 2]);
                assert_eq!(v.tokens.iter().collect::<std::collections::HashSet<_>>().len(), n);
            }
        }
    }

    #[test]
    fn rows_that_do_not_fit_the_type_get_another_and_an_error_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("odd.gguf");
        let llama3 = Model { rope: Rope::Llama3, ..of(Preset::Odd, Mix::F32, 1) };
        let error = write_out(&out, Format::Gguf, 1, &llama3).err().unwrap();
        assert!(format!("{error:#}").contains("llama3"), "{error:#}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        for (mix, plain, output) in [
            (Mix::F32, BlockType::F32, BlockType::F32),
            (Mix::Q40, BlockType::Q4_0, BlockType::Q8_0),
            (Mix::Q4KM, BlockType::Q5_0, BlockType::Q8_0),
            (Mix::Q5K, BlockType::Q5_1, BlockType::Q8_0),
        ] {
            let model = of(Preset::Odd, mix, 1);
            let types = |name: &str| model.tensors().into_iter().find(|t| t.name == name).map(|t| t.ty);
            assert_eq!(types("blk.0.attn_q.weight"), Some(plain), "{mix:?}");
            assert_eq!(types("output.weight"), Some(output), "{mix:?}");
            write_out(&out, Format::Gguf, 1, &model).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_100m_preset_has_a_tensor_beyond_128_mib() {
        for mix in [Mix::F16, Mix::Q80] {
            let list = of(Preset::M100, mix, 1).tensors();
            let largest = list.iter().map(|t| t.rows * t.row_bytes().unwrap()).max().unwrap();
            assert!(largest > 128 << 20, "{mix:?}: {largest}");
            assert!(list.iter().map(|t| t.rows * t.cols).sum::<usize>() >= 100_000_000);
        }
    }
}

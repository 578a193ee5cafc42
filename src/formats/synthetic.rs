//! A model by shape alone, generated as it is read: nothing is downloaded and no file is written.
//!
//! The container is a GGUF file of which only the header exists; the bytes of a tensor are computed when they are asked
//! for. Byte `i` of a tensor depends on the seed, the tensor's name, its type and `i`, by integer operations alone, so
//! the model is the same on every machine. Blocks of quantised types are made directly (random codes, scales that give
//! the deviation wanted), which is many times faster than encoding floats. Weights are scaled so that activations stay
//! finite through every layer and logits spread like a trained model's; their mean is zero. There is no tokeniser.

mod encoder;
mod uneven;

pub use uneven::Uneven;

use super::error::FormatError;
use super::meta::{Meta, Value};
use super::source::{Generated, Source};
use super::{Container, Dtype, gguf, gguf_write, mix};
use crate::blocks::{BlockType, f32_to_bf16, f32_to_f16, nvfp4};
use crate::random;
use rayon::prelude::*;
use std::path::PathBuf;

/// A family of models, as GGUF's `general.architecture` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// plain
    Llama,
    /// queries, keys and values in one tensor, gate and up in another
    Phi3,
    /// biases on queries, keys and values
    Qwen2,
    /// norms over each head of queries and keys
    Qwen3,
    /// queries, keys and values in one tensor with biases, gate and up in another; half of a head is rotated
    ChatGlm,
    /// plain, every fourth layer without rotation
    SmolLm3,
    /// norms behind attention and the feed-forward, and over all heads of queries and keys together
    Olmo2,
    /// norms behind attention and the feed-forward, and over each head of queries and keys
    Exaone4,
    /// gate and up in one tensor; norms before and behind; half of a head is rotated
    Glm4,
    /// norms before and behind; gelu; a window in every other layer; scores and logits with a cap
    Gemma2,
    /// norms before and behind, and over each head of queries and keys; gelu; layers with a window have their own rotation
    Gemma3,
    /// as Gemma 4's small models, with heads of one size, four streams of which layers work on one, and gates above a bound
    Gemma3n,
    /// as Gemma 3, with other heads in layers with a window, keys and values of earlier layers, and a vector of each token for
    /// each layer
    Gemma4,
    /// plain, with numbers that embedding, scores, additions and logits are multiplied with
    Granite,
    /// as Qwen2, with experts, and one that all tokens meet behind a gate
    Qwen2Moe,
    /// as Qwen3, with experts
    Qwen3Moe,
    /// as Granite, with experts
    GraniteMoe,
    /// biases on queries, keys and values, half of a head rotated, norms over each head; experts, and one that all tokens
    /// meet
    Glm4Moe,
    /// gpt-oss
    GptOss,
    /// layer norms, biases everywhere, gelu without a gate
    StarCoder2,
    /// layer norms, a quarter of a head is rotated; the larger form side by side, with layer norms of each head
    StableLm,
    /// layer norms without biases, side by side; rotation in layers with a window alone
    Cohere2,
    /// layer norms without biases, side by side; the larger form with layer norms of each head
    CommandR,
    /// layer norms, side by side, biases everywhere, gelu without a gate, a part of a head is rotated
    Phi2,
    /// layer norms, biases everywhere, gelu without a gate, learned positions
    Gpt2,
    /// layer norms, side by side, gelu without a gate; the larger form with two norms
    Falcon,
    /// as Qwen3 with attention behind a gate, a quarter of a head rotated; three layers in four are gated delta nets
    Qwen35,
    /// the same with experts, and one that all tokens meet behind a gate
    Qwen35Moe,
    /// the same, its heads of values in another order
    Qwen3Next,
    /// as Qwen3; two layers in three are short convolutions
    Lfm2,
    /// the same with experts
    Lfm2Moe,
    /// state spaces alone, without attention or feed-forward
    Mamba2,
    /// latent attention; experts, and one that all tokens meet; the larger form with sigmoids in groups and a bias
    DeepSeek2,
    /// an encoder: layer norms behind the sums, biases everywhere, gelu without a gate, learned positions
    Bert,
    /// an encoder: layer norms behind the sums, a gate, rotation
    NomicBert,
}

impl Arch {
    /// Every family but encoders.
    pub const ALL: [Arch; 33] = [
        Arch::Llama,
        Arch::Phi3,
        Arch::Qwen2,
        Arch::Qwen3,
        Arch::ChatGlm,
        Arch::SmolLm3,
        Arch::Olmo2,
        Arch::Exaone4,
        Arch::Glm4,
        Arch::Gemma2,
        Arch::Gemma3,
        Arch::Gemma3n,
        Arch::Gemma4,
        Arch::Granite,
        Arch::Qwen2Moe,
        Arch::Qwen3Moe,
        Arch::GraniteMoe,
        Arch::Glm4Moe,
        Arch::GptOss,
        Arch::StarCoder2,
        Arch::StableLm,
        Arch::Cohere2,
        Arch::CommandR,
        Arch::Phi2,
        Arch::Gpt2,
        Arch::Falcon,
        Arch::Qwen35,
        Arch::Qwen35Moe,
        Arch::Qwen3Next,
        Arch::Lfm2,
        Arch::Lfm2Moe,
        Arch::Mamba2,
        Arch::DeepSeek2,
    ];

    /// GGUF's architecture.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Llama => "llama",
            Arch::Phi3 => "phi3",
            Arch::Qwen2 => "qwen2",
            Arch::Qwen3 => "qwen3",
            Arch::ChatGlm => "chatglm",
            Arch::SmolLm3 => "smollm3",
            Arch::Olmo2 => "olmo2",
            Arch::Exaone4 => "exaone4",
            Arch::Glm4 => "glm4",
            Arch::Gemma2 => "gemma2",
            Arch::Gemma3 => "gemma3",
            Arch::Gemma3n => "gemma3n",
            Arch::Gemma4 => "gemma4",
            Arch::Granite => "granite",
            Arch::Qwen2Moe => "qwen2moe",
            Arch::Qwen3Moe => "qwen3moe",
            Arch::GraniteMoe => "granitemoe",
            Arch::Glm4Moe => "glm4moe",
            Arch::GptOss => "gpt-oss",
            Arch::StarCoder2 => "starcoder2",
            Arch::StableLm => "stablelm",
            Arch::Cohere2 => "cohere2",
            Arch::CommandR => "command-r",
            Arch::Phi2 => "phi2",
            Arch::Gpt2 => "gpt2",
            Arch::Falcon => "falcon",
            Arch::Qwen35 => "qwen35",
            Arch::Qwen35Moe => "qwen35moe",
            Arch::Qwen3Next => "qwen3next",
            Arch::Lfm2 => "lfm2",
            Arch::Lfm2Moe => "lfm2moe",
            Arch::Mamba2 => "mamba2",
            Arch::DeepSeek2 => "deepseek2",
            Arch::Bert => "bert",
            Arch::NomicBert => "nomic-bert",
        }
    }

    /// Whether every token of a text sees all of it, and nothing is generated.
    pub fn is_encoder(self) -> bool {
        matches!(self, Arch::Bert | Arch::NomicBert)
    }

    /// Whether queries, keys and values lie in one tensor.
    pub fn has_fused_qkv(self) -> bool {
        matches!(self, Arch::Phi3 | Arch::ChatGlm | Arch::Gpt2 | Arch::Falcon)
    }

    /// Whether gate and up lie in one tensor.
    pub fn has_fused_gate(self) -> bool {
        matches!(self, Arch::Phi3 | Arch::ChatGlm | Arch::Glm4)
    }

    /// Whether one half of a head is rotated.
    pub fn turns_half(self) -> bool {
        matches!(self, Arch::ChatGlm | Arch::Glm4 | Arch::Glm4Moe)
    }

    /// Whether three layers in four are recurrent.
    pub fn is_hybrid(self) -> bool {
        matches!(self, Arch::Qwen35 | Arch::Qwen35Moe | Arch::Qwen3Next)
    }

    /// Whether layers differ, of attention or of the feed-forward, and a token has a vector for each.
    pub fn is_uneven(self) -> bool {
        matches!(self, Arch::Gemma3n | Arch::Gemma4)
    }

    /// Whether two layers in three are short convolutions.
    pub fn is_lfm2(self) -> bool {
        matches!(self, Arch::Lfm2 | Arch::Lfm2Moe)
    }

    /// Rotated elements of a head.
    pub fn n_rot(self, head_dim: u32) -> u32 {
        match self {
            Arch::ChatGlm | Arch::Glm4 => head_dim / 2,
            Arch::StableLm | Arch::Qwen35 | Arch::Qwen35Moe | Arch::Qwen3Next => head_dim / 4,
            Arch::Phi2 => head_dim * 2 / 5,
            _ => head_dim,
        }
    }

    /// Whether norms are layer norms.
    pub fn has_layer_norm(self) -> bool {
        use Arch::{Cohere2, CommandR, Falcon, Gpt2, Phi2, StableLm, StarCoder2};
        matches!(self, StarCoder2 | StableLm | Cohere2 | CommandR | Phi2 | Gpt2 | Falcon) || self.is_encoder()
    }

    /// Whether norms have biases.
    pub fn has_norm_bias(self) -> bool {
        self.has_layer_norm() && !matches!(self, Arch::Cohere2 | Arch::CommandR)
    }

    /// Whether every linear of a layer has a bias.
    pub fn has_biases(self) -> bool {
        matches!(self, Arch::StarCoder2 | Arch::Phi2 | Arch::Gpt2)
    }

    /// Whether the feed-forward has no gate.
    pub fn has_no_gate(self) -> bool {
        self.has_biases() || self == Arch::Falcon
    }

    /// Whether there are norms before attention and the feed-forward.
    pub fn norms_before(self) -> bool {
        !matches!(self, Arch::Olmo2 | Arch::Exaone4)
    }

    /// Whether there are norms behind attention and the feed-forward.
    pub fn norms_after(self) -> bool {
        matches!(self, Arch::Olmo2 | Arch::Exaone4 | Arch::Glm4 | Arch::Gemma2 | Arch::Gemma3) || self.is_uneven()
    }

    /// The name of the norm before the feed-forward.
    fn ffn_norm(self) -> &'static str {
        if self.is_hybrid() || matches!(self, Arch::Glm4Moe | Arch::GptOss) {
            "post_attention_norm.weight"
        } else {
            "ffn_norm.weight"
        }
    }

    /// The RoPE base of made-up checkpoints.
    pub fn made_up_base(self) -> f32 {
        match self {
            Arch::Gemma3 | Arch::Gemma3n | Arch::Gemma4 => 1e6,
            Arch::Lfm2 | Arch::Lfm2Moe => 1e6,
            // which transformers takes for the layers with a window whatever the config says
            Arch::Olmo2 => 5e5,
            _ => 1e4,
        }
    }

    /// Numbers that a model multiplies with, by GGUF's key: those of a Granite, the last of them a divisor, and the caps of a
    /// Gemma 2, made up.
    pub fn scales(self) -> &'static [(&'static str, f32)] {
        const GRANITE: [(&str, f32); 4] =
            [("embedding_scale", 2.5), ("attention.scale", 0.17), ("residual_scale", 0.7), ("logit_scale", 1.7)];
        // lower than the released ones', so that scores and logits of noise meet them
        const GEMMA2: [(&str, f32); 2] = [("attn_logit_softcapping", 20.0), ("final_logit_softcapping", 7.0)];
        match self {
            Arch::Granite | Arch::GraniteMoe => &GRANITE,
            Arch::Gemma2 => &GEMMA2,
            Arch::Gemma3n | Arch::Gemma4 => &GEMMA2[1..],
            // a factor
            Arch::Cohere2 | Arch::CommandR => &[("logit_scale", 0.7)],
            _ => &[],
        }
    }

    /// By name.
    pub fn parse(s: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|a| a.name() == s)
    }
}

/// The experts of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// of a layer; 0: there are none
    pub count: u32,
    /// that a token meets
    pub used: u32,
    /// width of one
    pub width: u32,
    /// width of the one that all tokens meet; 0: there is none
    pub shared: u32,
    /// layers in front that have none
    pub dense: u32,
}

impl Experts {
    /// Of a model without.
    pub const NONE: Experts = Experts { count: 0, used: 0, width: 0, shared: 0, dense: 0 };
}

/// The heads of recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// of queries and of keys; 0: no layer is recurrent
    pub key_heads: u32,
    /// of values
    pub heads: u32,
    /// elements of each
    pub size: u32,
}

impl Delta {
    /// Of a model without.
    pub const NONE: Delta = Delta { key_heads: 0, heads: 0, size: 0 };
}

/// The sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// elements of the vector that queries are made of; 0: they are made of a token's own
    pub query_rank: u32,
    /// elements of the vector that keys and values are made of; 0: attention is another
    pub rank: u32,
    /// rotated elements of a head
    pub rope: u32,
    /// others
    pub nope: u32,
    /// elements of a head's value
    pub value: u32,
}

impl Latent {
    /// Of a model without.
    pub const NONE: Latent = Latent { query_rank: 0, rank: 0, rope: 0, nope: 0, value: 0 };
}

/// The shape of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// what `--synthetic` calls it
    pub name: &'static str,
    /// family
    pub arch: Arch,
    /// width of the residual stream
    pub dim: u32,
    /// decoder layers
    pub layers: u32,
    /// width of the feed-forward layer
    pub ffn: u32,
    /// query heads
    pub heads: u32,
    /// key-value heads
    pub kv_heads: u32,
    /// elements in a head
    pub head_dim: u32,
    /// tokens
    pub vocab: u32,
    /// positions
    pub ctx: u32,
    /// no output matrix of its own: the embedding is used
    pub tied: bool,
    /// positions a query sees, its own among them; 0: all before it
    pub window: u32,
    /// instead of the feed-forward
    pub experts: Experts,
    /// of recurrent layers
    pub delta: Delta,
    /// of latent attention
    pub latent: Latent,
    /// what differs from layer to layer
    pub uneven: Uneven,
    /// the form of the family's larger models, where that is another
    pub larger: bool,
}

/// The name of a GGUF file's norms' epsilon, behind the architecture.
pub fn epsilon_key(arch: Arch) -> &'static str {
    if arch.has_layer_norm() { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" }
}

const fn shape(name: &'static str, arch: Arch, sizes: [u32; 7], tied: bool) -> Shape {
    let [dim, layers, ffn, heads, kv_heads, vocab, ctx] = sizes;
    Shape {
        name,
        arch,
        dim,
        layers,
        ffn,
        heads,
        kv_heads,
        head_dim: dim / heads,
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

/// Every shape, the smallest of each family first. phi3-mini is Phi-3-mini-4k, llama-1b is
/// TinyLlama, llama-3b Llama 3.2, llama-7b Llama 2, llama-8b Llama 3, chatglm-6b ChatGLM3, glm4-9b GLM-4-9B-chat,
/// gemma2-2b Gemma 2, gemma3-1b Gemma 3, gemma4-e2b and gemma4-26b-a4b Gemma 4, granite-2b Granite 3, mixtral-8x7b Mixtral, qwen3moe-30b Qwen3-30B-A3B, command-r7b that of 12-2024, gpt-oss-20b the one of 21 B, qwen35-9b, qwen35moe-35b and qwen3next-80b transformers' defaults, lfm2moe-8b LFM2-8B-A1B, deepseek-v2-lite DeepSeek-V2-Lite, mamba2-2.7b and mamba-codestral-7b as they were published, minilm-l6 all-MiniLM-L6-v2, bge-base and bge-large those of v1.5, nomic-embed nomic-embed-text v1.5;
/// qwen3moe-1b is made up, in the proportions of the 30B. Rotation is unscaled everywhere.
pub const SHAPES: [Shape; 61] = [
    shape("llama-tiny", Arch::Llama, [256, 2, 512, 4, 2, 512, 512], false),
    shape("llama-58m", Arch::Llama, [512, 8, 1536, 8, 4, 32000, 4096], false),
    shape("llama-1b", Arch::Llama, [2048, 22, 5632, 32, 4, 32000, 4096], false),
    shape("llama-3b", Arch::Llama, [3072, 28, 8192, 24, 8, 128_256, 8192], true),
    shape("llama-7b", Arch::Llama, [4096, 32, 11008, 32, 32, 32000, 4096], false),
    shape("llama-8b", Arch::Llama, [4096, 32, 14336, 32, 8, 128_256, 8192], false),
    shape("phi3-tiny", Arch::Phi3, [256, 2, 512, 4, 4, 512, 512], false),
    Shape { window: 2047, ..shape("phi3-mini", Arch::Phi3, [3072, 32, 8192, 32, 32, 32064, 4096], false) },
    shape("qwen2-tiny", Arch::Qwen2, [256, 2, 512, 4, 2, 512, 512], true),
    // rows that are no multiple of 256, as the next one's: what the K-quants have no blocks for
    shape("qwen2-896", Arch::Qwen2, [896, 2, 1024, 14, 2, 512, 512], true),
    shape("qwen2-0.5b", Arch::Qwen2, [896, 24, 4864, 14, 2, 151_936, 32_768], true),
    shape("qwen2-1.5b", Arch::Qwen2, [1536, 28, 8960, 12, 2, 151_936, 131_072], true),
    shape("qwen3-tiny", Arch::Qwen3, [256, 2, 512, 4, 2, 512, 512], false),
    shape("qwen3-1.7b", Arch::Qwen3, [2048, 28, 6144, 16, 8, 151_936, 40_960], true),
    shape("chatglm-tiny", Arch::ChatGlm, [256, 2, 512, 4, 2, 512, 512], false),
    shape("chatglm-6b", Arch::ChatGlm, [4096, 28, 13_696, 32, 2, 65_024, 8192], false),
    shape("glm4-9b", Arch::ChatGlm, [4096, 40, 13_696, 32, 2, 151_552, 131_072], false),
    shape("smollm3-3b", Arch::SmolLm3, [2048, 36, 11_008, 16, 4, 128_256, 65_536], true),
    shape("olmo2-7b", Arch::Olmo2, [4096, 32, 11_008, 32, 32, 100_352, 4096], false),
    shape("exaone4-1.2b", Arch::Exaone4, [2048, 30, 4096, 32, 8, 102_400, 65_536], true),
    Shape {
        head_dim: 256,
        window: 4096,
        ..shape("gemma2-2b", Arch::Gemma2, [2304, 26, 9216, 8, 4, 256_000, 8192], true)
    },
    Shape {
        head_dim: 256,
        window: 512,
        ..shape("gemma3-270m", Arch::Gemma3, [640, 18, 2048, 4, 1, 262_144, 32_768], true)
    },
    Shape {
        head_dim: 256,
        window: 512,
        ..shape("gemma3-1b", Arch::Gemma3, [1152, 26, 6912, 4, 1, 262_144, 32_768], true)
    },
    uneven(
        shape("gemma3n-tiny", Arch::Gemma3n, [256, 6, 512, 4, 2, 512, 512], true),
        64,
        Uneven { head_dim: 64, kv_heads: 2, period: 3, sharing: 2, wider: 2, embedding: 32, equal: false },
        128,
    ),
    uneven(
        shape("gemma3n-e2b", Arch::Gemma3n, [2048, 30, 8192, 8, 2, 262_400, 32_768], true),
        256,
        Uneven { head_dim: 256, kv_heads: 2, period: 5, sharing: 10, wider: 1, embedding: 256, equal: false },
        512,
    ),
    uneven(
        shape("gemma3n-e4b", Arch::Gemma3n, [2048, 35, 16_384, 8, 2, 262_400, 32_768], true),
        256,
        Uneven { head_dim: 256, kv_heads: 2, period: 5, sharing: 15, wider: 1, embedding: 256, equal: false },
        512,
    ),
    uneven(
        shape("gemma4-tiny", Arch::Gemma4, [256, 6, 512, 4, 2, 512, 512], true),
        128,
        Uneven { head_dim: 64, kv_heads: 2, period: 3, sharing: 2, wider: 2, embedding: 32, equal: false },
        128,
    ),
    uneven(
        shape("gemma4-e2b", Arch::Gemma4, [1536, 35, 6144, 8, 1, 262_144, 131_072], true),
        512,
        Uneven { head_dim: 256, kv_heads: 1, period: 5, sharing: 20, wider: 2, embedding: 256, equal: false },
        512,
    ),
    mixture(
        uneven(
            shape("gemma4-26b-a4b", Arch::Gemma4, [2816, 30, 2112, 16, 2, 262_144, 262_144], true),
            512,
            Uneven { head_dim: 256, kv_heads: 8, period: 6, sharing: 0, wider: 1, embedding: 0, equal: true },
            1024,
        ),
        [128, 8, 704, 0, 0],
    ),
    shape("granite-2b", Arch::Granite, [2048, 40, 8192, 32, 8, 49_155, 131_072], true),
    mixture(shape("mixtral-8x7b", Arch::Llama, [4096, 32, 14_336, 32, 8, 32_000, 32_768], false), [8, 2, 14_336, 0, 0]),
    mixture(shape("qwen3moe-tiny", Arch::Qwen3Moe, [256, 2, 512, 4, 2, 512, 512], false), [6, 2, 96, 0, 0]),
    mixture(shape("qwen3moe-1b", Arch::Qwen3Moe, [1024, 12, 3072, 16, 2, 32_000, 40_960], true), [64, 8, 384, 0, 0]),
    mixture(
        Shape {
            head_dim: 128,
            ..shape("qwen3moe-30b", Arch::Qwen3Moe, [2048, 48, 6144, 32, 4, 151_936, 40_960], false)
        },
        [128, 8, 768, 0, 0],
    ),
    mixture(shape("glm4moe-tiny", Arch::Glm4Moe, [256, 3, 512, 4, 2, 512, 512], false), [6, 3, 96, 96, 1]),
    mixture(
        Shape {
            head_dim: 64,
            window: 128,
            ..shape("gpt-oss-20b", Arch::GptOss, [2880, 24, 2880, 64, 8, 201_088, 131_072], false)
        },
        [32, 4, 2880, 0, 0],
    ),
    Shape { window: 4096, ..shape("starcoder2-3b", Arch::StarCoder2, [3072, 30, 12_288, 24, 2, 49_152, 16_384], true) },
    shape("stablelm2-1.6b", Arch::StableLm, [2048, 24, 5632, 32, 32, 100_352, 4096], false),
    Shape { window: 4096, ..shape("command-r7b", Arch::Cohere2, [4096, 32, 14_336, 32, 8, 256_000, 131_072], true) },
    shape("command-r-35b", Arch::CommandR, [8192, 40, 22_528, 64, 64, 256_000, 131_072], true),
    shape("phi2-2.7b", Arch::Phi2, [2560, 32, 10_240, 32, 32, 51_200, 2048], false),
    shape("gpt2-124m", Arch::Gpt2, [768, 12, 3072, 12, 12, 50_257, 1024], true),
    shape("falcon-7b", Arch::Falcon, [4544, 32, 18_176, 71, 1, 65_024, 2048], true),
    hybrid(shape("qwen35-tiny", Arch::Qwen35, [256, 4, 512, 4, 2, 512, 512], false), 64, [2, 4, 64]),
    hybrid(shape("qwen35-9b", Arch::Qwen35, [4096, 32, 12_288, 16, 4, 248_320, 32_768], false), 256, [16, 32, 128]),
    hybrid(
        mixture(
            shape("qwen35moe-35b", Arch::Qwen35Moe, [2048, 40, 512, 16, 2, 248_320, 32_768], false),
            [256, 8, 512, 512, 0],
        ),
        256,
        [16, 32, 128],
    ),
    hybrid(
        mixture(
            shape("qwen3next-80b", Arch::Qwen3Next, [2048, 48, 5632, 16, 2, 151_936, 32_768], false),
            [512, 10, 512, 512, 0],
        ),
        256,
        [16, 32, 128],
    ),
    shape("lfm2-tiny", Arch::Lfm2, [256, 3, 512, 4, 2, 512, 512], true),
    shape("lfm2-1.2b", Arch::Lfm2, [2048, 16, 8192, 32, 8, 65_536, 128_000], true),
    mixture(shape("lfm2moe-8b", Arch::Lfm2Moe, [2048, 24, 7168, 32, 8, 65_536, 128_000], true), [32, 4, 1792, 0, 2]),
    hybrid(shape("mamba2-tiny", Arch::Mamba2, [256, 3, 0, 1, 1, 512, 1 << 20], true), 32, [2, 16, 32]),
    hybrid(shape("mamba2-2.7b", Arch::Mamba2, [2560, 64, 0, 1, 1, 50_288, 1 << 20], true), 64, [1, 80, 128]),
    hybrid(shape("mamba-codestral-7b", Arch::Mamba2, [4096, 64, 0, 1, 1, 32_768, 1 << 20], false), 64, [8, 128, 128]),
    latent(
        mixture(shape("deepseek2-tiny", Arch::DeepSeek2, [256, 3, 512, 4, 1, 512, 512], false), [8, 3, 96, 96, 1]),
        [0, 128, 32, 64, 64],
    ),
    latent(
        mixture(
            shape("deepseek-v2-lite", Arch::DeepSeek2, [2048, 27, 10_944, 16, 1, 102_400, 163_840], false),
            [64, 6, 1408, 2816, 1],
        ),
        [0, 512, 64, 128, 128],
    ),
    shape("bert-tiny", Arch::Bert, [256, 2, 512, 4, 4, 512, 512], false),
    shape("minilm-l6", Arch::Bert, [384, 6, 1536, 12, 12, 30_522, 512], false),
    shape("bge-base", Arch::Bert, [768, 12, 3072, 12, 12, 30_522, 512], false),
    shape("bge-large", Arch::Bert, [1024, 24, 4096, 16, 16, 30_522, 512], false),
    shape("nomic-tiny", Arch::NomicBert, [256, 2, 512, 4, 4, 512, 512], false),
    shape("nomic-embed", Arch::NomicBert, [768, 12, 3072, 12, 12, 30_528, 2048], false),
];

/// The same with experts: how many, how many a token meets, their width, that of the one all tokens meet, and layers without.
const fn mixture(shape: Shape, sizes: [u32; 5]) -> Shape {
    let [count, used, width, shared, dense] = sizes;
    Shape { experts: Experts { count, used, width, shared, dense }, ..shape }
}

/// The same with heads of so many elements in layers without a window, what differs from layer to layer, and the window.
const fn uneven(shape: Shape, head_dim: u32, uneven: Uneven, window: u32) -> Shape {
    Shape { head_dim, uneven, window, ..shape }
}

/// The same with recurrent layers: heads of attention of so many elements, and theirs; of state spaces channels of a head, and
/// groups, heads and elements of the state of a channel.
const fn hybrid(shape: Shape, head_dim: u32, sizes: [u32; 3]) -> Shape {
    let [key_heads, heads, size] = sizes;
    Shape { head_dim, delta: Delta { key_heads, heads, size }, ..shape }
}

/// The same with latent attention: the rank of queries, that of keys and values, and of a head what is rotated, what is not, and
/// the width of values.
const fn latent(shape: Shape, sizes: [u32; 5]) -> Shape {
    let [query_rank, rank, rope, nope, value] = sizes;
    Shape { head_dim: rank + rope, latent: Latent { query_rank, rank, rope, nope, value }, ..shape }
}

/// What a tensor is: its type and the mean of its noise follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// the output matrix
    Output,
    /// attn_v, a fused attn_qkv, or ffn_down of a layer
    Raised(u32),
    /// any other matrix
    Plain,
    /// the matrix that chooses experts, and what says how much of a shared one is taken: F32 in every mix
    Router,
    /// one dimension, around 1
    Norm,
    /// one dimension, around 0
    Bias,
    /// one dimension, all below 0: how fast a recurrent state fades
    Decay,
    /// divisors of a rotation: 1 of so many pairs, then so much that the others stay as they are
    Turns(u32),
}

impl Role {
    /// What the weights lie around.
    pub fn mean(self) -> f32 {
        match self {
            Role::Norm => 1.0,
            Role::Decay => -0.3,
            _ => 0.0,
        }
    }

    /// Whether it is a vector, or several of them.
    pub fn is_vector(self) -> bool {
        matches!(self, Role::Norm | Role::Bias | Role::Decay | Role::Turns(_))
    }
}

/// A tensor of a shape.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// in GGUF files
    pub name: String,
    /// 1 for vectors
    pub rows: u64,
    /// matrices below each other that the rows are of, equally many of each
    pub stack: u64,
    /// elements of a row
    pub cols: u64,
    /// standard deviation of the weights
    pub std: f64,
    /// what it is
    pub role: Role,
}

impl Tensor {
    /// Whether it has one dimension.
    pub fn is_vector(&self) -> bool {
        self.role.is_vector() && self.rows == 1
    }
}

impl Shape {
    /// Whether a layer is recurrent.
    pub fn is_recurrent(&self, layer: u32) -> bool {
        self.arch == Arch::Mamba2
            || self.arch.is_hybrid() && !(layer + 1).is_multiple_of(4)
            || self.is_convolution(layer)
    }

    /// Whether a layer is a short convolution; of two layers or one none is.
    pub fn is_convolution(&self, layer: u32) -> bool {
        self.arch.is_lfm2() && layer % 3 != 2 && self.layers > 2
    }

    /// Every tensor in the order of a GGUF file.
    pub fn tensors(&self) -> Vec<Tensor> {
        if self.arch.is_encoder() {
            return self.encoder_tensors();
        }
        let [dim, vocab] = [self.dim, self.vocab].map(u64::from);
        let mut list = Vec::new();
        let mut add = |name: String, rows, cols, std, role| list.push(Tensor { name, rows, stack: 1, cols, std, role });
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        // two additions to the residual stream per layer keep its size; logits get a deviation of 3
        let residual = root(2 * u64::from(self.layers));
        if self.tied {
            add("token_embd.weight".into(), vocab, dim, 3.0 * root(dim), Role::Output);
        } else {
            add("token_embd.weight".into(), vocab, dim, 1.0, Role::Plain);
        }
        if self.arch.is_uneven() {
            self.uneven_globals(&mut add);
        }
        if self.arch == Arch::Gpt2 {
            add("position_embd.weight".into(), self.ctx.into(), dim, 0.3, Role::Bias);
        }
        let spaces = self.arch == Arch::Mamba2;
        (0..self.layers).filter(|_| spaces).for_each(|i| self.state_space_tensors(i, &mut add));
        for i in (0..self.layers).filter(|_| !spaces) {
            let b = |part: &str| format!("blk.{i}.{part}");
            let (kv_heads, head_dim) = self.heads_of(i);
            let [q, kv] = [self.heads, kv_heads].map(|n| u64::from(n) * u64::from(head_dim));
            if self.arch.norms_before() {
                add(b("attn_norm.weight"), 1, dim, 0.1, Role::Norm);
            }
            if self.arch.has_norm_bias() {
                add(b("attn_norm.bias"), 1, dim, 0.2, Role::Bias);
            }
            if self.arch == Arch::Falcon && self.larger {
                add(b("attn_norm_2.weight"), 1, dim, 0.1, Role::Norm);
                add(b("attn_norm_2.bias"), 1, dim, 0.2, Role::Bias);
            }
            if self.is_recurrent(i) {
                self.recurrent_tensors(i, &mut add);
            } else {
                self.attention_tensors(i, &mut add);
            }
            let apart =
                [Arch::Qwen2, Arch::Qwen2Moe, Arch::Glm4, Arch::Glm4Moe, Arch::GptOss, Arch::StarCoder2, Arch::Phi2];
            if apart.contains(&self.arch) || self.arch == Arch::StableLm && !self.larger {
                // the keys' biases of trained models are far larger than the keys
                add(b("attn_q.bias"), 1, q, 1.0, Role::Bias);
                add(b("attn_k.bias"), 1, kv, 4.0, Role::Bias);
                add(b("attn_v.bias"), 1, kv, 0.2, Role::Bias);
            }
            if matches!(self.arch, Arch::ChatGlm | Arch::Gpt2) {
                add(b("attn_qkv.bias"), 1, q + 2 * kv, 1.0, Role::Bias);
            }
            let head = u64::from(head_dim);
            let normed = match self.arch {
                Arch::Qwen3 | Arch::Qwen3Moe | Arch::Glm4Moe | Arch::Exaone4 | Arch::Gemma3 => Some((head, head)),
                Arch::Gemma3n | Arch::Gemma4 => Some((head, if self.has_own_keys(i) { head } else { 0 })),
                Arch::Olmo2 => Some((q, kv)),
                arch if (arch.is_hybrid() || arch.is_lfm2()) && !self.is_recurrent(i) => Some((head, head)),
                _ => None,
            };
            if let Some((q, k)) = normed {
                add(b("attn_q_norm.weight"), 1, q, 0.3, Role::Norm);
                if k > 0 {
                    add(b("attn_k_norm.weight"), 1, k, 0.3, Role::Norm);
                }
            }
            if self.larger && matches!(self.arch, Arch::StableLm | Arch::CommandR) {
                add(b("attn_q_norm.weight"), self.heads.into(), head, 0.3, Role::Norm);
                add(b("attn_k_norm.weight"), self.kv_heads.into(), head, 0.3, Role::Norm);
            }
            if !self.is_recurrent(i) && self.arch != Arch::DeepSeek2 {
                add(b("attn_output.weight"), dim, q, residual * root(q), Role::Plain);
            }
            if self.arch.has_biases() || self.arch == Arch::GptOss {
                add(b("attn_output.bias"), 1, dim, 0.1, Role::Bias);
            }
            if self.arch == Arch::GptOss {
                // as great as the scores
                add(b("attn_sinks.weight"), 1, self.heads.into(), 2.0, Role::Bias);
            }
            if self.arch.norms_after() {
                add(b("post_attention_norm.weight"), 1, dim, 0.1, Role::Norm);
            }
            let parallel = matches!(self.arch, Arch::Cohere2 | Arch::CommandR | Arch::Phi2 | Arch::Falcon)
                || self.arch == Arch::StableLm && self.larger;
            if self.arch.norms_before() && !parallel {
                add(b(self.arch.ffn_norm()), 1, dim, 0.1, Role::Norm);
                if self.arch.has_norm_bias() {
                    add(b("ffn_norm.bias"), 1, dim, 0.2, Role::Bias);
                }
            }
            if self.experts.count > 0 && i >= self.experts.dense && !self.arch.is_uneven() {
                self.expert_tensors(i, &mut add);
                continue;
            }
            self.feed_forward_tensors(i, &mut add);
            if self.arch.norms_after() {
                add(b("post_ffw_norm.weight"), 1, dim, 0.1, Role::Norm);
            }
            if self.arch.is_uneven() {
                self.uneven_tensors(i, &mut add);
            }
        }
        let last = if self.arch.is_lfm2() { "token_embd_norm.weight" } else { "output_norm.weight" };
        add(last.into(), 1, dim, 0.1, Role::Norm);
        if self.arch.has_norm_bias() {
            add("output_norm.bias".into(), 1, dim, 0.2, Role::Bias);
        }
        if self.arch == Arch::Phi2 {
            add("output.bias".into(), 1, vocab, 0.5, Role::Bias);
        }
        if !self.tied {
            add("output.weight".into(), vocab, dim, 3.0 * root(dim), Role::Output);
        }
        list.iter_mut().for_each(|t| self.stack(t));
        list
    }

    /// Says how many matrices lie below each other in a tensor that has several.
    fn stack(&self, t: &mut Tensor) {
        let ends = |with: &str| t.name.ends_with(with);
        if ends("_exps.weight") {
            t.stack = self.experts.count.into();
        } else if t.name.starts_with("altup_") {
            t.stack = uneven::OTHERS;
        } else if ends("attn_k_b.weight") || ends("attn_v_b.weight") {
            t.stack = self.heads.into();
        }
    }

    /// A layer's feed-forward. `add` as for [`Shape::expert_tensors`].
    fn feed_forward_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let [dim, ffn] = [self.dim, self.ffn_of(i)].map(u64::from);
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        let residual = root(2 * u64::from(self.layers));
        let b = |part: &str| format!("blk.{i}.{part}");
        if self.arch.has_fused_gate() {
            add(b("ffn_up.weight"), 2 * ffn, dim, root(dim), Role::Plain);
        } else if self.arch.has_no_gate() {
            add(b("ffn_up.weight"), ffn, dim, root(dim), Role::Plain);
        } else {
            add(b("ffn_gate.weight"), ffn, dim, root(dim), Role::Plain);
            add(b("ffn_up.weight"), ffn, dim, root(dim), Role::Plain);
        }
        add(b("ffn_down.weight"), dim, ffn, residual * 2.0 * root(ffn), Role::Raised(i));
        if self.arch.has_biases() {
            add(b("ffn_up.bias"), 1, ffn, 0.3, Role::Bias);
            add(b("ffn_down.bias"), 1, dim, 0.1, Role::Bias);
        }
    }

    /// What makes queries, keys and values in a layer of attention. `add` as for [`Shape::expert_tensors`].
    fn attention_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        if self.arch == Arch::DeepSeek2 {
            return self.latent_tensors(i, add);
        }
        let (dim, (kv_heads, head_dim)) = (u64::from(self.dim), self.heads_of(i));
        let [q, kv] = [self.heads, kv_heads].map(|n| u64::from(n) * u64::from(head_dim));
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        let b = |part: &str| format!("blk.{i}.{part}");
        if self.arch.has_fused_qkv() {
            add(b("attn_qkv.weight"), q + 2 * kv, dim, root(dim), Role::Raised(i));
            return;
        }
        // so that scores meet their cap
        let sharp = if self.arch == Arch::Gemma2 { 10.0 } else { 1.0 };
        // with as many rows of gates between those of the heads
        let turns = if self.arch.is_hybrid() { 2 } else { 1 };
        add(b("attn_q.weight"), turns * q, dim, sharp * root(dim), Role::Plain);
        if !self.has_own_keys(i) {
            return;
        }
        add(b("attn_k.weight"), kv, dim, root(dim), Role::Plain);
        if !self.uneven.equal || self.has_window(i) {
            add(b("attn_v.weight"), kv, dim, root(dim), Role::Raised(i));
        }
    }

    /// What latent attention has. `add` as for [`Shape::expert_tensors`].
    fn latent_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let Latent { query_rank, rank, rope, nope, value } = self.latent;
        let [dim, heads, low, rank, rope, nope, value] =
            [self.dim, self.heads, query_rank, rank, rope, nope, value].map(u64::from);
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        let b = |part: &str| format!("blk.{i}.{part}");
        if low > 0 {
            add(b("attn_q_a.weight"), low, dim, root(dim), Role::Plain);
            add(b("attn_q_a_norm.weight"), 1, low, 0.3, Role::Norm);
            add(b("attn_q_b.weight"), heads * (nope + rope), low, root(low), Role::Plain);
        } else {
            add(b("attn_q.weight"), heads * (nope + rope), dim, root(dim), Role::Plain);
        }
        add(b("attn_kv_a_mqa.weight"), rank + rope, dim, root(dim), Role::Plain);
        add(b("attn_kv_a_norm.weight"), 1, rank, 0.3, Role::Norm);
        // a key is made of the latent vector
        add(b("attn_k_b.weight"), heads * rank, nope, root(rank), Role::Plain);
        add(b("attn_v_b.weight"), heads * value, rank, root(rank), Role::Plain);
        let residual = root(2 * u64::from(self.layers));
        add(b("attn_output.weight"), dim, heads * value, residual * root(heads * value), Role::Plain);
    }

    /// What a recurrent layer has in the place of attention: a short convolution, or a delta net's projections, convolution,
    /// gates, norm and output. `add` as for [`Shape::expert_tensors`].
    fn recurrent_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let [dim, keys, heads, size] =
            [self.dim, self.delta.key_heads, self.delta.heads, self.delta.size].map(u64::from);
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        let b = |part: &str| format!("blk.{i}.{part}");
        if self.arch.is_lfm2() {
            let residual = root(2 * u64::from(self.layers));
            add(b("shortconv.in_proj.weight"), 3 * dim, dim, root(dim), Role::Plain);
            add(b("shortconv.conv.weight"), dim, 3, 0.6, Role::Router);
            add(b("shortconv.out_proj.weight"), dim, dim, residual * root(dim), Role::Plain);
            return;
        }
        let (channels, values) = ((2 * keys + heads) * size, heads * size);
        add(b("attn_qkv.weight"), channels, dim, root(dim), Role::Raised(i));
        add(b("attn_gate.weight"), values, dim, root(dim), Role::Plain);
        if self.arch == Arch::Qwen3Next {
            add(b("ssm_ba.weight"), 2 * heads, dim, root(dim), Role::Plain);
        } else {
            add(b("ssm_beta.weight"), heads, dim, root(dim), Role::Plain);
            add(b("ssm_alpha.weight"), heads, dim, root(dim), Role::Plain);
        }
        add(b("ssm_conv1d.weight"), channels, 4, 0.6, Role::Router);
        // most of a state stays from token to token
        add(b("ssm_dt.bias"), 1, heads, 1.0, Role::Bias);
        add(b("ssm_a"), 1, heads, 0.06, Role::Decay);
        add(b("ssm_norm.weight"), 1, size, 0.2, Role::Norm);
        let residual = root(2 * u64::from(self.layers));
        add(b("ssm_out.weight"), dim, values, residual * root(values), Role::Plain);
    }

    /// What a layer of state spaces has. `add` as for [`Shape::expert_tensors`].
    fn state_space_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let [dim, groups, heads, state, head_dim] =
            [self.dim, self.delta.key_heads, self.delta.heads, self.delta.size, self.head_dim].map(u64::from);
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        let b = |part: &str| format!("blk.{i}.{part}");
        let inner = heads * head_dim;
        let channels = inner + 2 * groups * state;
        add(b("attn_norm.weight"), 1, dim, 0.1, Role::Norm);
        add(b("ssm_in.weight"), inner + channels + heads, dim, root(dim), Role::Plain);
        add(b("ssm_conv1d.weight"), channels, 4, 0.6, Role::Router);
        add(b("ssm_conv1d.bias"), 1, channels, 0.3, Role::Bias);
        // most of a state stays from token to token
        add(b("ssm_dt.bias"), 1, heads, 1.0, Role::Bias);
        add(b("ssm_a"), 1, heads, 0.06, Role::Decay);
        add(b("ssm_d"), 1, heads, 0.3, Role::Norm);
        add(b("ssm_norm.weight"), groups, inner / groups, 0.2, Role::Norm);
        add(b("ssm_out.weight"), dim, inner, root(u64::from(self.layers)) * root(inner), Role::Plain);
    }

    /// A layer's router, experts, and the expert that all tokens meet. `add` takes name, rows, columns, deviation and role.
    fn expert_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let (dim, root) = (u64::from(self.dim), |n: u64| 1.0 / (n as f64).sqrt());
        let residual = root(2 * u64::from(self.layers));
        let b = |part: &str| format!("blk.{i}.{part}");
        let Experts { count, width, shared, .. } = self.experts;
        // weights of experts: those of `count` one below the other
        let [n, width, shared] = [count, width, shared].map(u64::from);
        add(b("ffn_gate_inp.weight"), n, dim, 1.5 * root(dim), Role::Router);
        if matches!(self.arch, Arch::Glm4Moe | Arch::Lfm2Moe) || self.arch == Arch::DeepSeek2 && self.larger {
            add(b("exp_probs_b.bias"), 1, n, 0.2, Role::Bias);
        }
        // of gpt-oss such that some are clamped
        let sharp = if self.arch == Arch::GptOss { 8.0 } else { 1.0 };
        add(b("ffn_gate_exps.weight"), n * width, dim, sharp * root(dim), Role::Plain);
        add(b("ffn_up_exps.weight"), n * width, dim, sharp * root(dim), Role::Plain);
        add(b("ffn_down_exps.weight"), n * dim, width, residual * 2.0 * root(width), Role::Raised(i));
        if self.arch == Arch::GptOss {
            add(b("ffn_gate_inp.bias"), 1, n, 0.5, Role::Bias);
            add(b("ffn_gate_exps.bias"), n, width, 0.5, Role::Bias);
            add(b("ffn_up_exps.bias"), n, width, 0.5, Role::Bias);
            add(b("ffn_down_exps.bias"), n, dim, 0.1, Role::Bias);
        }
        if shared > 0 {
            if self.arch == Arch::Qwen2Moe || self.arch.is_hybrid() {
                add(b("ffn_gate_inp_shexp.weight"), 1, dim, root(dim), Role::Router);
            }
            add(b("ffn_gate_shexp.weight"), shared, dim, root(dim), Role::Plain);
            add(b("ffn_up_shexp.weight"), shared, dim, root(dim), Role::Plain);
            add(b("ffn_down_shexp.weight"), dim, shared, residual * 2.0 * root(shared), Role::Raised(i));
        }
    }
}

impl Shape {
    /// GGUF's keys about experts, without the architecture.
    pub fn expert_keys(&self) -> Vec<(&'static str, Value)> {
        let e = self.experts;
        if e.count == 0 {
            return vec![];
        }
        let mut list = vec![("expert_count", Value::U32(e.count)), ("expert_used_count", Value::U32(e.used))];
        if !matches!(self.arch, Arch::Llama | Arch::GraniteMoe) {
            list.push(("expert_feed_forward_length", Value::U32(e.width)));
        }
        if self.arch == Arch::Glm4Moe {
            list.push(("expert_shared_count", Value::U32(e.shared / e.width.max(1))));
            list.push(("leading_dense_block_count", Value::U32(e.dense)));
            list.push(("expert_weights_norm", Value::Bool(true)));
            list.push(("expert_weights_scale", Value::F32(GLM_SCALE)));
            list.push(("expert_gating_func", Value::U32(2)));
        } else if self.arch == Arch::DeepSeek2 {
            let (groups, kept) = self.groups();
            list.push(("expert_shared_count", Value::U32(e.shared / e.width.max(1))));
            list.push(("leading_dense_block_count", Value::U32(e.dense)));
            list.push(("expert_weights_norm", Value::Bool(self.larger)));
            list.push(("expert_weights_scale", Value::F32(GLM_SCALE)));
            list.push(("expert_gating_func", Value::U32(if self.larger { 2 } else { 1 })));
            list.push(("expert_group_count", Value::U32(groups)));
            list.push(("expert_group_used_count", Value::U32(kept)));
        } else if self.arch == Arch::Lfm2Moe {
            list.push(("leading_dense_block_count", Value::U32(e.dense)));
            list.push(("expert_gating_func", Value::U32(2)));
        } else if e.shared > 0 {
            list.push(("expert_shared_feed_forward_length", Value::U32(e.shared)));
        }
        list
    }
}

impl Shape {
    /// Groups of experts, and how many of them are kept.
    pub fn groups(&self) -> (u32, u32) {
        if self.larger && self.experts.count.is_multiple_of(4) { (4, 2) } else { (1, 1) }
    }

    /// GGUF's keys about heads of latent attention, without the architecture.
    pub fn latent_keys(&self) -> Vec<(&'static str, Value)> {
        let Latent { query_rank, rank, rope, nope, value } = self.latent;
        if rank == 0 {
            return vec![];
        }
        let sizes = [
            ("attention.q_lora_rank", query_rank),
            ("attention.kv_lora_rank", rank),
            ("attention.key_length", rank + rope),
            ("attention.value_length", rank),
            ("attention.key_length_mla", nope + rope),
            ("attention.value_length_mla", value),
        ];
        sizes.into_iter().filter(|(_, n)| *n > 0).map(|(key, n)| (key, Value::U32(n))).collect()
    }

    /// Rotated elements of a head.
    pub fn n_rot(&self) -> u32 {
        if self.latent.rank > 0 { self.latent.rope } else { self.arch.n_rot(self.head_dim) }
    }

    /// GGUF's value of key-value heads: of LFM2 a list, in which convolutions have 0.
    pub fn kv_heads_value(&self) -> Value {
        if !self.arch.is_lfm2() {
            return Value::U32(self.kv_heads);
        }
        let n = self.kv_heads as i32;
        Value::I32Array((0..self.layers).map(|l| if self.is_convolution(l) { 0 } else { n }).collect())
    }

    /// GGUF's keys about recurrent layers, without the architecture.
    pub fn delta_keys(&self) -> Vec<(&'static str, Value)> {
        if self.arch == Arch::Mamba2 {
            let Delta { key_heads, heads, size } = self.delta;
            let list = [
                ("ssm.conv_kernel", 4),
                ("ssm.inner_size", heads * self.head_dim),
                ("ssm.state_size", size),
                ("ssm.time_step_rank", heads),
                ("ssm.group_count", key_heads),
            ];
            return list.map(|(key, v)| (key, Value::U32(v))).to_vec();
        }
        if self.arch.is_lfm2() {
            return vec![("shortconv.l_cache", Value::U32(3))];
        }
        let d = self.delta;
        if d.key_heads == 0 {
            return vec![];
        }
        let sizes = [
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", d.size),
            ("ssm.group_count", d.key_heads),
            ("ssm.time_step_rank", d.heads),
            ("ssm.inner_size", d.heads * d.size),
            ("full_attention_interval", 4),
        ];
        let mut list = sizes.map(|(key, v)| (key, Value::U32(v))).to_vec();
        if self.arch != Arch::Qwen3Next {
            // the directions of a rotation in turns, as many pairs of each as there are
            let pairs = self.arch.n_rot(self.head_dim) / 2;
            let sections = [pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3, 0];
            list.push(("rope.dimension_sections", Value::U32Array(sections.to_vec())));
        }
        list
    }
}

/// The shape of a tensor in a GGUF file, the fastest dimension first: `sizes` are all its rows, the matrices they are of and
/// the elements of a row; `is_row`: there is but one.
pub fn dims(arch: Arch, name: &str, is_row: bool, sizes: [u64; 3]) -> Vec<u64> {
    let [rows, stack, cols] = sizes;
    let ends = |with: &str| arch == Arch::Mamba2 && name.ends_with(with);
    match (is_row, stack) {
        _ if ends(".ssm_a") || ends(".ssm_d") => vec![1, cols],
        _ if ends(".ssm_norm.weight") => vec![cols, rows],
        (true, _) => vec![cols],
        (false, 1) => vec![cols, rows],
        (false, n) => vec![cols, rows / n, n],
    }
}

/// What weights of experts are multiplied with in made-up models of glm4moe.
pub const GLM_SCALE: f32 = 1.5;

/// How the matrices of a model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// `q4_k_m`
    pub name: &'static str,
    /// type of most matrices
    pub plain: BlockType,
    /// `general.file_type`: its number in llama.cpp, where it has one
    pub file_type: Option<u32>,
    types: mix::Mix,
}

/// The name of every mix.
const MIXES: [&str; 31] = [
    "q4_k_m", "q4_k", "q5_k", "q6_k", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "f16", "bf16", "f32", "w8a16", "w4a16",
    "q2_k", "q3_k", "iq4_nl", "iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_s", "iq1_m", "tq1_0",
    "tq2_0", "mxfp4", "nvfp4", "q1_0", "q2_0",
];

impl Mix {
    /// By name.
    pub fn parse(s: &str) -> Option<Mix> {
        let name = MIXES.into_iter().find(|name| name.eq_ignore_ascii_case(s))?;
        let types = mix::Mix::parse(name)?;
        Some(Mix { name, plain: types.base()?, file_type: types.file_type(), types })
    }

    /// The type of a tensor of a model of so many layers, its rows having `cols` elements.
    pub fn pick(&self, role: Role, layers: u32, cols: u64) -> BlockType {
        let wanted = match role {
            Role::Norm | Role::Bias | Role::Decay | Role::Router | Role::Turns(_) => return BlockType::F32,
            Role::Output
                if matches!(self.name, "q4_k_m" | "q5_k" | "q4_0" | "q4_1" | "q5_0" | "q5_1" | "q2_k" | "q3_k") =>
            {
                BlockType::Q6_K
            }
            Role::Output if self.name.starts_with("iq4") || self.name.starts_with("tq") => BlockType::Q6_K,
            Role::Raised(layer) if self.types.raises(layer as usize, layers as usize) => BlockType::Q6_K,
            _ => self.plain,
        };
        mix::that_fits(wanted, cols).unwrap_or(BlockType::F16)
    }
}

/// A shape and how its matrices are stored: `llama-1b`, `llama-1b:q8_0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// shape
    pub shape: Shape,
    /// types
    pub mix: Mix,
}

impl Synthetic {
    /// By name. The error lists what there is.
    pub fn parse(word: &str) -> Result<Synthetic, String> {
        let (name, mix) = word.split_once(':').unwrap_or((word, "q4_k_m"));
        let shape = SHAPES.iter().find(|s| s.name.eq_ignore_ascii_case(name));
        let mix = Mix::parse(mix);
        match (shape, mix) {
            (Some(shape), Some(mix)) => Ok(Synthetic { shape: *shape, mix }),
            _ => {
                let (shapes, types) = (SHAPES.map(|s| s.name).join(", "), MIXES.join(", "));
                Err(format!("expected SHAPE or SHAPE:TYPE; shapes: {shapes}; types: {types}"))
            }
        }
    }

    /// `llama-1b:q4_k_m`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.shape.name, self.mix.name)
    }

    /// The model, its tensors made when they are read.
    pub fn container(&self) -> Result<Container, FormatError> {
        let list = self.shape.tensors();
        let type_of = |t: &Tensor| self.mix.pick(t.role, self.shape.layers, t.cols);
        let name = format!("<synthetic {}>", self.name());
        let unknown = |what: &str| FormatError::unsupported(&name, what, "give another mix");
        let dtype_of = |ty: BlockType| Dtype::from_block(ty).ok_or_else(|| unknown(ty.name()));
        let dtype_named = |word: &str| Dtype::from_name(word).ok_or_else(|| unknown(word));
        let entry = |t: &Tensor| {
            let ty = type_of(t);
            let dtype = dtype_of(ty)?;
            // a type that GGUF does not have stands in the header as the bytes of its rows
            let (dtype, cols) = match dtype.ggml_id() {
                Some(_) => (dtype, t.cols),
                None => (dtype_named("I8")?, t.cols / dtype.block_elems() * dtype.block_bytes()),
            };
            let shape = dims(self.shape.arch, &t.name, t.is_vector() || t.rows == 1, [t.rows, t.stack, cols]);
            Ok(gguf_write::Entry { name: t.name.clone(), dtype, shape })
        };
        let entries = list.iter().map(entry).collect::<Result<Vec<_>, FormatError>>()?;
        let head = gguf_write::head(&name, &self.metadata(), &entries)?;
        let at = head.file_len;
        let made = head.offsets.into_iter().zip(list.iter().map(|t| Generator::new(t, type_of(t)))).collect();
        let source = Source::generated(&name, at, Made { head: head.bytes, tensors: made });
        let mut parsed = gguf::parse(&source, 0)?;
        for (tensor, t) in parsed.tensors.iter_mut().zip(&list) {
            tensor.dtype = dtype_of(type_of(t))?;
            tensor.shape = dims(self.shape.arch, &t.name, t.is_vector() || t.rows == 1, [t.rows, t.stack, t.cols]);
        }
        Container::from_gguf(parsed, vec![PathBuf::from(name)], vec![source])
    }

    fn metadata(&self) -> Meta {
        let s = &self.shape;
        let attends = s.arch != Arch::Mamba2;
        let sizes = [
            ("block_count", s.layers),
            ("context_length", s.ctx),
            ("embedding_length", s.dim),
            ("feed_forward_length", s.ffn),
            ("attention.head_count", if attends { s.heads } else { 0 }),
            ("rope.dimension_count", s.n_rot()),
            ("vocab_size", s.vocab),
        ];
        // as their files have them
        let (base, epsilon) = match s.arch {
            Arch::Llama if s.experts.count > 0 => (1e6, 1e-5),
            Arch::Llama | Arch::Phi3 | Arch::ChatGlm | Arch::Glm4 => (1e4, 1e-5),
            Arch::Qwen2 | Arch::Qwen3 | Arch::Qwen2Moe | Arch::Qwen3Moe => (1e6, 1e-6),
            Arch::Gemma3 | Arch::Gemma3n | Arch::Gemma4 => (1e6, 1e-6),
            Arch::Gemma2 => (1e4, 1e-6),
            Arch::Exaone4 | Arch::Glm4Moe => (1e6, 1e-5),
            Arch::GptOss => (1.5e5, 1e-5),
            Arch::SmolLm3 => (5e6, 1e-6),
            Arch::Olmo2 => (5e5, 1e-6),
            Arch::Granite | Arch::GraniteMoe => (1e7, 1e-5),
            Arch::StarCoder2 => (999_999.44, 1e-5),
            Arch::Cohere2 => (5e4, 1e-5),
            Arch::CommandR => (8e6, 1e-5),
            Arch::StableLm | Arch::Phi2 | Arch::Gpt2 | Arch::Falcon => (1e4, 1e-5),
            Arch::Qwen35 | Arch::Qwen35Moe | Arch::Qwen3Next => (1e7, 1e-6),
            Arch::Lfm2 | Arch::Lfm2Moe => (1e6, 1e-5),
            Arch::DeepSeek2 => (1e4, 1e-6),
            Arch::NomicBert => (1000.0, 1e-12),
            // which are not rotated
            Arch::Bert => (1e4, 1e-12),
            Arch::Mamba2 => (1e4, 1e-5),
        };
        let arch = s.arch.name();
        let mut m = Meta::default();
        let mut put = |key: &str, value: Value| m.entries.push((key.to_string(), value));
        put("general.architecture", Value::Str(arch.into()));
        put("general.name", Value::Str(format!("synthetic {}", self.name())));
        let there = sizes.iter().filter(|(key, _)| attends || *key != "rope.dimension_count");
        there.for_each(|(key, v)| put(&format!("{arch}.{key}"), Value::U32(*v)));
        if attends {
            put(&format!("{arch}.attention.head_count_kv"), s.kv_heads_value());
        }
        if attends && s.latent.rank == 0 && s.head_dim * s.heads != s.dim {
            put(&format!("{arch}.attention.key_length"), Value::U32(s.head_dim));
            put(&format!("{arch}.attention.value_length"), Value::U32(s.head_dim));
        }
        let own = [s.expert_keys(), s.delta_keys(), s.latent_keys(), s.uneven_keys(), s.encoder_keys()];
        // what differs from layer to layer is said once
        m.entries.retain(|(key, _)| !own[3].iter().any(|(own, _)| *key == format!("{arch}.{own}")));
        let mut put = |key: &str, value: Value| m.entries.push((key.to_string(), value));
        own.iter().flatten().for_each(|(key, v)| put(&format!("{arch}.{key}"), v.clone()));
        s.arch.scales().iter().for_each(|(key, v)| put(&format!("{arch}.{key}"), Value::F32(*v)));
        if s.window > 0 {
            put(&format!("{arch}.attention.sliding_window"), Value::U32(s.window));
        }
        if let Some(number) = self.mix.file_type {
            put("general.file_type", Value::U32(number));
        }
        if attends {
            put(&format!("{arch}.rope.freq_base"), Value::F32(base));
        }
        put(&format!("{arch}.{}", epsilon_key(s.arch)), Value::F32(epsilon));
        m
    }
}

/// A file of which only the head is kept.
struct Made {
    head: Vec<u8>,
    /// (place in the file, what makes its bytes), in order
    tensors: Vec<(u64, Generator)>,
}

impl Generated for Made {
    /// Between tensors lie zeros.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        let end = offset + out.len() as u64;
        out.fill(0);
        let mut put = |start: u64, len: u64, make: &dyn Fn(u64, &mut [u8])| {
            let (a, b) = (offset.max(start), end.min(start + len));
            if a < b {
                make(a - start, &mut out[(a - offset) as usize..(b - offset) as usize]);
            }
        };
        put(0, self.head.len() as u64, &|at, out| out.copy_from_slice(&self.head[at as usize..][..out.len()]));
        let first = self.tensors.partition_point(|(start, g)| start + g.len <= offset);
        for (start, g) in self.tensors[first..].iter().take_while(|(start, _)| *start < end) {
            put(*start, g.len, &|at, out| g.read(at, out));
        }
        Ok(())
    }
}

/// Makes the bytes of one tensor.
struct Generator {
    ty: BlockType,
    /// of divisors of a rotation, how many are 1
    turned: Option<u32>,
    len: u64,
    noise: Noise,
    /// scales of quantised blocks, a little apart; and the minimum that goes with each
    scales: [(f32, f32); 32],
}

/// Nearly Gaussian noise of one tensor, by integer operations and one multiplication: the same on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    key: u64,
    /// what one unit of the integer sum is worth
    unit: f32,
    mean: f32,
}

impl Noise {
    /// Of the tensor of this name, with this mean and standard deviation; another seed gives other noise.
    pub fn new(seed: u64, name: &str, mean: f32, std: f64) -> Noise {
        // FNV-1a over the name, so that tensors are independent
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        // the sum of four uniform 16-bit numbers has this deviation: sqrt(4 * (2^32 - 1) / 12)
        let sigma = (((1u64 << 32) - 1) as f64 / 3.0).sqrt();
        Noise { key: random::mix(random::mix(seed) ^ name), unit: (std / sigma) as f32, mean }
    }

    /// 64 random bits, of place `i`.
    fn word(&self, i: u64) -> u64 {
        random::mix(self.key.wrapping_add(i.wrapping_add(1).wrapping_mul(random::GAMMA)))
    }

    /// 64 random bits of a second series, for choices about the tensor.
    pub fn choice(&self, i: u64) -> u64 {
        random::mix(self.key ^ i.wrapping_add(1))
    }

    /// Element `index`, within 3.5 standard deviations of the mean.
    pub fn at(&self, index: u64) -> f32 {
        const HALVES: u64 = 0x0000_ffff_0000_ffff;
        let h = self.word(index);
        let pairs = (h & HALVES) + ((h >> 16) & HALVES);
        let sum = (pairs as u32) as i32 + (pairs >> 32) as i32 - 2 * 65535;
        self.mean + sum as f32 * self.unit
    }
}

/// The divisor of pair `i` of a rotation, of which so many are turned.
pub fn divisor(turned: u32, i: u64) -> f32 {
    if i < turned.into() { 1.0 } else { 1e30 }
}

impl Generator {
    fn new(t: &Tensor, ty: BlockType) -> Generator {
        // deviation of the codes (uniform), times the root mean square of the sub-block scales; the middle code
        let (spread, middle) = match ty {
            BlockType::Q4_K => (4.61 * 48.4, 7.5),
            BlockType::Q5_K => (9.23 * 48.4, 15.5),
            BlockType::Q6_K => (18.47 * 97.2, 0.0),
            BlockType::Q8_0 => (73.9, 0.0),
            BlockType::Q4_0 => (4.61, 0.0),
            BlockType::Q5_0 => (9.23, 0.0),
            BlockType::Q4_1 => (4.61, -7.5),
            BlockType::Q5_1 => (9.23, -15.5),
            BlockType::W8A16 => (73.9, 0.0),
            BlockType::W4A16 => (4.64, 0.0),
            BlockType::Q2_K => (1.118 * 11.73, 1.5),
            BlockType::Q3_K => (2.345 * 18.48, 0.0),
            BlockType::IQ4_NL => (67.44, 0.0),
            BlockType::IQ4_XS => (67.44 * 18.48, 0.0),
            // all rows of the codebook alike, times odd scales to 31, of IQ1 to 15
            BlockType::IQ3_S => (7.594 * 18.47, 0.0),
            BlockType::IQ3_XXS => (30.85 * 18.47 / 4.0, 0.0),
            BlockType::IQ2_S => (24.43 * 18.47 / 8.0, 0.0),
            BlockType::IQ2_XS => (24.22 * 18.47 / 8.0, 0.0),
            BlockType::IQ2_XXS => (23.12 * 18.47 / 8.0, 0.0),
            BlockType::IQ1_S | BlockType::IQ1_M => (6.247 * 9.22 / 8.0, 0.0),
            BlockType::TQ1_0 => (0.8173, 0.0),
            BlockType::TQ2_0 | BlockType::Q2_0 => (1.225, 0.0),
            BlockType::MXFP4 | BlockType::NVFP4 => (5.852, 0.0),
            _ => (1.0, 0.0),
        };
        let d = (t.std / spread) as f32;
        let scales = std::array::from_fn(|i| {
            let d = d * (0.9 + i as f32 * (0.2 / 31.0));
            (d, d * middle)
        });
        let noise = Noise::new(1, &t.name, t.role.mean(), t.std);
        let turned = if let Role::Turns(n) = t.role { Some(n) } else { None };
        Generator { ty, turned, len: t.rows * t.cols / ty.elems() as u64 * ty.bytes() as u64, noise, scales }
    }

    /// Fills `out` with the bytes from `at` on.
    fn read(&self, at: u64, out: &mut [u8]) {
        let block = self.ty.bytes() as u64;
        let (first, skip) = (at / block, (at % block) as usize);
        if skip > 0 || !(out.len() as u64).is_multiple_of(block) {
            // not whole blocks: what tests of a file's reader ask for
            let mut whole = vec![0; (skip + out.len()).next_multiple_of(block as usize)];
            self.blocks(first, &mut whole);
            return out.copy_from_slice(&whole[skip..][..out.len()]);
        }
        self.blocks(first, out);
    }

    fn blocks(&self, first: u64, out: &mut [u8]) {
        const AT_ONCE: usize = 4096;
        let size = self.ty.bytes();
        out.par_chunks_mut(AT_ONCE * size).enumerate().for_each(|(i, part)| {
            let first = first + (i * AT_ONCE) as u64;
            for (j, block) in part.chunks_exact_mut(size).enumerate() {
                self.block(first + j as u64, block);
            }
        });
    }

    fn block(&self, index: u64, out: &mut [u8]) {
        if self.ty.elems() == 1 {
            let v = match self.turned {
                Some(n) => divisor(n, index),
                None => self.noise.at(index),
            };
            match self.ty {
                BlockType::F16 => out.copy_from_slice(&f32_to_f16(v).to_le_bytes()),
                BlockType::BF16 => out.copy_from_slice(&f32_to_bf16(v).to_le_bytes()),
                _ => out.copy_from_slice(&v.to_le_bytes()),
            }
            return;
        }
        // 64 words a block: more than the largest takes
        let word = |i: u64| self.noise.word(index.wrapping_mul(64).wrapping_add(i));
        for (i, part) in out.chunks_mut(8).enumerate() {
            part.copy_from_slice(&word(i as u64).to_le_bytes()[..part.len()]);
        }
        let h = word(63);
        let (scale, minimum) = self.scales[(h & 31) as usize];
        let (d, dmin) = (f32_to_f16(scale), f32_to_f16(minimum));
        let coin = (h >> 5) as u16 & 1;
        match self.ty {
            BlockType::Q4_K | BlockType::Q5_K => {
                out[..2].copy_from_slice(&d.to_le_bytes());
                out[2..4].copy_from_slice(&dmin.to_le_bytes());
                // six-bit scales of 32 to 63, and minima alike, so that every sub-block has mean zero
                let sc: [u8; 8] = std::array::from_fn(|i| 32 | (out[4 + i] & 31));
                for i in 0..4 {
                    let high = sc[i + 4] >> 4 << 6;
                    (out[4 + i], out[8 + i]) = (sc[i] | high, sc[i] | high);
                    out[12 + i] = (sc[i + 4] & 15) * 0x11;
                }
            }
            BlockType::Q6_K => {
                // magnitudes of 64 to 127, both signs
                out[192..208].iter_mut().for_each(|s| {
                    let magnitude = 64 | (*s & 63) as i8;
                    *s = (if *s & 64 == 0 { magnitude } else { -magnitude }) as u8;
                });
                out[208..].copy_from_slice(&d.to_le_bytes());
            }
            BlockType::Q4_1 | BlockType::Q5_1 => {
                out[..2].copy_from_slice(&d.to_le_bytes());
                out[2..4].copy_from_slice(&dmin.to_le_bytes());
            }
            // the middle of the codes lies between two of them: offsets are either
            BlockType::W8A16 | BlockType::W4A16 => {
                let middle = if self.ty == BlockType::W8A16 { 0 } else { 8 };
                out[..4].copy_from_slice(&scale.to_le_bytes());
                out[4] = (middle - coin as i8) as u8;
            }
            BlockType::Q2_K => {
                // scales of 8 to 15, and minima alike
                out[..16].iter_mut().for_each(|s| *s = (8 | *s & 7) * 0x11);
                out[80..82].copy_from_slice(&d.to_le_bytes());
                out[82..].copy_from_slice(&dmin.to_le_bytes());
            }
            // the scales that there are: of the two beside the one that is meant now this and now that
            BlockType::MXFP4 => {
                out[0] = beside(scale, (scale.to_bits() >> 23) as u8 + 1, |e| 2f32.powi(i32::from(e) - 128), h >> 8);
            }
            BlockType::NVFP4 => {
                let below = (0..0x7e).rev().find(|&byte| nvfp4::scale(byte) <= scale).unwrap_or(0);
                for (i, s) in out[..4].iter_mut().enumerate() {
                    *s = beside(scale, below, nvfp4::scale, h >> (8 + 14 * i));
                }
            }
            BlockType::IQ1_M => {
                let d = d | coin << 15;
                for (i, s) in out[48..].iter_mut().skip(1).step_by(2).enumerate() {
                    *s = *s & 15 | ((d >> (4 * i)) as u8) << 4;
                }
            }
            // codes lie half a step below zero, or nobody knows where, so scales have both signs
            _ => {
                let at = self.ty.format().numbers[0].at;
                out[at..at + 2].copy_from_slice(&(d | coin << 15).to_le_bytes());
            }
        }
    }
}

/// The byte `below` or the next, so often either that their scales squared are `scale` squared in the mean; `h` has 14 random
/// bits.
fn beside(scale: f32, below: u8, value: impl Fn(u8) -> f32, h: u64) -> u8 {
    let [low, high] = [below, below + 1].map(|byte| value(byte) * value(byte));
    let share = (scale * scale - low) / (high - low);
    below + u8::from(((h & 0x3fff) as f32) < share * 16384.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(c: &Container, name: &str) -> (BlockType, Vec<u8>) {
        let t = c.tensor(name).unwrap();
        let mut bytes = vec![0; t.bytes as usize];
        c.read(t, 0, &mut bytes).unwrap();
        (t.dtype.block().unwrap(), bytes)
    }

    #[test]
    fn every_type_has_the_deviation_asked_for_and_mean_zero() {
        for label in MIXES {
            let c = Synthetic::parse(&format!("llama-tiny:{label}")).unwrap().container().unwrap();
            for (name, std) in [("blk.0.ffn_down.weight", 2.0 / 2048f64.sqrt()), ("output.weight", 3.0 / 16.0)] {
                let (ty, bytes) = all(&c, name);
                let mut x = vec![0f32; bytes.len() / ty.bytes() * ty.elems()];
                ty.decode_row(&bytes, &mut x);
                let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / x.len() as f64;
                let found = (x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / x.len() as f64).sqrt();
                assert!(mean.abs() < 0.02 * std, "{label} {name} {ty:?}: mean {mean}");
                assert!((found / std - 1.0).abs() < 0.03, "{label} {name} {ty:?}: {found} for {std}");
                assert_eq!(ty.find_bad_scale(&bytes), None);
            }
        }
    }

    #[test]
    fn the_q4_k_m_mix_is_the_usual_one() {
        let s = Synthetic::parse("llama-1b").unwrap();
        let list = s.shape.tensors();
        let types = |part: &str| -> Vec<BlockType> {
            let of = list.iter().filter(|t| t.name.contains(part));
            of.map(|t| s.mix.pick(t.role, s.shape.layers, t.cols)).collect()
        };
        assert_eq!(types("output.weight").last(), Some(&BlockType::Q6_K));
        assert_eq!(types("token_embd"), [BlockType::Q4_K]);
        // 22 layers: 0, 1, then every third from 4, then 19 to 21
        let six: Vec<usize> = (0..22).filter(|&i| types("ffn_down")[i] == BlockType::Q6_K).collect();
        assert_eq!(six, [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
        assert_eq!(types("attn_v"), types("ffn_down"));
        assert!(types("ffn_up").iter().all(|&t| t == BlockType::Q4_K));
        let phi = Synthetic::parse("phi3-mini").unwrap();
        let qkv = phi.shape.tensors().into_iter().filter(|t| t.name.ends_with("attn_qkv.weight"));
        let six = qkv.filter(|t| phi.mix.pick(t.role, 32, 3072) == BlockType::Q6_K).count();
        assert_eq!(six, 16);
        assert_eq!(phi.metadata().uint("phi3.attention.sliding_window"), Some(2047));
        assert_eq!(s.metadata().uint("llama.attention.sliding_window"), None);
    }

    #[test]
    fn any_range_of_a_tensor_is_that_range_of_the_whole() {
        let c = Synthetic::parse("llama-tiny").unwrap().container().unwrap();
        for name in ["token_embd.weight", "output.weight", "blk.1.ffn_norm.weight"] {
            let (_, whole) = all(&c, name);
            for (at, len) in [(0, 1), (143, 2), (1, 500), (whole.len() - 7, 7), (144, 288)] {
                let mut part = vec![0xaa; len];
                c.read(c.tensor(name).unwrap(), at as u64, &mut part).unwrap();
                assert!(part == whole[at..at + len], "{name} {at}..{}", at + len);
            }
        }
    }

    #[test]
    fn the_model_is_the_same_on_every_machine() {
        let c = Synthetic::parse("llama-tiny").unwrap().container().unwrap();
        let fnv = |b: &[u8]| {
            b.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
        };
        let digests = ["blk.0.attn_q.weight", "output.weight", "output_norm.weight"].map(|n| fnv(&all(&c, n).1));
        assert_eq!(digests, [0xcfb9_5fb7_e5ef_5665, 0xc84d_d6fb_6c17_8947, 0x5adf_f698_9e98_ef6d], "{digests:#018x?}");
    }

    #[test]
    fn shapes_have_the_size_their_names_say() {
        let billions = |word: &str| {
            let c = Synthetic::parse(word).unwrap().container().unwrap();
            c.tensors.iter().map(super::super::Tensor::elems).sum::<u64>() as f64 / 1e9
        };
        for (word, size) in [
            ("llama-58m", 0.0579),
            ("llama-1b", 1.1),
            ("llama-3b", 3.21),
            ("llama-7b:q8_0", 6.74),
            ("llama-8b", 8.03),
            ("phi3-mini", 3.82),
            ("qwen2-0.5b", 0.494),
            ("qwen2-1.5b", 1.544),
            ("qwen3-1.7b:f16", 1.721),
            ("chatglm-6b", 6.244),
            ("glm4-9b", 9.400),
            ("smollm3-3b", 3.075),
            ("olmo2-7b", 7.299),
            ("exaone4-1.2b", 1.280),
            ("gemma2-2b", 2.614),
            ("gemma3-270m", 0.268),
            ("gemma3-1b", 1.000),
            ("gemma4-e2b", 4.629),
            ("gemma4-26b-a4b", 25.23),
            ("granite-2b", 2.534),
            ("mixtral-8x7b", 46.70),
            ("qwen3moe-1b", 0.97),
            ("qwen3moe-30b", 30.53),
            // without the layer that makes a vector of the first token's
            ("minilm-l6", 0.02257),
            ("bge-base", 0.1089),
            ("bge-large:f16", 0.3341),
            ("nomic-embed", 0.1367),
        ] {
            assert!((billions(word) / size - 1.0).abs() < 0.01, "{word}: {}", billions(word));
        }
        // every one of them can be loaded as far as a header tells
        for shape in SHAPES {
            Synthetic::parse(shape.name).unwrap().container().unwrap();
        }
        assert!(Synthetic::parse("llama-9b").is_err() && Synthetic::parse("llama-1b:q3_k_x").is_err());
    }
}

//! Models by size: those that are known by a name, and what their parts measure.

use super::Arch;

/// How much wider an EmbeddingGemma's layers behind pooling are between them.
pub(super) const BETWEEN: u32 = 4;

/// Streams of a token that no layer of Gemma 3n works on.
pub(super) const OTHERS: u64 = 3;

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

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uneven {
    /// elements of a head in layers with a window; 0: as in the others, and so is all else
    pub head_dim: u32,
    /// key-value heads in layers with a window
    pub kv_heads: u32,
    /// one layer in so many has no window
    pub period: u32,
    /// layers at the end without keys and values of their own
    pub sharing: u32,
    /// times the others' width that the feed-forwards of these are wide
    pub wider: u32,
    /// elements of a token's vector for each layer; 0: there is none
    pub embedding: u32,
    /// whether layers without a window have their keys for values
    pub equal: bool,
}

impl Uneven {
    /// Of a model without.
    pub const NONE: Uneven =
        Uneven { head_dim: 0, kv_heads: 0, period: 0, sharing: 0, wider: 1, embedding: 0, equal: false };
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
pub const SHAPES: [Shape; 64] = [
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
    Shape {
        head_dim: 256,
        window: 512,
        ..shape("embeddinggemma-300m", Arch::GemmaEmbedding, [768, 24, 1152, 3, 1, 262_144, 2048], true)
    },
    Shape { window: 128, ..shape("modernbert-base", Arch::ModernBert, [768, 22, 1152, 12, 12, 50_368, 8192], true) },
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
    shape("bge-m3", Arch::Bert, [1024, 24, 4096, 16, 16, 250_002, 8192], false),
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

//! The families that can be made up, and what their layers have.

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
    /// latent attention; experts, and one that all tokens meet; in groups where queries have a rank, the larger form with sigmoids and a bias
    DeepSeek2,
    /// an encoder: layer norms behind the sums, biases everywhere, gelu without a gate, learned positions
    Bert,
    /// an encoder: layer norms behind the sums, a gate, rotation
    NomicBert,
    /// an encoder: a Gemma 3's layers, and two behind pooling
    GemmaEmbedding,
    /// an encoder: layer norms before attention and the feed-forward, but for the first, and without biases; one layer in three
    /// without a window
    ModernBert,
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
            Arch::GemmaEmbedding => "gemma-embedding",
            Arch::ModernBert => "modern-bert",
        }
    }

    /// Whether every token of a text sees all of it, and nothing is generated.
    pub fn is_encoder(self) -> bool {
        self.is_bert() || matches!(self, Arch::GemmaEmbedding | Arch::ModernBert)
    }

    /// Whether it is an encoder with layer norms behind the sums.
    pub fn is_bert(self) -> bool {
        matches!(self, Arch::Bert | Arch::NomicBert)
    }

    /// Whether its layers are those of Gemma 3.
    pub fn is_gemma3(self) -> bool {
        matches!(self, Arch::Gemma3 | Arch::GemmaEmbedding)
    }

    /// Whether queries, keys and values lie in one tensor.
    pub fn has_fused_qkv(self) -> bool {
        matches!(self, Arch::Phi3 | Arch::ChatGlm | Arch::Gpt2 | Arch::Falcon | Arch::ModernBert)
    }

    /// Whether gate and up lie in one tensor.
    pub fn has_fused_gate(self) -> bool {
        matches!(self, Arch::Phi3 | Arch::ChatGlm | Arch::Glm4 | Arch::ModernBert)
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
        use Arch::{Cohere2, CommandR, Falcon, Gpt2, ModernBert, Phi2, StableLm, StarCoder2};
        matches!(self, StarCoder2 | StableLm | Cohere2 | CommandR | Phi2 | Gpt2 | Falcon | ModernBert) || self.is_bert()
    }

    /// Whether norms have biases.
    pub fn has_norm_bias(self) -> bool {
        self.has_layer_norm() && !matches!(self, Arch::Cohere2 | Arch::CommandR | Arch::ModernBert)
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
        matches!(self, Arch::Olmo2 | Arch::Exaone4 | Arch::Glm4 | Arch::Gemma2) || self.is_gemma3() || self.is_uneven()
    }

    /// The name of the norm before the feed-forward.
    pub(super) fn ffn_norm(self) -> &'static str {
        if self.is_hybrid() || matches!(self, Arch::Glm4Moe | Arch::GptOss) {
            "post_attention_norm.weight"
        } else {
            "ffn_norm.weight"
        }
    }

    /// The RoPE base of made-up checkpoints.
    pub fn made_up_base(self) -> f32 {
        match self {
            Arch::Gemma3 | Arch::GemmaEmbedding | Arch::Gemma3n | Arch::Gemma4 => 1e6,
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

/// The name of a GGUF file's norms' epsilon, behind the architecture.
pub fn epsilon_key(arch: Arch) -> &'static str {
    if arch.has_layer_norm() { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" }
}

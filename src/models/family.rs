//! The families of models, and what follows from the family alone.

/// Which model a file's tensors make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Llama, Mistral, TinyLlama, SmolLM
    Llama,
    /// Phi-3, Phi-3.5, Phi-4
    Phi3,
    /// Qwen2, Qwen2.5
    Qwen2,
    /// Qwen3, dense
    Qwen3,
    /// ChatGLM2, ChatGLM3, GLM-4
    ChatGlm,
    /// SmolLM3
    SmolLm3,
    /// OLMo 2, OLMo 3
    Olmo2,
    /// EXAONE 4
    Exaone4,
    /// GLM-4-0414, GLM-Z1
    Glm4,
    /// Gemma 2
    Gemma2,
    /// Gemma 3, its text
    Gemma3,
    /// EmbeddingGemma
    GemmaEmbedding,
    /// ModernBERT, granite-embedding R2
    ModernBert,
    /// Gemma 3n, its text
    Gemma3n,
    /// Gemma 4, its text
    Gemma4,
    /// Granite 3 and 4, dense
    Granite,
    /// Qwen1.5-MoE, Qwen2-57B-A14B
    Qwen2Moe,
    /// Qwen3-30B-A3B, Qwen3-235B-A22B
    Qwen3Moe,
    /// Granite 3, of experts
    GraniteMoe,
    /// GLM-4.5, GLM-4.6
    Glm4Moe,
    /// gpt-oss
    GptOss,
    /// StarCoder2
    StarCoder2,
    /// StableLM 3B, StableLM 2
    StableLm,
    /// Command R7B, Command A
    Cohere2,
    /// Command R, Command R+, Aya
    CommandR,
    /// Phi-1, Phi-1.5, Phi-2
    Phi2,
    /// GPT-2
    Gpt2,
    /// Falcon
    Falcon,
    /// Qwen3.5, dense
    Qwen35,
    /// Qwen3.5, of experts
    Qwen35Moe,
    /// Qwen3-Next
    Qwen3Next,
    /// LFM2
    Lfm2,
    /// LFM2, of experts
    Lfm2Moe,
    /// Mamba-2, Mamba-Codestral
    Mamba2,
    /// DeepSeek-V2-Lite, V3 and R1, Moonlight, GLM-4.7-Flash
    DeepSeek2,
    /// BERT, RoBERTa, XLM-RoBERTa: bge, MiniLM, e5
    Bert,
    /// nomic-embed-text
    NomicBert,
}

/// Where a layer norms what goes through attention and through the feed-forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norms {
    /// before
    Before,
    /// behind, before the sum
    After,
    /// both
    Around,
}

/// Norms of queries and keys before they are rotated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadNorms {
    /// none
    None,
    /// of each head by itself
    Each,
    /// of all heads together
    Whole,
}

/// By which table a layer rotates its queries and keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// by none: they stay as they are
    None,
    /// the model's
    Main,
    /// that of layers with a window
    Local,
}

/// In a model where every fourth layer is of another kind, the layers between them.
const PERIOD: usize = 4;

impl Family {
    /// Every family.
    pub const ALL: [Family; 37] = [
        Family::Llama,
        Family::Phi3,
        Family::Qwen2,
        Family::Qwen3,
        Family::ChatGlm,
        Family::SmolLm3,
        Family::Olmo2,
        Family::Exaone4,
        Family::Glm4,
        Family::Gemma2,
        Family::Gemma3,
        Family::GemmaEmbedding,
        Family::ModernBert,
        Family::Gemma3n,
        Family::Gemma4,
        Family::Granite,
        Family::Qwen2Moe,
        Family::Qwen3Moe,
        Family::GraniteMoe,
        Family::Glm4Moe,
        Family::GptOss,
        Family::StarCoder2,
        Family::StableLm,
        Family::Cohere2,
        Family::CommandR,
        Family::Phi2,
        Family::Gpt2,
        Family::Falcon,
        Family::Qwen35,
        Family::Qwen35Moe,
        Family::Qwen3Next,
        Family::Lfm2,
        Family::Lfm2Moe,
        Family::Mamba2,
        Family::DeepSeek2,
        Family::Bert,
        Family::NomicBert,
    ];

    /// GGUF's `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Phi3 => "phi3",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::ChatGlm => "chatglm",
            Family::SmolLm3 => "smollm3",
            Family::Olmo2 => "olmo2",
            Family::Exaone4 => "exaone4",
            Family::Glm4 => "glm4",
            Family::Gemma2 => "gemma2",
            Family::Gemma3 => "gemma3",
            Family::GemmaEmbedding => "gemma-embedding",
            Family::ModernBert => "modern-bert",
            Family::Gemma3n => "gemma3n",
            Family::Gemma4 => "gemma4",
            Family::Granite => "granite",
            Family::Qwen2Moe => "qwen2moe",
            Family::Qwen3Moe => "qwen3moe",
            Family::GraniteMoe => "granitemoe",
            Family::Glm4Moe => "glm4moe",
            Family::GptOss => "gpt-oss",
            Family::StarCoder2 => "starcoder2",
            Family::StableLm => "stablelm",
            Family::Cohere2 => "cohere2",
            Family::CommandR => "command-r",
            Family::Phi2 => "phi2",
            Family::Gpt2 => "gpt2",
            Family::Falcon => "falcon",
            Family::Qwen35 => "qwen35",
            Family::Qwen35Moe => "qwen35moe",
            Family::Qwen3Next => "qwen3next",
            Family::Lfm2 => "lfm2",
            Family::Lfm2Moe => "lfm2moe",
            Family::Mamba2 => "mamba2",
            Family::DeepSeek2 => "deepseek2",
            Family::Bert => "bert",
            Family::NomicBert => "nomic-bert",
        }
    }

    /// By GGUF's name.
    pub(super) fn of_gguf(arch: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|f| f.name() == arch)
    }

    /// By `model_type` of config.json, which has further names.
    pub(super) fn of_config(model_type: &str) -> Option<Family> {
        match model_type {
            "mistral" | "mixtral" | "smollm" => Some(Family::Llama),
            "glm" => Some(Family::ChatGlm),
            "olmo3" => Some(Family::Olmo2),
            "gemma3_text" => Some(Family::Gemma3),
            "gemma3n_text" => Some(Family::Gemma3n),
            "gemma4_text" | "gemma4_unified_text" => Some(Family::Gemma4),
            "qwen2_moe" => Some(Family::Qwen2Moe),
            "qwen3_moe" => Some(Family::Qwen3Moe),
            "granitemoeshared" => Some(Family::GraniteMoe),
            "glm4_moe" => Some(Family::Glm4Moe),
            "gpt_oss" => Some(Family::GptOss),
            "qwen3_5_text" => Some(Family::Qwen35),
            "qwen3_5_moe_text" => Some(Family::Qwen35Moe),
            "qwen3_next" => Some(Family::Qwen3Next),
            "lfm2_moe" => Some(Family::Lfm2Moe),
            "nomic_bert" => Some(Family::NomicBert),
            "modernbert" => Some(Family::ModernBert),
            "roberta" | "xlm-roberta" | "camembert" => Some(Family::Bert),
            "cohere" => Some(Family::CommandR),
            "phi" => Some(Family::Phi2),
            "deepseek_v2" | "deepseek_v3" | "kimi_k2" | "glm4_moe_lite" => Some(Family::DeepSeek2),
            other => Family::of_gguf(other),
        }
    }

    /// The names of all families, for messages.
    pub(super) fn known() -> String {
        Family::ALL.map(Family::name).join(", ")
    }

    /// Where the norms of a layer are.
    pub fn norms(self) -> Norms {
        match self {
            Family::Olmo2 | Family::Exaone4 => Norms::After,
            Family::Glm4 => Norms::Around,
            family if family.is_gemma() => Norms::Around,
            _ => Norms::Before,
        }
    }

    /// The norms of queries and keys.
    pub fn head_norms(self) -> HeadNorms {
        match self {
            Family::Qwen3 | Family::Qwen3Moe | Family::Glm4Moe | Family::Exaone4 | Family::Gemma3 => HeadNorms::Each,
            Family::GemmaEmbedding | Family::Gemma3n | Family::Gemma4 => HeadNorms::Each,
            family if family.is_hybrid() || family.is_lfm2() => HeadNorms::Each,
            Family::Olmo2 => HeadNorms::Whole,
            _ => HeadNorms::None,
        }
    }

    /// Whether some of its layers are recurrent, gated delta nets, and the others of attention behind a gate.
    pub fn is_hybrid(self) -> bool {
        matches!(self, Family::Qwen35 | Family::Qwen35Moe | Family::Qwen3Next)
    }

    /// Whether it is an LFM2, most of whose layers are short convolutions.
    pub fn is_lfm2(self) -> bool {
        matches!(self, Family::Lfm2 | Family::Lfm2Moe)
    }

    /// Whether all its layers are state spaces: it has neither attention nor feed-forwards.
    pub fn is_state_space(self) -> bool {
        self == Family::Mamba2
    }

    /// Whether it is one of Gemma's.
    pub fn is_gemma(self) -> bool {
        matches!(self, Family::Gemma2 | Family::Gemma3n | Family::Gemma4) || self.is_gemma3()
    }

    /// Whether its layers are those of Gemma 3.
    pub fn is_gemma3(self) -> bool {
        matches!(self, Family::Gemma3 | Family::GemmaEmbedding)
    }

    /// Whether the feed-forward's gate goes through gelu rather than silu.
    pub fn has_gelu(self) -> bool {
        self.is_gemma() || self == Family::ModernBert
    }

    /// Whether it is one of encoders: every token of a text sees all of it, and there are no logits.
    pub fn is_encoder(self) -> bool {
        self.is_bert() || matches!(self, Family::GemmaEmbedding | Family::ModernBert)
    }

    /// Whether it is one of encoders with layer norms behind the sums.
    pub fn is_bert(self) -> bool {
        matches!(self, Family::Bert | Family::NomicBert)
    }

    /// Whether the embedding goes through a norm before the first layer.
    pub fn norms_embedding(self) -> bool {
        self.is_bert() || self == Family::ModernBert
    }

    /// Whether its norms are layer norms, which subtract the mean.
    pub fn has_layer_norm(self) -> bool {
        use Family::{Cohere2, CommandR, Falcon, Gpt2, ModernBert, Phi2, StableLm, StarCoder2};
        matches!(self, StarCoder2 | StableLm | Cohere2 | CommandR | Phi2 | Gpt2 | Falcon | ModernBert) || self.is_bert()
    }

    /// Whether its norms have biases, of those with layer norms.
    pub fn has_norm_bias(self) -> bool {
        !self.is_cohere() && self != Family::ModernBert
    }

    /// Whether it is one of Cohere's.
    pub fn is_cohere(self) -> bool {
        matches!(self, Family::Cohere2 | Family::CommandR)
    }

    /// Whether attention and feed-forward go side by side, in every model of the family.
    pub fn is_parallel(self) -> bool {
        self.is_cohere() || matches!(self, Family::Phi2 | Family::Falcon)
    }

    /// Whether the feed-forward has a gate.
    pub fn is_gated(self) -> bool {
        !matches!(self, Family::StarCoder2 | Family::Phi2 | Family::Gpt2 | Family::Falcon | Family::Bert)
    }

    /// Whether gelu is by the error function, not in its tanh form.
    pub fn has_erf(self) -> bool {
        matches!(self, Family::Falcon | Family::Bert | Family::ModernBert)
    }

    /// Whether a row for each position is added to the embedding.
    pub fn learns_positions(self) -> bool {
        matches!(self, Family::Gpt2 | Family::Bert)
    }

    /// Whether a part of a head may be rotated, which a GGUF file must then say.
    pub fn turns_part(self) -> bool {
        self.turns_half() || self.is_hybrid() || matches!(self, Family::StableLm | Family::Phi2)
    }

    /// The field of config.json that names the feed-forward's function, and the names it may have, the first unless said.
    pub fn activation(self) -> (&'static str, &'static [&'static str]) {
        const TANH: [&str; 3] = ["gelu_pytorch_tanh", "gelu_new", "gelu_fast"];
        match self {
            family if family.is_gemma() => ("hidden_activation", &TANH[..1]),
            Family::StarCoder2 | Family::Phi2 => ("hidden_act", &TANH),
            Family::Gpt2 => ("activation_function", &TANH),
            Family::Falcon => ("activation", &["gelu"]),
            Family::Bert => ("hidden_act", &["gelu"]),
            // of which `Hyper::silu` is the second
            Family::ModernBert => ("hidden_activation", &["gelu", "silu"]),
            _ => ("hidden_act", &["silu"]),
        }
    }

    /// What config.json of this family calls a field.
    pub fn config_key(self, key: &str) -> &str {
        match (self, key) {
            (Family::Gpt2, "hidden_size") => "n_embd",
            (Family::Gpt2, "num_attention_heads") => "n_head",
            (Family::Gpt2, "num_hidden_layers") => "n_layer",
            (Family::Gpt2, "max_position_embeddings") => "n_positions",
            (Family::Gpt2, "intermediate_size") => "n_inner",
            (Family::Falcon, "intermediate_size") => "ffn_hidden_size",
            (Family::Falcon, "num_key_value_heads") => "num_kv_heads",
            (Family::StarCoder2, "rms_norm_eps") => "norm_epsilon",
            (Family::Gpt2 | Family::Falcon, "rms_norm_eps") => "layer_norm_epsilon",
            (Family::ModernBert, "rms_norm_eps") => "norm_eps",
            (Family::ModernBert, "sliding_window") => "local_attention",
            (Family::ModernBert, "sliding_window_pattern") => "global_attn_every_n_layers",
            (Family::ModernBert, "rope_theta") => "global_rope_theta",
            (Family::ModernBert, "rope_local_base_freq") => "local_rope_theta",
            (family, "rms_norm_eps") if family.is_lfm2() => "norm_eps",
            (family, "rms_norm_eps") if family.has_layer_norm() => "layer_norm_eps",
            (_, key) => key,
        }
    }

    /// The GGUF key of the norms' epsilon, behind the architecture.
    pub fn epsilon_key(self) -> &'static str {
        if self.has_layer_norm() { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" }
    }

    /// Fields of config.json that a model of this family may have, what they must be, and what they are where they are not
    /// there.
    pub(super) fn flags(self) -> &'static [(&'static str, bool, bool)] {
        match self {
            Family::Phi2 => &[("qk_layernorm", false, false)],
            Family::Gpt2 => &[
                ("scale_attn_weights", true, true),
                ("scale_attn_by_inverse_layer_idx", false, false),
                ("add_cross_attention", false, false),
            ],
            Family::Falcon => &[("alibi", false, false)],
            Family::ModernBert => {
                &[("norm_bias", false, false), ("attention_bias", false, false), ("mlp_bias", false, false)]
            }
            Family::Gemma3n => &[("attention_bias", false, false), ("altup_correct_scale", true, true)],
            Family::Gemma4 => &[("attention_bias", false, false)],
            family if family.is_hybrid() => &[("attention_bias", false, false), ("attn_output_gate", true, true)],
            family if family.is_lfm2() => &[("conv_bias", false, false)],
            Family::Mamba2 => &[("use_bias", false, false), ("rms_norm", true, true)],
            Family::DeepSeek2 => {
                &[("attention_bias", false, false), ("mlp_bias", false, false), ("rope_interleave", true, true)]
            }
            _ => &[],
        }
    }

    /// The field that says whether linears have biases, and what it is where it is not there; of those with layer norms.
    pub(super) fn bias_flag(self) -> Option<(&'static str, bool)> {
        match self {
            Family::StarCoder2 => Some(("use_bias", true)),
            Family::StableLm => Some(("use_qkv_bias", false)),
            Family::Cohere2 | Family::CommandR | Family::Glm4Moe => Some(("attention_bias", false)),
            Family::GptOss => Some(("attention_bias", true)),
            Family::Falcon => Some(("bias", false)),
            _ => None,
        }
    }

    /// Whether a query head has a sink, a score of its own in every layer's softmax.
    pub fn has_sinks(self) -> bool {
        self == Family::GptOss
    }

    /// Whether YaRN's ramp ends at whole pairs; of those where it does not, no file says so.
    pub fn rounds_ramp(self) -> bool {
        self != Family::GptOss
    }

    /// Whether a Hugging Face directory keeps of norms what they differ from 1 by.
    pub fn norms_less_one(self) -> bool {
        self == Family::Gemma2 || self.is_gemma3() || self.is_hybrid()
    }

    /// Whether a GGUF file has rotated pairs side by side, and a Hugging Face directory halves: rows of queries and keys
    /// are in another order.
    pub fn is_permuted(self) -> bool {
        matches!(self, Family::Llama | Family::SmolLm3) || self.has_scales()
    }

    /// Whether embedding, scores, what is added to x, and logits are multiplied with numbers of the file.
    pub fn has_scales(self) -> bool {
        matches!(self, Family::Granite | Family::GraniteMoe)
    }

    /// Whether rotated pairs are (i, i + n_rot/2) rather than (2i, 2i+1).
    pub(super) fn half_split(self, gguf: bool) -> bool {
        !(matches!(self, Family::ChatGlm | Family::Glm4 | Family::DeepSeek2)
            || self.is_cohere()
            || gguf && self.is_permuted())
    }

    /// Whether one half of a head is rotated, in every released model.
    pub(super) fn turns_half(self) -> bool {
        matches!(self, Family::ChatGlm | Family::Glm4 | Family::Glm4Moe)
    }

    /// One layer in so many sees everything, where the others have a window and nothing says which; `None`: all have it.
    pub(super) fn window_period(self) -> Option<usize> {
        match self {
            Family::Olmo2 | Family::Exaone4 | Family::Cohere2 => Some(PERIOD),
            Family::Gemma2 | Family::GptOss => Some(2),
            Family::Gemma3 | Family::GemmaEmbedding | Family::Gemma4 => Some(6),
            Family::Gemma3n => Some(5),
            Family::ModernBert => Some(3),
            _ => None,
        }
    }

    /// Whether layers with a window are rotated by a table of their own.
    pub fn turns_windows(self) -> bool {
        self == Family::Olmo2 || self.has_own_base()
    }

    /// Whether that table has a base of its own, for which GGUF has a key.
    pub fn has_own_base(self) -> bool {
        self.is_gemma3() || matches!(self, Family::Gemma3n | Family::Gemma4 | Family::ModernBert)
    }

    /// Whether of `window_period` layers the first sees everything, not the last.
    pub(super) fn sees_all_first(self) -> bool {
        self == Family::ModernBert
    }

    /// What a file's window is here: of an encoder, whose tokens see half of it on either side (GGUF's `sliding_window` / 2;
    /// transformers makes it so when it reads a config), how many positions a token sees on one side, its own among them.
    pub(super) fn window(self, said: usize) -> usize {
        if self.is_encoder() { said / 2 + 1 } else { said }
    }

    /// What a file says of a window.
    pub fn said_window(self, window: usize) -> usize {
        if self.is_encoder() { (window - 1) * 2 } else { window }
    }

    /// How a file of this family that says nothing of it rotates each of its layers; empty: all by the model's table.
    /// `windows`: whether a layer has a window; empty: the model has none.
    pub(super) fn rotations(self, layers: usize, windows: &[bool]) -> Vec<Rotation> {
        let by_window = |with, without| windows.iter().map(|w| if *w { with } else { without }).collect();
        match self {
            Family::SmolLm3 => {
                (1..=layers).map(|l| if l % PERIOD == 0 { Rotation::None } else { Rotation::Main }).collect()
            }
            family if family.turns_windows() => by_window(Rotation::Local, Rotation::Main),
            Family::Exaone4 | Family::Cohere2 => by_window(Rotation::Main, Rotation::None),
            family if family.learns_positions() || family.is_state_space() => vec![Rotation::None; layers],
            _ => vec![],
        }
    }
}

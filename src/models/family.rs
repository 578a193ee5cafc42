//! The families of decoders, and what follows from the family alone.

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
    /// Granite 3 and 4, dense
    Granite,
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
    pub const ALL: [Family; 12] = [
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
        Family::Granite,
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
            Family::Granite => "granite",
        }
    }

    /// By GGUF's name.
    pub(super) fn of_gguf(arch: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|f| f.name() == arch)
    }

    /// By `model_type` of config.json, which has further names.
    pub(super) fn of_config(model_type: &str) -> Option<Family> {
        match model_type {
            "mistral" | "smollm" => Some(Family::Llama),
            "glm" => Some(Family::ChatGlm),
            "olmo3" => Some(Family::Olmo2),
            "gemma3_text" => Some(Family::Gemma3),
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
            Family::Glm4 | Family::Gemma2 | Family::Gemma3 => Norms::Around,
            _ => Norms::Before,
        }
    }

    /// The norms of queries and keys.
    pub fn head_norms(self) -> HeadNorms {
        match self {
            Family::Qwen3 | Family::Exaone4 | Family::Gemma3 => HeadNorms::Each,
            Family::Olmo2 => HeadNorms::Whole,
            _ => HeadNorms::None,
        }
    }

    /// Whether it is one of Gemma's.
    pub fn is_gemma(self) -> bool {
        matches!(self, Family::Gemma2 | Family::Gemma3)
    }

    /// Whether the feed-forward's gate goes through gelu (its tanh form) rather than silu.
    pub fn has_gelu(self) -> bool {
        self.is_gemma()
    }

    /// Whether a Hugging Face directory keeps of norms what they differ from 1 by.
    pub fn norms_less_one(self) -> bool {
        self.is_gemma()
    }

    /// Whether a GGUF file has rotated pairs side by side, and a Hugging Face directory halves: rows of queries and keys
    /// are in another order.
    pub fn is_permuted(self) -> bool {
        matches!(self, Family::Llama | Family::SmolLm3 | Family::Granite)
    }

    /// Whether rotated pairs are (i, i + n_rot/2) rather than (2i, 2i+1).
    pub(super) fn half_split(self, gguf: bool) -> bool {
        !(matches!(self, Family::ChatGlm | Family::Glm4) || gguf && self.is_permuted())
    }

    /// Whether one half of a head is rotated, in every released model.
    pub(super) fn turns_half(self) -> bool {
        matches!(self, Family::ChatGlm | Family::Glm4)
    }

    /// One layer in so many sees everything, where the others have a window and nothing says which; `None`: all have it.
    pub(super) fn window_period(self) -> Option<usize> {
        match self {
            Family::Olmo2 | Family::Exaone4 => Some(PERIOD),
            Family::Gemma2 => Some(2),
            Family::Gemma3 => Some(6),
            _ => None,
        }
    }

    /// How a file of this family that says nothing of it rotates each of its layers; empty: all by the model's table.
    /// `windows`: whether a layer has a window; empty: the model has none.
    pub(super) fn rotations(self, layers: usize, windows: &[bool]) -> Vec<Rotation> {
        let by_window = |with, without| windows.iter().map(|w| if *w { with } else { without }).collect();
        match self {
            Family::SmolLm3 => {
                (1..=layers).map(|l| if l % PERIOD == 0 { Rotation::None } else { Rotation::Main }).collect()
            }
            Family::Olmo2 | Family::Gemma3 => by_window(Rotation::Local, Rotation::Main),
            Family::Exaone4 => by_window(Rotation::Main, Rotation::None),
            _ => vec![],
        }
    }
}

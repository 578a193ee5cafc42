//! A model by shape alone, generated as it is read: nothing is downloaded and no file is written.
//!
//! The container is a GGUF file of which only the header exists; the bytes of a tensor are computed when they are asked
//! for. Byte `i` of a tensor depends on the seed, the tensor's name, its type and `i`, by integer operations alone, so
//! the model is the same on every machine. Blocks of quantised types are made directly (random codes, scales that give
//! the deviation wanted), which is many times faster than encoding floats. Weights are scaled so that activations stay
//! finite through every layer and logits spread like a trained model's; their mean is zero. There is no tokeniser.

mod arch;
mod encoder;
mod keys;
mod noise;
mod shapes;
mod tensors;
mod uneven;

pub use arch::{Arch, epsilon_key};
pub use noise::{Noise, divisor};
pub use shapes::{Delta, Experts, Latent, SHAPES, Shape, Uneven};
pub use tensors::{Role, Tensor, dims};

use noise::Generator;

use super::error::FormatError;
use super::meta::{Meta, Value};
use super::source::{Generated, Source};
use super::{Container, Dtype, gguf, gguf_write, mix};
use crate::blocks::BlockType;
use std::path::PathBuf;

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
            Arch::Gemma3 | Arch::GemmaEmbedding | Arch::Gemma3n | Arch::Gemma4 => (1e6, 1e-6),
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
            Arch::ModernBert => (1.6e5, 1e-5),
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
            ("bge-m3", 0.5668),
            ("nomic-embed", 0.1367),
            ("embeddinggemma-300m", 0.3076),
            ("modernbert-base", 0.149),
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

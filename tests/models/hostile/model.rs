//! Small llama models, tensor by tensor, as GGUF bytes: what no trained model is.

use isobit::internals::blocks::BlockType;
use isobit::internals::formats::Container;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A llama of one head size, with tensors that a test fills.
pub struct Model {
    pub layers: usize,
    pub dim: usize,
    pub heads: usize,
    pub ffn: usize,
    pub vocab: usize,
    pub context: usize,
    pub n_rot: usize,
    /// of the matrices
    pub ty: BlockType,
    /// by name, `[rows][columns]`
    pub tensors: BTreeMap<String, (usize, Vec<f32>)>,
}

impl Model {
    /// Zeros, and norms of 1. `shape`: layers, dim, heads, ffn, vocab, context.
    pub fn zeros(ty: BlockType, shape: [usize; 6], n_rot: usize) -> Model {
        let [layers, dim, heads, ffn, vocab, context] = shape;
        let mut m = Model { layers, dim, heads, ffn, vocab, context, n_rot, ty, tensors: BTreeMap::new() };
        let mut put = |name: String, rows: usize, cols: usize, x: f32| {
            m.tensors.insert(name, (cols, vec![x; rows * cols]));
        };
        put("token_embd.weight".into(), vocab, dim, 0.0);
        put("output.weight".into(), vocab, dim, 0.0);
        put("output_norm.weight".into(), 1, dim, 1.0);
        for l in 0..layers {
            for name in ["attn_norm", "ffn_norm"] {
                put(format!("blk.{l}.{name}.weight"), 1, dim, 1.0);
            }
            for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
                put(format!("blk.{l}.{name}.weight"), dim, dim, 0.0);
            }
            for (name, rows, cols) in [("ffn_gate", ffn, dim), ("ffn_up", ffn, dim), ("ffn_down", dim, ffn)] {
                put(format!("blk.{l}.{name}.weight"), rows, cols, 0.0);
            }
        }
        m
    }

    /// Every matrix filled with small numbers of both signs.
    pub fn noise(mut self, scale: f32) -> Model {
        let mut state = 7u64;
        for (name, (_, values)) in &mut self.tensors {
            if name.contains("norm") {
                continue;
            }
            for v in values {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *v = ((state >> 40) as f32 / 8_388_608.0 - 1.0) * scale;
            }
        }
        self
    }

    /// Scales and offsets for a c8 cache: 1 and 0.
    pub fn channels(mut self) -> Model {
        for l in 0..self.layers {
            for name in ["attn_k", "attn_v"] {
                for (suffix, x) in [("scale", 1.0), ("offset", 0.0)] {
                    self.tensors.insert(format!("blk.{l}.{name}.kv_cache_{suffix}"), (self.dim, vec![x; self.dim]));
                }
            }
        }
        self
    }

    /// Element `[row][column]` of a tensor.
    pub fn at(&mut self, name: &str, row: usize, column: usize) -> &mut f32 {
        let (cols, values) = self.tensors.get_mut(name).unwrap_or_else(|| panic!("no tensor {name}"));
        &mut values[row * *cols + column]
    }

    /// All elements of a tensor.
    pub fn all(&mut self, name: &str) -> &mut [f32] {
        &mut self.tensors.get_mut(name).unwrap_or_else(|| panic!("no tensor {name}")).1
    }

    /// The file (GGUF version 3), without a tokenizer.
    pub fn bytes(&self) -> Vec<u8> {
        fn string(out: &mut Vec<u8>, s: &str) {
            out.extend((s.len() as u64).to_le_bytes());
            out.extend(s.as_bytes());
        }
        let numbers = [
            ("block_count", self.layers),
            ("embedding_length", self.dim),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.heads),
            ("context_length", self.context),
            ("rope.dimension_count", self.n_rot),
            ("vocab_size", self.vocab),
        ];
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((numbers.len() as u64 + 2).to_le_bytes());
        string(&mut out, "general.architecture");
        out.extend(8u32.to_le_bytes());
        string(&mut out, "llama");
        for (key, value) in numbers {
            string(&mut out, &format!("llama.{key}"));
            out.extend(4u32.to_le_bytes());
            out.extend((value as u32).to_le_bytes());
        }
        string(&mut out, "llama.attention.layer_norm_rms_epsilon");
        out.extend(6u32.to_le_bytes());
        out.extend(1e-5f32.to_le_bytes());
        let mut data = Vec::new();
        for (name, (cols, values)) in &self.tensors {
            let vector = name.contains("norm") || name.contains("kv_cache");
            let ty = if vector { BlockType::F32 } else { self.ty };
            let mut dims = vec![*cols as u64];
            if values.len() > *cols || !vector {
                dims.push((values.len() / cols) as u64);
            }
            string(&mut out, name);
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(match ty {
                BlockType::F32 => 0u32.to_le_bytes(),
                BlockType::F16 => 1u32.to_le_bytes(),
                BlockType::Q8_0 => 8u32.to_le_bytes(),
                other => panic!("no number for {}", other.name()),
            });
            out.extend((data.len() as u64).to_le_bytes());
            for row in values.chunks(*cols) {
                let mut bytes = vec![0; ty.row_bytes(*cols).expect("whole blocks")];
                ty.encode_row(row, &mut bytes);
                data.extend(bytes);
            }
            data.resize(data.len().next_multiple_of(32), 0);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(data);
        out
    }

    /// The same, opened.
    pub fn open(&self) -> Container {
        Container::from_bytes("hostile.gguf", Cow::Owned(self.bytes())).unwrap_or_else(|e| panic!("{e}"))
    }
}

//! Encoders by shape: BERT and nomic-embed-text, and what files of EmbeddingGemma and ModernBERT say.

use super::shapes::BETWEEN;
use super::{Arch, Role, Shape, Tensor};
use crate::formats::meta::Value;

/// Types of tokens that the released models have rows for.
const TYPES: u64 = 2;

/// GGUF's number of the mean.
const MEAN: u32 = 1;

impl Shape {
    /// Every tensor of an encoder in the order of a GGUF file.
    pub(super) fn encoder_tensors(&self) -> Vec<Tensor> {
        let [dim, vocab, ffn, context] = [self.dim, self.vocab, self.ffn, self.ctx].map(u64::from);
        let nomic = self.arch == Arch::NomicBert;
        let mut list = Vec::new();
        let mut add = |name: String, rows, cols, std, role| list.push(Tensor { name, rows, stack: 1, cols, std, role });
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        let matrices = |i| {
            let raised = Role::Raised(i);
            let attention: &[(&str, u64, u64, Role)] = match nomic {
                true => &[("attn_qkv", 3 * dim, dim, raised)],
                false => &[
                    ("attn_q", dim, dim, Role::Plain),
                    ("attn_k", dim, dim, Role::Plain),
                    ("attn_v", dim, dim, raised),
                ],
            };
            let gate = ("ffn_gate", ffn, dim, Role::Plain);
            let others = [
                ("attn_output", dim, dim, Role::Plain),
                ("ffn_up", ffn, dim, Role::Plain),
                ("ffn_down", dim, ffn, raised),
            ];
            [attention, &others, if nomic { std::slice::from_ref(&gate) } else { &[] }].concat()
        };
        add("token_embd.weight".into(), vocab, dim, 1.0, Role::Plain);
        add("token_types.weight".into(), TYPES, dim, 0.3, Role::Bias);
        if !nomic {
            add("position_embd.weight".into(), context, dim, 0.3, Role::Bias);
        }
        add("token_embd_norm.weight".into(), 1, dim, 0.1, Role::Norm);
        add("token_embd_norm.bias".into(), 1, dim, 0.2, Role::Bias);
        for i in 0..self.layers {
            for (part, rows, cols, role) in matrices(i) {
                add(format!("blk.{i}.{part}.weight"), rows, cols, root(cols), role);
                // nomic's linears have none
                if !nomic {
                    add(format!("blk.{i}.{part}.bias"), 1, rows, 0.2, Role::Bias);
                }
            }
            for norm in ["attn_output_norm", "layer_output_norm"] {
                add(format!("blk.{i}.{norm}.weight"), 1, dim, 0.1, Role::Norm);
                add(format!("blk.{i}.{norm}.bias"), 1, dim, 0.2, Role::Bias);
            }
        }
        list
    }

    /// GGUF's keys that encoders alone have, without the architecture.
    pub(super) fn encoder_keys(&self) -> Vec<(&'static str, Value)> {
        if !self.arch.is_encoder() {
            return vec![];
        }
        let mut keys = vec![("attention.causal", Value::Bool(false)), ("pooling_type", Value::U32(MEAN))];
        if self.arch == Arch::ModernBert {
            keys.push(("rope.freq_base_swa", Value::F32(1e4)));
            keys.push(("hidden_activation", Value::Str("gelu".into())));
        }
        if self.arch == Arch::GemmaEmbedding {
            let [inside, outside] = [self.dim * BETWEEN, self.dim].map(Value::U32);
            keys.push(("dense_2_feat_in", outside.clone()));
            keys.push(("dense_2_feat_out", inside.clone()));
            keys.push(("dense_3_feat_in", inside));
            keys.push(("dense_3_feat_out", outside));
        }
        keys
    }
}

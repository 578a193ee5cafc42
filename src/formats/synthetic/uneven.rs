//! Made-up models whose layers differ: Gemma 3n and 4.

use super::shapes::OTHERS;
use super::{Arch, Role, Shape};
use crate::formats::meta::Value;

/// Shares of gates that are dropped in the first layers of a Gemma 3n, and how many deviations above their mean others must be
/// then: of the released models, and of smaller ones.
const DROPPED: [(f64, f32); 2] = [(0.95, 1.644_853_5), (0.75, 0.674_489_74)];

impl Shape {
    /// Whether a layer has a window, in a model whose layers differ.
    pub fn has_window(&self, layer: u32) -> bool {
        self.uneven.head_dim > 0 && !(layer + 1).is_multiple_of(self.uneven.period) && layer + 1 < self.layers
    }

    /// Key-value heads of a layer, and elements of a head.
    pub fn heads_of(&self, layer: u32) -> (u32, u32) {
        if self.has_window(layer) {
            (self.uneven.kv_heads, self.uneven.head_dim)
        } else {
            (self.kv_heads, self.head_dim)
        }
    }

    /// Whether a layer has keys and values of its own.
    pub fn has_own_keys(&self, layer: u32) -> bool {
        layer + self.uneven.sharing < self.layers
    }

    /// Width of a layer's feed-forward.
    pub fn ffn_of(&self, layer: u32) -> u32 {
        if self.has_own_keys(layer) { self.ffn } else { self.ffn * self.uneven.wider }
    }

    /// GGUF's keys about what differs, without the architecture.
    pub fn uneven_keys(&self) -> Vec<(&'static str, Value)> {
        let u = self.uneven;
        if u.head_dim == 0 {
            return vec![];
        }
        let by_layer = |of: &dyn Fn(u32) -> u32| Value::I32Array((0..self.layers).map(|l| of(l) as i32).collect());
        let windows = (0..self.layers).map(|l| Value::Bool(self.has_window(l))).collect();
        if self.arch == Arch::Gemma3n {
            let bound = |l| if l < self.bounded().0 { self.bounded().1.1 } else { f32::NEG_INFINITY };
            return vec![
                ("feed_forward_length", by_layer(&|l| self.ffn_of(l))),
                ("attention.sliding_window_pattern", Value::Array(windows)),
                ("rope.freq_base_swa", Value::F32(1e4)),
                ("attention.shared_kv_layers", Value::U32(u.sharing)),
                ("embedding_length_per_layer_input", Value::U32(u.embedding)),
                ("altup.num_inputs", Value::U32(OTHERS as u32 + 1)),
                ("altup.active_idx", Value::U32(0)),
                ("activation_sparsity_scale", Value::F32Array((0..self.layers).map(bound).collect())),
            ];
        }
        vec![
            ("feed_forward_length", by_layer(&|l| self.ffn_of(l))),
            ("attention.head_count_kv", by_layer(&|l| self.heads_of(l).0)),
            ("attention.sliding_window_pattern", Value::Array(windows)),
            ("attention.key_length_swa", Value::U32(u.head_dim)),
            ("attention.value_length_swa", Value::U32(u.head_dim)),
            ("rope.dimension_count_swa", Value::U32(u.head_dim)),
            ("rope.freq_base_swa", Value::F32(1e4)),
            ("attention.shared_kv_layers", Value::U32(u.sharing)),
            ("embedding_length_per_layer_input", Value::U32(u.embedding)),
        ]
    }

    /// Layers of a Gemma 3n in front of which gates are bounded, and the share that is dropped with its quantile.
    pub fn bounded(&self) -> (u32, (f64, f32)) {
        if self.layers > 10 { (10, DROPPED[0]) } else { (self.layers / 2, DROPPED[1]) }
    }

    /// Rows of the first matrix of Gemma 3n's way beside attention.
    pub fn laurel_rank(&self) -> u32 {
        (self.dim / 4).clamp(1, 64)
    }

    /// What such a model has before its layers. `add` as for `Shape::expert_tensors`.
    pub(super) fn uneven_globals(&self, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let [dim, vocab, layers, n] = [self.dim, self.vocab, self.layers, self.uneven.embedding].map(u64::from);
        if n > 0 {
            let root = |n: u64| 1.0 / (n as f64).sqrt();
            add("per_layer_token_embd.weight".into(), vocab, layers * n, root(n), Role::Plain);
            add("per_layer_model_proj.weight".into(), layers * n, dim, 1.0, Role::Plain);
            add("per_layer_proj_norm.weight".into(), 1, n, 0.1, Role::Norm);
        }
        if self.arch == Arch::Gemma3n {
            for name in ["altup_proj.weight", "altup_unembd_proj.weight"] {
                add(name.into(), OTHERS * dim, dim, 1.0 / (dim as f64).sqrt(), Role::Plain);
            }
            return;
        }
        // a quarter of a head's pairs
        let pairs = self.head_dim / 2;
        add("rope_freqs.weight".into(), 1, pairs.into(), 0.0, Role::Turns(pairs / 4));
    }

    /// What a layer of such a model has behind its feed-forward, and with experts. `add` as for `Shape::expert_tensors`.
    pub(super) fn uneven_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let [dim, n] = [self.dim, self.uneven.embedding].map(u64::from);
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        let b = |part: &str| format!("blk.{i}.{part}");
        if self.experts.count > 0 {
            add(b("ffn_gate_inp.scale"), 1, dim, 0.2, Role::Norm);
            self.expert_tensors(i, add);
            add(b("ffn_down_exps.scale"), 1, self.experts.count.into(), 0.2, Role::Norm);
            for norm in ["pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"] {
                add(b(norm), 1, dim, 0.1, Role::Norm);
            }
        }
        if n > 0 {
            add(b("inp_gate.weight"), n, dim, root(dim), Role::Plain);
            add(b("proj.weight"), dim, n, root(n), Role::Plain);
            add(b("post_norm.weight"), 1, dim, 0.1, Role::Norm);
        }
        if self.arch == Arch::Gemma3n {
            let (streams, rank) = (OTHERS + 1, u64::from(self.laurel_rank()));
            // what tanh is taken of is as large as 0.7
            add(b("altup_router.weight"), streams, dim, 0.7 * (dim as f64).sqrt(), Role::Router);
            add(b("altup_router_norm.weight"), 1, dim, 0.1, Role::Norm);
            add(b("altup_predict_coef.weight"), streams * streams, streams, 0.1, Role::Router);
            add(b("altup_correct_coef.weight"), streams, streams, 0.3, Role::Router);
            add(b("altup_correct_scale.weight"), 1, dim, 0.2, Role::Norm);
            add(b("laurel_l.weight"), rank, dim, root(dim), Role::Router);
            add(b("laurel_r.weight"), dim, rank, root(rank), Role::Router);
            add(b("laurel_post_norm.weight"), 1, dim, 0.1, Role::Norm);
            return;
        }
        add(b("layer_output_scale.weight"), 1, 1, 0.1, Role::Norm);
    }
}

//! What a GGUF file of a shape says of its parts.

use super::{Arch, Delta, GLM_SCALE, Latent, Shape};
use crate::formats::meta::Value;

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
        // V3's, and of DeepSeek-V2 those of the larger model, whose queries have a rank
        let some = self.larger || self.arch == Arch::DeepSeek2 && self.latent.query_rank > 0;
        if some && self.experts.count.is_multiple_of(4) { (4, 2) } else { (1, 1) }
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

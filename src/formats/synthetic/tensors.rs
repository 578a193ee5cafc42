//! The tensors of a shape, in the order of a GGUF file.

use super::shapes::{BETWEEN, OTHERS};
use super::{Arch, Experts, Latent, Shape};

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
        if self.arch.is_bert() {
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
        if self.arch == Arch::ModernBert {
            add("token_embd_norm.weight".into(), 1, dim, 0.1, Role::Norm);
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
            if self.arch.norms_before() && (i > 0 || self.arch != Arch::ModernBert) {
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
                Arch::Qwen3 | Arch::Qwen3Moe | Arch::Glm4Moe | Arch::Exaone4 => Some((head, head)),
                arch if arch.is_gemma3() => Some((head, head)),
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
        if self.arch == Arch::GemmaEmbedding {
            self.dense_tensors(&mut add);
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
            t.stack = OTHERS;
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

    /// Layers behind pooling. `add` as for [`Shape::expert_tensors`].
    fn dense_tensors(&self, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
        let [dim, between] = [1, BETWEEN].map(|n| u64::from(n) * u64::from(self.dim));
        let root = |n: u64| 1.0 / (n as f64).sqrt();
        add("dense_2.weight".into(), between, dim, root(dim), Role::Plain);
        add("dense_3.weight".into(), dim, between, root(between), Role::Plain);
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
    pub(super) fn expert_tensors(&self, i: u32, add: &mut impl FnMut(String, u64, u64, f64, Role)) {
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

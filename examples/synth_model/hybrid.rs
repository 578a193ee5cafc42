//! The Hugging Face form of hybrid models: heads of values in another order, projections of a recurrent layer in one tensor.

use super::hf::Whole;
use super::{Arch, Model, Tensor};
use isobit::internals::formats::synthetic::Delta;
use serde_json::{Value, json};

/// The names of a recurrent layer's tensors, GGUF's first.
const NAMES: [(&str, &str); 10] = [
    ("attn_qkv.weight", "in_proj_qkv.weight"),
    ("attn_gate.weight", "in_proj_z.weight"),
    ("ssm_beta.weight", "in_proj_b.weight"),
    ("ssm_alpha.weight", "in_proj_a.weight"),
    ("ssm_ba.weight", "in_proj_ba.weight"),
    ("ssm_conv1d.weight", "conv1d.weight"),
    ("ssm_dt.bias", "dt_bias"),
    ("ssm_a", "A_log"),
    ("ssm_norm.weight", "norm.weight"),
    ("ssm_out.weight", "out_proj.weight"),
];

/// Whether the head of values that is number `h` in a directory has another number in a GGUF file.
fn is_tiled(arch: Arch) -> bool {
    arch != Arch::Qwen3Next
}

/// Which of a GGUF file's heads of values is number `h` of a directory: there the heads of one key are neighbours.
fn own_head(arch: Arch, d: Delta, h: usize) -> usize {
    let (keys, share) = (d.key_heads as usize, (d.heads / d.key_heads) as usize);
    if is_tiled(arch) { h % share * keys + h / share } else { h }
}

/// So many rows of a tensor, or elements of a vector.
fn slice(t: &Tensor, first: usize, n: usize) -> Tensor {
    let vector = t.rows == 1 && t.is_vector();
    let (rows, cols) = if vector { (1, n) } else { (n, t.cols) };
    let values = t.values.as_ref().map(|v| v[first..first + n].to_vec());
    let at = t.first + (if vector { first } else { first * t.cols }) as u64;
    Tensor { name: t.name.clone(), values, columns: None, first: at, rows, cols, ..*t }
}

/// `n` elements or rows of each head of values in a directory's order, those before `first` in front as they are.
fn by_heads(model: &Model, t: &Tensor, first: usize, n: usize) -> Vec<Tensor> {
    let d = model.shape.delta;
    let heads = (0..d.heads as usize).map(|h| slice(t, first + own_head(model.shape.arch, d, h) * n, n));
    (first > 0).then(|| slice(t, 0, first)).into_iter().chain(heads).collect()
}

/// A recurrent layer's tensor as the directory has it; `None` for any other. Of Qwen3-Next queries, keys, values and gate are
/// one: the first of them, which `wholes` is given beside the second.
pub fn whole(model: &Model, t: &Tensor, beside: Option<&Tensor>) -> Option<Whole> {
    if !model.shape.arch.is_hybrid() {
        return None;
    }
    let (layer, what) = t.name.strip_prefix("blk.")?.split_once('.')?;
    let (_, own) = NAMES.iter().find(|(gguf, _)| *gguf == what)?;
    let (arch, d) = (model.shape.arch, model.shape.delta);
    let (size, keys) = (d.size as usize, (d.key_heads * d.size) as usize);
    let name = |own: &str| format!("model.layers.{layer}.linear_attn.{own}");
    let joined = arch == Arch::Qwen3Next;
    let parts = match what {
        "attn_gate.weight" if joined => return None,
        "attn_qkv.weight" if joined => {
            let (z, each) = (beside?, (d.heads / d.key_heads) as usize * size);
            let parts: Vec<Tensor> = (0..d.key_heads as usize)
                .flat_map(|k| {
                    let [q, key] = [0, keys].map(|first| slice(t, first + k * size, size));
                    [q, key, slice(t, 2 * keys + k * each, each), slice(z, k * each, each)]
                })
                .collect();
            let dims = vec![t.rows + z.rows, t.cols];
            return Some(Whole { name: name("in_proj_qkvz.weight"), dims, parts });
        }
        "attn_qkv.weight" | "ssm_conv1d.weight" => by_heads(model, t, 2 * keys, size),
        "attn_gate.weight" => by_heads(model, t, 0, size),
        "ssm_beta.weight" | "ssm_alpha.weight" | "ssm_dt.bias" | "ssm_a" => by_heads(model, t, 0, 1),
        "ssm_out.weight" => {
            let columns = (0..t.cols).map(|c| own_head(arch, d, c / size) * size + c % size).collect();
            vec![Tensor { columns: Some(columns), ..slice(t, 0, t.rows) }]
        }
        _ => vec![slice(t, 0, if t.is_vector() { t.cols } else { t.rows })],
    };
    let dims = match what {
        "ssm_conv1d.weight" => vec![t.rows, 1, t.cols],
        _ if t.is_vector() => vec![t.cols],
        _ => vec![t.rows, t.cols],
    };
    Some(Whole { name: name(own), dims, parts })
}

/// What config.json says of it.
pub fn config(model: &Model, c: &mut Value) {
    let (s, d) = (&model.shape, model.shape.delta);
    let (model_type, class) = match s.arch {
        Arch::Qwen35 => ("qwen3_5_text", "Qwen3_5ForCausalLM"),
        Arch::Qwen35Moe => ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
        _ => ("qwen3_next", "Qwen3NextForCausalLM"),
    };
    c["model_type"] = model_type.into();
    c["architectures"] = json!([class]);
    c["head_dim"] = s.head_dim.into();
    let kind = |l: u32| if s.is_recurrent(l) { "linear_attention" } else { "full_attention" };
    c["layer_types"] = (0..s.layers).map(kind).collect::<Vec<_>>().into();
    c["linear_conv_kernel_dim"] = 4.into();
    c["linear_num_key_heads"] = d.key_heads.into();
    c["linear_num_value_heads"] = d.heads.into();
    c["linear_key_head_dim"] = d.size.into();
    c["linear_value_head_dim"] = d.size.into();
    c["rope_parameters"] = json!({"rope_type": "default", "rope_theta": s.arch.made_up_base(),
        "partial_rotary_factor": model.rotary, "mrope_interleaved": true, "mrope_section": [11, 11, 10]});
    if s.experts.count > 0 {
        c["shared_expert_intermediate_size"] = s.experts.shared.into();
        c["norm_topk_prob"] = true.into();
    }
    if let Some(fields) = c.as_object_mut() {
        fields.remove("rope_theta");
        fields.remove("rope_scaling");
    }
}

//! Tensor names: the Hugging Face name of a weight and its name in a GGUF file, for the decoders this engine knows.
//!
//! The one table of both spellings. `qkv_proj` and `gate_up_proj` are Phi-3's fused matrices; a GGUF file calls the
//! second `ffn_up`, so that way round the answer depends on the architecture.

/// Names outside the layers: (Hugging Face, GGUF), without `.weight`.
const GLOBAL: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Names inside a layer: (Hugging Face, GGUF), without `.weight` or `.bias`.
const LAYER: [(&str, &str); 13] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// `name` without `.weight` or `.bias`, and that suffix.
fn split(name: &str) -> Option<(&str, &str)> {
    let at = name.len() - [".weight", ".bias"].into_iter().find(|s| name.ends_with(s))?.len();
    Some(name.split_at(at))
}

/// `"<number>.<rest>"` after a prefix.
fn layer<'a>(stem: &'a str, prefix: &str) -> Option<(usize, &'a str)> {
    let (number, rest) = stem.strip_prefix(prefix)?.split_once('.')?;
    // the number as it would be written again
    let l: usize = number.parse().ok()?;
    (l.to_string() == number).then_some((l, rest))
}

/// The GGUF name of a Hugging Face tensor.
pub fn to_gguf(hf: &str) -> Option<String> {
    let (stem, suffix) = split(hf)?;
    if let Some((_, gguf)) = GLOBAL.iter().find(|(h, _)| *h == stem) {
        return Some(format!("{gguf}{suffix}"));
    }
    let (l, rest) = layer(stem, "model.layers.")?;
    let (_, gguf) = LAYER.iter().find(|(h, _)| *h == rest)?;
    Some(format!("blk.{l}.{gguf}{suffix}"))
}

/// The Hugging Face name of a GGUF tensor of architecture `arch`.
pub fn to_hf(arch: &str, gguf: &str) -> Option<String> {
    let (stem, suffix) = split(gguf)?;
    if let Some((hf, _)) = GLOBAL.iter().find(|(_, g)| *g == stem) {
        return Some(format!("{hf}{suffix}"));
    }
    let (l, rest) = layer(stem, "blk.")?;
    let fused = arch == "phi3";
    let (hf, _) = LAYER.iter().find(|(h, g)| *g == rest && (*g != "ffn_up" || (*h == "mlp.gate_up_proj") == fused))?;
    Some(format!("model.layers.{l}.{hf}{suffix}"))
}

/// The layer a tensor belongs to, by either spelling.
pub fn layer_of(name: &str) -> Option<usize> {
    layer(name, "model.layers.").or_else(|| layer(name, "blk.")).map(|(l, _)| l)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_goes_over_and_back() {
        for arch in ["llama", "phi3", "qwen2", "qwen3"] {
            for (hf, gguf) in GLOBAL {
                assert_eq!(to_gguf(&format!("{hf}.weight")).unwrap(), format!("{gguf}.weight"));
                assert_eq!(to_hf(arch, &format!("{gguf}.weight")).unwrap(), format!("{hf}.weight"));
            }
            for (hf, gguf) in LAYER.iter().filter(|(h, _)| (*h == "mlp.gate_up_proj") <= (arch == "phi3")) {
                if arch == "phi3" && *hf == "mlp.up_proj" {
                    continue;
                }
                let (hf, gguf) = (format!("model.layers.12.{hf}.bias"), format!("blk.12.{gguf}.bias"));
                assert_eq!(to_gguf(&hf).unwrap(), gguf);
                assert_eq!(to_hf(arch, &gguf).unwrap(), hf);
                assert_eq!((layer_of(&hf), layer_of(&gguf)), (Some(12), Some(12)));
            }
        }
    }

    #[test]
    fn names_that_only_look_alike_are_not_translated() {
        for bad in ["model.layers.01.mlp.up_proj.weight", "model.layers.1.mlp.up_proj", "lm_head", "x.weight", ""] {
            assert_eq!(to_gguf(bad), None, "{bad}");
        }
        assert_eq!(to_hf("llama", "blk.x.attn_q.weight"), None);
        assert_eq!(layer_of("output.weight"), None);
    }
}

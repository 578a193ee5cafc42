//! Which part of a model a tensor is, and which tensors a policy gives the new type.
//!
//! Names only: nothing is read. Knows the names of GGUF files (`blk.0.attn_q.weight`) and of Hugging Face checkpoints
//! (`model.layers.0.self_attn.q_proj.weight`, and ChatGLM's own), with fused qkv and gate/up projections too. `quantize`
//! packs by it and `hist` measures by it, so that a policy means one thing.

use super::names::layer_of;

/// The parts of a model that errors are summed up by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// query, key and value projections, apart or fused
    Qkv,
    /// attention output projection
    O,
    /// gate and up projections, apart or fused
    GateUp,
    /// down projection
    Down,
    /// output head
    LmHead,
    /// token embedding (the output head too, where the two are tied)
    Embed,
}

impl Group {
    /// Every group, in the order of tables.
    pub const ALL: [Group; 6] = [Group::Qkv, Group::O, Group::GateUp, Group::Down, Group::LmHead, Group::Embed];

    /// The name in tables, files and gates.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Qkv => "qkv",
            Group::O => "o",
            Group::GateUp => "gate_up",
            Group::Down => "down",
            Group::LmHead => "lm_head",
            Group::Embed => "embed",
        }
    }
}

/// What a tensor's name says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// the part of the model
    pub group: Group,
    /// the layer; `None` for the head and the embedding
    pub layer: Option<usize>,
}

/// The place of a weight matrix by its name; `None` for norms, biases and names nobody knows.
pub fn place(name: &str) -> Option<Place> {
    let stem = name.strip_suffix(".weight")?;
    match stem {
        "output" | "lm_head" | "output_layer" | "transformer.output_layer" => {
            return Some(Place { group: Group::LmHead, layer: None });
        }
        "token_embd" | "model.embed_tokens" | "embedding.word_embeddings" | "transformer.embedding.word_embeddings" => {
            return Some(Place { group: Group::Embed, layer: None });
        }
        _ => {}
    }
    let layer = Some(layer_of(stem)?);
    // experts are numbered before it (`mlp.experts.3.up_proj`), or one tensor holds them all
    let last = stem.rsplit('.').next().unwrap_or(stem);
    let group = match last.trim_end_matches("_exps").trim_end_matches("_shexp") {
        "attn_q" | "attn_k" | "attn_v" | "attn_qkv" | "q_proj" | "k_proj" | "v_proj" | "qkv_proj"
        | "query_key_value" => Group::Qkv,
        "attn_output" | "o_proj" | "dense" => Group::O,
        "ffn_gate" | "ffn_up" | "ffn_gate_up" | "gate_proj" | "up_proj" | "gate_up_proj" | "dense_h_to_4h" => {
            Group::GateUp
        }
        "ffn_down" | "down_proj" | "dense_4h_to_h" => Group::Down,
        _ => return None,
    };
    Some(Place { group, layer })
}

/// Which tensors get the new type: the scopes of the Q8K128 experiment, from nothing to everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// no tensor
    Off,
    /// qkv of layer 0
    Layer0Qkv,
    /// qkv of layers 0 to 3
    EarlyQkv,
    /// every qkv
    Qkv,
    /// every qkv and attention output
    Attn,
    /// everything but the down projections
    Q8k,
    /// everything
    All,
}

impl Policy {
    /// Every policy's name, for messages.
    pub const NAMES: &str = "off, layer0-qkv, early-qkv, qkv, attn, q8k, all";

    /// The policy of a name or one of its aliases; `_` and `-`, capitals and small letters are alike.
    pub fn parse(name: &str) -> Option<Policy> {
        Some(match name.to_lowercase().replace('_', "-").as_str() {
            "off" | "0" | "false" => Policy::Off,
            "layer0-qkv" | "l0-qkv" => Policy::Layer0Qkv,
            "early-qkv" | "layers0-3-qkv" | "0-3-qkv" => Policy::EarlyQkv,
            "qkv" | "all-qkv" => Policy::Qkv,
            "attn" | "attention" | "self-attn" => Policy::Attn,
            "q8k" | "q8k-layers" | "non-down" => Policy::Q8k,
            "all" => Policy::All,
            _ => return None,
        })
    }

    /// The name without aliases.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Off => "off",
            Policy::Layer0Qkv => "layer0-qkv",
            Policy::EarlyQkv => "early-qkv",
            Policy::Qkv => "qkv",
            Policy::Attn => "attn",
            Policy::Q8k => "q8k",
            Policy::All => "all",
        }
    }

    /// Whether a tensor at this place gets the new type. Embeddings never do.
    pub fn selects(self, p: Place) -> bool {
        let qkv = p.group == Group::Qkv;
        match self {
            Policy::Off => false,
            Policy::Layer0Qkv => qkv && p.layer == Some(0),
            Policy::EarlyQkv => qkv && p.layer.is_some_and(|l| l <= 3),
            Policy::Qkv => qkv,
            Policy::Attn => qkv || p.group == Group::O,
            Policy::Q8k => !matches!(p.group, Group::Down | Group::Embed),
            Policy::All => p.group != Group::Embed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_worlds_fall_into_the_same_groups() {
        let at = |name: &str| place(name).map(|p| (p.group, p.layer));
        for (name, group, layer) in [
            ("blk.11.attn_q.weight", Group::Qkv, Some(11)),
            ("blk.0.attn_qkv.weight", Group::Qkv, Some(0)),
            ("model.layers.7.self_attn.qkv_proj.weight", Group::Qkv, Some(7)),
            ("model.layers.31.self_attn.v_proj.weight", Group::Qkv, Some(31)),
            ("blk.2.attn_output.weight", Group::O, Some(2)),
            ("model.layers.2.self_attn.o_proj.weight", Group::O, Some(2)),
            ("model.layers.2.mlp.gate_up_proj.weight", Group::GateUp, Some(2)),
            ("blk.2.ffn_up_exps.weight", Group::GateUp, Some(2)),
            ("model.layers.2.mlp.experts.5.down_proj.weight", Group::Down, Some(2)),
            ("output.weight", Group::LmHead, None),
            ("model.embed_tokens.weight", Group::Embed, None),
            ("transformer.encoder.layers.27.self_attention.query_key_value.weight", Group::Qkv, Some(27)),
            ("encoder.layers.0.self_attention.dense.weight", Group::O, Some(0)),
            ("encoder.layers.0.mlp.dense_h_to_4h.weight", Group::GateUp, Some(0)),
            ("encoder.layers.0.mlp.dense_4h_to_h.weight", Group::Down, Some(0)),
            ("transformer.output_layer.weight", Group::LmHead, None),
            ("embedding.word_embeddings.weight", Group::Embed, None),
        ] {
            assert_eq!(at(name), Some((group, layer)), "{name}");
        }
        for name in [
            "blk.0.attn_norm.weight",
            "blk.0.attn_q.bias",
            "output_norm.weight",
            "rope_freqs.weight",
            "blk.x.attn_q.weight",
        ] {
            assert_eq!(at(name), None, "{name}");
        }
    }

    #[test]
    fn each_policy_selects_more_than_the_one_before() {
        let places: Vec<Place> = (0..6)
            .flat_map(|l| Group::ALL[..4].iter().map(move |&group| Place { group, layer: Some(l) }))
            .chain([Place { group: Group::LmHead, layer: None }, Place { group: Group::Embed, layer: None }])
            .collect();
        let count = |name: &str| places.iter().filter(|p| Policy::parse(name).unwrap().selects(**p)).count();
        let counts: Vec<usize> = Policy::NAMES.split(", ").map(count).collect();
        // six layers of four groups, one head, one embedding
        assert_eq!(counts, [0, 1, 4, 6, 12, 19, 25]);
        assert!(Policy::NAMES.split(", ").all(|n| Policy::parse(n).unwrap().name() == n));
        for (alias, policy) in [
            ("LAYERS0_3_QKV", Policy::EarlyQkv),
            ("0-3-qkv", Policy::EarlyQkv),
            ("l0_qkv", Policy::Layer0Qkv),
            ("self-attn", Policy::Attn),
            ("non-down", Policy::Q8k),
            ("false", Policy::Off),
        ] {
            assert_eq!(Policy::parse(alias), Some(policy), "{alias}");
        }
        assert_eq!(Policy::parse("most"), None);
    }
}

//! Directories whose tensors lie otherwise than the engine has them: GPT-2's matrices, which are transposed, Falcon's queries,
//! keys and values, which are grouped, StableLM's norms of heads, each a tensor of its own, gpt-oss's experts, transposed
//! or of MXFP4 in two tensors, in which rows of gate and of up take turns, the heads of Qwen3.5's and Qwen3-Next's
//! recurrent layers (`nets`), LFM2's convolutions, which have a dimension more, and the matrix of DeepSeek's latent attention
//! in which a head's rows of keys and of values follow each other.
//!
//! Such a tensor becomes one that lies behind the end of its file, under the name that a llama's has: a read there takes the
//! bytes from the file and puts them in order. GPT-2's and Falcon's other tensors are renamed alone. What a directory has
//! under the new names already, since isobit wrote it, stays as it is.

use super::Tensor;
use super::dtype::Dtype;
use super::error::{FormatError, quote};
use super::latent::Heads;
use super::lengthened::Making;
use super::nets::Nets;
use super::order::{Anew, Columns, Order, Pairs};
use super::source::Source;
use crate::blocks::BlockType;
use crate::blocks::mxfp4::BlockMXFP4;
use serde_json::Value;
use std::collections::BTreeMap;

/// What becomes of a tensor.
enum Fate {
    /// it stays
    Same,
    /// another name
    Renamed(String),
    /// another name, and its columns are rows
    Turned(String),
    /// another name, and its rows lie in groups of so many heads of queries, then one of keys and one of values
    Grouped(String, u64),
    /// of gpt-oss's experts: other tensors, with other rows
    Experts,
    /// another name, and its bytes have another shape
    Shaped(String, Vec<u64>),
    /// these, of a recurrent layer
    Anew(Vec<Anew>),
    /// part `n` of a tensor of this name
    Part(String, usize),
    /// what no model is made of
    Dropped,
}

/// `"N.rest"` after one of the prefixes.
fn layer<'a>(name: &'a str, prefixes: &[&str]) -> Option<(&'a str, &'a str)> {
    let rest = prefixes.iter().find_map(|p| name.strip_prefix(p))?;
    let (l, rest) = rest.split_once('.')?;
    l.bytes().all(|b| b.is_ascii_digit()).then_some((l, rest))
}

fn of_gpt2(name: &str) -> Fate {
    let own = name.strip_prefix("transformer.").unwrap_or(name);
    let global = match own {
        "wte.weight" => Some("model.embed_tokens.weight"),
        "wpe.weight" => Some("model.embed_positions.weight"),
        "ln_f.weight" => Some("model.norm.weight"),
        "ln_f.bias" => Some("model.norm.bias"),
        _ => None,
    };
    if let Some(new) = global {
        return Fate::Renamed(new.into());
    }
    let Some((l, rest)) = layer(own, &["h."]) else { return Fate::Same };
    // the causal mask
    if ["attn.bias", "attn.masked_bias"].contains(&rest) {
        return Fate::Dropped;
    }
    let Some((stem, suffix)) = rest.rsplit_once('.') else { return Fate::Same };
    let (new, turned) = match stem {
        "ln_1" => ("input_layernorm", false),
        "ln_2" => ("post_attention_layernorm", false),
        "attn.c_attn" => ("self_attn.qkv_proj", true),
        "attn.c_proj" => ("self_attn.o_proj", true),
        "mlp.c_fc" => ("mlp.up_proj", true),
        "mlp.c_proj" => ("mlp.down_proj", true),
        _ => return Fate::Same,
    };
    let new = format!("model.layers.{l}.{new}.{suffix}");
    if turned && suffix == "weight" { Fate::Turned(new) } else { Fate::Renamed(new) }
}

/// `queries`: heads of queries of a group, where they lie in groups.
fn of_falcon(name: &str, queries: Option<u64>) -> Fate {
    let own = name.strip_prefix("transformer.").unwrap_or(name);
    let global = match own {
        "word_embeddings.weight" => Some("model.embed_tokens.weight"),
        "ln_f.weight" => Some("model.norm.weight"),
        "ln_f.bias" => Some("model.norm.bias"),
        _ => None,
    };
    if let Some(new) = global {
        return Fate::Renamed(new.into());
    }
    let Some((l, rest)) = layer(own, &["h."]) else { return Fate::Same };
    let Some((stem, suffix)) = rest.rsplit_once('.') else { return Fate::Same };
    let new = match stem {
        "input_layernorm" | "ln_mlp" => "input_layernorm",
        "ln_attn" => "attn_layernorm",
        "self_attention.query_key_value" => "self_attn.qkv_proj",
        "self_attention.dense" => "self_attn.o_proj",
        "mlp.dense_h_to_4h" => "mlp.up_proj",
        "mlp.dense_4h_to_h" => "mlp.down_proj",
        _ => return Fate::Same,
    };
    let renamed = format!("model.layers.{l}.{new}.{suffix}");
    match queries.filter(|_| new == "self_attn.qkv_proj") {
        Some(n) => Fate::Grouped(renamed, n),
        None => Fate::Renamed(renamed),
    }
}

fn of_stablelm(name: &str) -> Fate {
    let Some((l, rest)) = layer(name, &["model.layers."]) else { return Fate::Same };
    for side in ["q", "k"] {
        let stem = format!("self_attn.{side}_layernorm.norms.");
        let number = rest.strip_prefix(&stem).and_then(|n| n.strip_suffix(".weight")).and_then(|n| n.parse().ok());
        if let Some(number) = number {
            return Fate::Part(format!("model.layers.{l}.self_attn.{side}_layernorm.weight"), number);
        }
    }
    Fate::Same
}

/// A convolution's elements, three for each channel, which have one more dimension in a directory.
fn of_lfm2(t: &Tensor) -> Fate {
    match t.shape[..] {
        [taps, 1, channels] if t.name.ends_with(".conv.conv.weight") => {
            Fate::Shaped(t.name.clone(), vec![taps, channels])
        }
        _ => Fate::Same,
    }
}

/// Mamba-2 has names of its own outside its mixers, and within them some without a suffix; a convolution's elements have one
/// more dimension than in a GGUF file. `model.` stands before the names of Mamba-Codestral's first checkpoint.
fn of_mamba2(t: &Tensor) -> Fate {
    let own = t.name.strip_prefix("model.").unwrap_or(&t.name);
    let global = match own {
        "backbone.embeddings.weight" | "backbone.embedding.weight" => Some("model.embed_tokens.weight"),
        "backbone.norm_f.weight" => Some("model.norm.weight"),
        "lm_head.weight" => Some("lm_head.weight"),
        _ => None,
    };
    if let Some(new) = global {
        return Fate::Renamed(new.into());
    }
    let Some((l, rest)) = layer(own, &["backbone.layers."]) else { return Fate::Same };
    let name = match rest {
        "norm.weight" => "input_layernorm.weight",
        "mixer.dt_bias" => "mixer.dt.bias",
        "mixer.A_log" => "mixer.A_log.weight",
        "mixer.D" => "mixer.D.weight",
        other => other,
    };
    let name = format!("model.layers.{l}.{name}");
    match t.shape[..] {
        [taps, 1, channels] if rest == "mixer.conv1d.weight" => Fate::Shaped(name, vec![taps, channels]),
        _ => Fate::Renamed(name),
    }
}

fn of_gpt_oss(name: &str) -> Fate {
    let Some((l, rest)) = layer(name, &["model.layers."]) else { return Fate::Same };
    if rest == "self_attn.sinks" {
        return Fate::Renamed(format!("{name}.weight"));
    }
    match rest.strip_prefix("mlp.experts.") {
        Some("down_proj_bias") => Fate::Renamed(format!("model.layers.{l}.mlp.experts.down_proj.bias")),
        Some("gate_up_proj" | "gate_up_proj_bias" | "gate_up_proj_blocks" | "down_proj" | "down_proj_blocks") => {
            Fate::Experts
        }
        // read with the codes
        Some("gate_up_proj_scales" | "down_proj_scales") => Fate::Dropped,
        _ => Fate::Same,
    }
}

/// What a tensor of gpt-oss's experts becomes: gate's rows, or columns where matrices are transposed, are the first and every
/// second one from there, up's those between. `scales`: those of MXFP4, by the name before `_scales`. `None`: it has another
/// form.
fn of_experts(t: &Tensor, scales: &BTreeMap<String, Tensor>) -> Option<Vec<Anew>> {
    let (stem, what) = t.name.rsplit_once('.')?;
    let names: &[&str] = if what.starts_with("gate_up") { &["gate_proj", "up_proj"] } else { &["down_proj"] };
    let step = names.len() as u64;
    let size = || Some(t.dtype.block().filter(|b| b.is_float())?.bytes());
    let expert = |(i, name): (usize, &&str)| {
        let (suffix, like, shape, order, bytes);
        if what.ends_with("_bias") {
            let &[both, n] = &t.shape[..] else { return None };
            let size = size()? as u64;
            (suffix, like) = ("bias", t.clone());
            (shape, bytes) = (vec![both.is_multiple_of(step).then_some(both / step)?, n], t.bytes / step);
            order = Order::Seconds { at: t.offset + i as u64 * size, size };
        } else if let Some(matrices) = t.name.strip_suffix("_blocks") {
            let &[16, row, rows, n] = &t.shape[..] else { return None };
            let of = scales.get(matrices).filter(|s| s.shape == [row, rows, n] && s.bytes * 16 == t.bytes)?;
            let rows = rows.is_multiple_of(step).then_some(rows / step)?;
            (suffix, like) = ("weight", Tensor { dtype: Dtype::from_block(BlockType::MXFP4)?, ..t.clone() });
            (shape, bytes) =
                (vec![row.checked_mul(32)?, rows, n], t.bytes / 16 / step * size_of::<BlockMXFP4>() as u64);
            let (blocks, scales) = ((t.file, t.offset), (of.file, of.offset));
            order = Order::Pairs(Pairs { blocks, scales, row: usize::try_from(row).ok()?, first: i as u64, step });
        } else {
            let &[columns, rows, n] = &t.shape[..] else { return None };
            let (size, [rows, cols]) = (size()?, [rows, columns].map(|n| n as usize));
            (suffix, like) = ("weight", t.clone());
            let kept = columns.is_multiple_of(step).then_some(columns / step)?;
            (shape, bytes) = (vec![rows as u64, kept, n], t.bytes / step);
            let apart = rows * cols * size;
            let (at, row, step) = (t.offset, cols * size, step as usize);
            order = Order::Transposed(Columns { at, rows, cols, row, coded: None, size, first: i, step, apart });
        }
        Some(Anew { like, name: format!("{stem}.{name}.{suffix}"), shape, order, bytes })
    };
    names.iter().enumerate().map(expert).collect()
}

/// Heads of queries to a head of keys and one of values, which lie in the rows of one tensor group after group; `None`: all
/// queries are first.
fn falcon_groups(config: &Value) -> Option<u64> {
    let heads = config["num_attention_heads"].as_u64()?;
    if config["new_decoder_architecture"] == true {
        return heads.checked_div(config["num_kv_heads"].as_u64().unwrap_or(heads));
    }
    (config["multi_query"] == false).then_some(1)
}

/// Whether a config is of a model whose tensors lie otherwise.
pub(super) fn is_one(config: &Value) -> bool {
    ["gpt2", "falcon", "stablelm", "gpt_oss"].iter().any(|name| config["model_type"] == *name)
}

/// The tensors of a directory of one of these models, or of one with recurrent layers, as the engine has them, and its files
/// with what was made of them behind their ends; of any other as they are.
///
/// Errors: parts of one tensor that differ or are not all there; groups that do not divide the rows.
pub(super) fn resolve(
    config: &Value,
    tensors: Vec<Tensor>,
    sources: Vec<Source>,
) -> Result<(Vec<Tensor>, Vec<Source>), FormatError> {
    let model = config["model_type"].as_str().unwrap_or("");
    let (groups, nets, heads) = (falcon_groups(config), Nets::of(config), Heads::of(config));
    let head_dim = || config["hidden_size"].as_u64()?.checked_div(config["num_attention_heads"].as_u64()?);
    let mut making = Making::behind(&sources);
    let mut out = Vec::with_capacity(tensors.len());
    let mut parts: BTreeMap<String, BTreeMap<usize, Tensor>> = BTreeMap::new();
    let scales: BTreeMap<String, Tensor> = tensors
        .iter()
        .filter_map(|t| Some((t.name.strip_suffix("_scales").filter(|_| model == "gpt_oss")?.to_string(), t.clone())))
        .collect();
    for t in tensors {
        let wrong = |what: &str, expected: &str, found: String| {
            FormatError::invalid(sources[t.file].name(), format!("tensor {}", quote(&t.name)), what, expected, found)
        };
        let fate = match model {
            "gpt2" => of_gpt2(&t.name),
            "falcon" => of_falcon(&t.name, groups),
            "stablelm" => of_stablelm(&t.name),
            "gpt_oss" => of_gpt_oss(&t.name),
            "lfm2" | "lfm2_moe" => of_lfm2(&t),
            "mamba2" => of_mamba2(&t),
            "deepseek_v2" | "deepseek_v3" | "kimi_k2" | "glm4_moe_lite" => {
                let names = [".k_b_proj.weight", ".v_b_proj.weight"];
                heads.and_then(|h| h.apart(&t, ".kv_b_proj.weight", names)).map_or(Fate::Same, Fate::Anew)
            }
            _ => nets.and_then(|n| n.anew(&t)).map_or(Fate::Same, Fate::Anew),
        };
        match fate {
            Fate::Same => out.push(t),
            Fate::Dropped => {}
            Fate::Shaped(name, shape) => out.push(Tensor { name, shape, ..t }),
            Fate::Renamed(name) => out.push(Tensor { name, ..t }),
            Fate::Turned(name) => {
                let size = t.dtype.block().filter(|b| b.is_float()).map(|b| b.bytes());
                let (Some(size), &[cols, rows]) = (size, &t.shape[..]) else {
                    let found = format!("{} of shape {:?}", t.dtype, t.shape);
                    return Err(wrong(
                        "a matrix that cannot be transposed",
                        "two dimensions of F32, F16 or BF16",
                        found,
                    ));
                };
                // both are below the bytes of a file that is there
                let [rows_, cols_] = [rows, cols].map(|n| n as usize);
                let apart = rows_ * cols_ * size;
                let (at, row) = (t.offset, cols_ * size);
                let columns =
                    Columns { at, rows: rows_, cols: cols_, row, coded: None, size, first: 0, step: 1, apart };
                let order = Order::Transposed(columns);
                out.push(making.add(&t, name, vec![rows, cols], order, t.bytes));
            }
            Fate::Grouped(name, queries) => {
                let rows = t.shape.last().copied().unwrap_or(0);
                let head = head_dim().unwrap_or(0);
                let group = (queries + 2).saturating_mul(head);
                if group == 0 || rows == 0 || !rows.is_multiple_of(group) {
                    let expected = format!("groups of {group} rows");
                    return Err(wrong("rows that are not whole groups of heads", &expected, format!("{rows} rows")));
                }
                let head = t.bytes / rows * head;
                let starts = |first: u64, n: u64| {
                    (0..rows / group).map(move |g| {
                        let at = t.offset + (g * (queries + 2) + first) * head;
                        (t.file, at..at + n * head)
                    })
                };
                let pieces = starts(0, queries).chain(starts(queries, 1)).chain(starts(queries + 1, 1)).collect();
                out.push(making.add(&t, name, t.shape.clone(), Order::Pieces(pieces), t.bytes));
            }
            Fate::Experts => {
                let Some(made) = of_experts(&t, &scales) else {
                    let found = format!("{} of shape {:?}", t.dtype, t.shape);
                    return Err(wrong("experts of another form", "matrices of floats, or blocks and scales", found));
                };
                out.extend(made.into_iter().map(|e| making.anew(e)));
            }
            Fate::Anew(made) => out.extend(made.into_iter().map(|e| making.anew(e))),
            Fate::Part(name, n) => {
                parts.entry(name).or_default().insert(n, t);
            }
        }
    }
    for (name, parts) in parts {
        let Some(first) = parts.get(&0).filter(|t| t.shape.len() == 1).cloned() else {
            let file = parts.values().next().map_or("", |t| sources[t.file].name());
            return Err(FormatError::unsupported(file, format!("{} without its first part", quote(&name)), "give all"));
        };
        let alike =
            parts.iter().zip(0..).all(|((n, t), i)| *n == i && (&t.shape, t.dtype) == (&first.shape, first.dtype));
        if !alike {
            let what = format!("the parts of {}, which differ or are not all there", quote(&name));
            return Err(FormatError::unsupported(sources[first.file].name(), &what, "give them all"));
        }
        let pieces = parts.values().map(|t| (t.file, t.offset..t.offset + t.bytes)).collect();
        let (n, shape) = (parts.len() as u64, [&first.shape[..], &[parts.len() as u64]].concat());
        out.push(making.add(&first, name, shape, Order::Pieces(pieces), first.bytes * n));
    }
    Ok((out, making.files(sources)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    fn tensor(name: &str, shape: &[u64], offset: u64) -> Tensor {
        let dtype = Dtype::from_name("F32").expect("a type");
        let bytes = shape.iter().product::<u64>() * 4;
        Tensor { name: name.into(), dtype, shape: shape.to_vec(), bytes, offset, file: 0 }
    }

    /// The tensors made of these, and the first word of each element of the first of them.
    fn made(config: Value, tensors: Vec<Tensor>) -> Result<(Vec<Tensor>, Vec<u32>), FormatError> {
        let words: Vec<u8> = (0..64u32).flat_map(u32::to_le_bytes).collect();
        let (tensors, sources) = resolve(&config, tensors, vec![Source::bytes("x", words.into())])?;
        let t = &tensors[0];
        let mut bytes = vec![0; t.bytes as usize];
        // in two reads, as the loader may
        let (a, b) = bytes.split_at_mut(12);
        sources[0].read_at(t.offset, a, &String::new)?;
        sources[0].read_at(t.offset + 12, b, &String::new)?;
        let words = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        Ok((tensors, words))
    }

    #[test]
    fn a_matrix_of_gpt2_is_turned_and_its_mask_left_out() {
        let list = vec![tensor("h.0.attn.c_attn.weight", &[3, 2], 8), tensor("h.0.attn.bias", &[2], 0)];
        let (tensors, words) = made(serde_json::json!({"model_type": "gpt2"}), list).expect("made");
        assert_eq!((tensors.len(), &tensors[0].shape[..]), (1, &[2, 3][..]));
        assert_eq!(tensors[0].name, "model.layers.0.self_attn.qkv_proj.weight");
        assert_eq!(words, [2, 5, 3, 6, 4, 7]);
    }

    #[test]
    fn keys_of_latent_attention_are_turned_and_values_follow_each_other() {
        // two heads of two rows of keys and one of values, of three elements: [2][2 + 1][3]
        let config = serde_json::json!({"model_type": "deepseek_v3", "num_attention_heads": 2, "qk_nope_head_dim": 2,
            "v_head_dim": 1});
        let name = |what: &str| format!("model.layers.4.self_attn.{what}_b_proj.weight");
        let (tensors, keys) = made(config.clone(), vec![tensor(&name("kv"), &[3, 6], 8)]).expect("made");
        assert_eq!(tensors.iter().map(|t| &t.name[..]).collect::<Vec<_>>(), [name("k"), name("v")]);
        assert_eq!((&tensors[0].shape[..], &tensors[1].shape[..]), (&[2, 3, 2][..], &[3, 1, 2][..]));
        assert_eq!(keys, [2, 5, 3, 6, 4, 7, 11, 14, 12, 15, 13, 16]);
        let words: Vec<u8> = (0..64u32).flat_map(u32::to_le_bytes).collect();
        let list = vec![tensor(&name("kv"), &[3, 6], 8)];
        let (tensors, sources) = resolve(&config, list, vec![Source::bytes("x", words.into())]).expect("made");
        let mut values = vec![0; tensors[1].bytes as usize];
        sources[0].read_at(tensors[1].offset, &mut values, &String::new).expect("there");
        let values: Vec<u32> = values.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        assert_eq!(values, [8, 9, 10, 17, 18, 19]);
        // other rows than the config has
        let (tensors, _) = made(config, vec![tensor(&name("kv"), &[3, 7], 8)]).expect("as it is");
        assert_eq!((tensors.len(), &tensors[0].name), (1, &name("kv")));
    }

    #[test]
    fn heads_of_values_are_dealt_out_in_turns_and_another_shape_stays() {
        // two heads of keys, four of values, one element each
        let config = serde_json::json!({"model_type": "qwen3_5_text", "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 1, "linear_value_head_dim": 1});
        let of = |what: &str, shape: &[u64]| vec![tensor(&format!("model.layers.0.linear_attn.{what}"), shape, 0)];
        let words = |list| made(config.clone(), list).expect("made").1;
        assert_eq!(words(of("in_proj_z.weight", &[2, 4])), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(words(of("A_log.weight", &[4])), [0, 2, 1, 3]);
        // two queries and two keys stay
        assert_eq!(words(of("in_proj_qkv.weight", &[1, 8])), [0, 1, 2, 3, 4, 6, 5, 7]);
        assert_eq!(words(of("out_proj.weight", &[4, 2])), [0, 2, 1, 3, 4, 6, 5, 7]);
        let (tensors, taps) = made(config.clone(), of("conv1d.weight", &[1, 1, 8])).expect("made");
        assert_eq!((&tensors[0].shape[..], &taps[..]), (&[1, 8][..], &[0, 1, 2, 3, 4, 6, 5, 7][..]));
        for (what, shape) in [("in_proj_z.weight", &[2, 5][..]), ("out_proj.weight", &[5, 2]), ("norm.weight", &[4])] {
            let (tensors, found) = made(config.clone(), of(what, shape)).expect("made");
            assert_eq!((&tensors[0].shape[..], tensors[0].offset), (shape, 0), "{what}");
            assert!(found.iter().copied().eq(0..shape.iter().product::<u64>() as u32), "{what}");
        }
    }

    #[test]
    fn the_one_projection_of_qwen3_next_is_two() {
        // of each of two heads of keys a query, a key, two values and two of the gate
        let config = serde_json::json!({"model_type": "qwen3_next", "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 1, "linear_value_head_dim": 1});
        let list = vec![tensor("model.layers.0.linear_attn.in_proj_qkvz.weight", &[1, 12], 0)];
        let (tensors, words) = made(config, list).expect("made");
        let names: Vec<_> =
            tensors.iter().map(|t| (t.name.rsplit_once("linear_attn.").unwrap().1, t.shape[1])).collect();
        assert_eq!(names, [("in_proj_qkv.weight", 8), ("in_proj_z.weight", 4)]);
        assert_eq!(words, [0, 6, 1, 7, 2, 3, 8, 9]);
    }

    #[test]
    fn groups_of_falcon_become_queries_keys_and_values() {
        let config = serde_json::json!({"model_type": "falcon", "new_decoder_architecture": true, "hidden_size": 8,
            "num_attention_heads": 4, "num_kv_heads": 2});
        let name = "transformer.h.3.self_attention.query_key_value.weight";
        let (tensors, words) = made(config.clone(), vec![tensor(name, &[1, 16], 0)]).expect("made");
        assert_eq!(tensors[0].name, "model.layers.3.self_attn.qkv_proj.weight");
        assert_eq!(words, [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]);
        let error = made(config, vec![tensor(name, &[1, 15], 0)]).expect_err("refused").to_string();
        assert!(error.contains("groups of 8 rows"), "{error}");
    }

    #[test]
    fn gate_and_up_of_gpt_oss_which_take_turns_are_two() {
        let config = serde_json::json!({"model_type": "gpt_oss"});
        let name = |what: &str| format!("model.layers.3.mlp.experts.{what}");
        let of = |tensors: &[Tensor], words: Vec<u32>| -> (Vec<String>, Vec<u64>, Vec<u32>) {
            let names = tensors.iter().map(|t| t.name.clone()).collect();
            (names, tensors[0].shape.clone(), words)
        };
        // two experts, each three rows of gate, up, gate, up: [2][3][4]
        let (tensors, words) = made(config.clone(), vec![tensor(&name("gate_up_proj"), &[4, 3, 2], 0)]).expect("made");
        let (names, shape, words) = of(&tensors, words);
        assert_eq!(names, [name("gate_proj.weight"), name("up_proj.weight")]);
        assert_eq!((&shape[..], &words[..]), (&[3, 2, 2][..], &[0, 4, 8, 2, 6, 10, 12, 16, 20, 14, 18, 22][..]));
        let (tensors, words) = made(config.clone(), vec![tensor(&name("down_proj"), &[2, 3, 2], 0)]).expect("made");
        let (names, shape, words) = of(&tensors, words);
        assert_eq!(names, [name("down_proj.weight")]);
        assert_eq!((&shape[..], &words[..]), (&[3, 2, 2][..], &[0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11][..]));
        let bias = tensor(&name("gate_up_proj_bias"), &[4, 2], 0);
        let (tensors, words) = made(config.clone(), vec![bias]).expect("made");
        let (names, shape, words) = of(&tensors, words);
        assert_eq!(names, [name("gate_proj.bias"), name("up_proj.bias")]);
        assert_eq!((&shape[..], &words[..]), (&[2, 2][..], &[0, 2, 4, 6][..]));
        let odd = made(config, vec![tensor(&name("gate_up_proj"), &[5, 3, 1], 0)]).expect_err("refused").to_string();
        assert!(odd.contains("experts of another form"), "{odd}");
    }

    #[test]
    fn blocks_and_scales_of_gpt_oss_are_mxfp4() {
        let bytes_of = |what: &str, shape: &[u64], offset: u64| {
            let (dtype, bytes) = (Dtype::from_name("U8").expect("a type"), shape.iter().product());
            let name = format!("model.layers.0.mlp.experts.{what}");
            Tensor { name, dtype, shape: shape.to_vec(), bytes, offset, file: 0 }
        };
        // one expert of 4 rows of 2 blocks: 8 scales, then 8 times 16 bytes of codes
        let bytes: Vec<u8> = (0..136).map(|i| if i < 8 { 120 + i } else { i }).collect();
        let (scales, blocks) =
            (bytes_of("gate_up_proj_scales", &[2, 4, 1], 0), bytes_of("gate_up_proj_blocks", &[16, 2, 4, 1], 8));
        let config = serde_json::json!({"model_type": "gpt_oss"});
        let source = || vec![Source::bytes("x", bytes.clone().into())];
        let (tensors, sources) = resolve(&config, vec![scales.clone(), blocks.clone()], source()).expect("made");
        assert_eq!((tensors.len(), &tensors[1].shape[..], tensors[1].bytes), (2, &[64, 2, 1][..], 68));
        let mut up = [0; 68];
        // in two reads, as the loader may
        let (a, b) = up.split_at_mut(20);
        sources[0].read_at(tensors[1].offset, a, &String::new).expect("there");
        sources[0].read_at(tensors[1].offset + 20, b, &String::new).expect("there");
        for (n, row, block) in [(0, 1, 0), (1, 1, 1), (2, 3, 0), (3, 3, 1)] {
            let at = row * 2 + block;
            let pairs: &[u8; 16] = bytes[8 + 16 * at..][..16].try_into().expect("16 bytes");
            let expected = BlockMXFP4::from_pairs(bytes[at], pairs);
            assert_eq!(up[17 * n..][..17], *bytemuck::bytes_of(&expected), "row {row}, block {block}");
        }
        // without the scales, and with those of another shape
        assert!(resolve(&config, vec![blocks.clone()], source()).is_err());
        assert!(resolve(&config, vec![Tensor { shape: vec![4, 2, 1], ..scales }, blocks], source()).is_err());
    }

    #[test]
    fn norms_of_heads_are_joined_in_their_order() {
        let part = |n: usize, at| tensor(&format!("model.layers.1.self_attn.k_layernorm.norms.{n}.weight"), &[2], at);
        let config = serde_json::json!({"model_type": "stablelm"});
        let list = vec![part(2, 0), part(0, 16), part(1, 8)];
        let (tensors, words) = made(config.clone(), list).expect("made");
        assert_eq!((tensors.len(), &tensors[0].shape[..]), (1, &[2, 3][..]));
        assert_eq!(words, [4, 5, 2, 3, 0, 1]);
        for list in [vec![part(1, 0)], vec![part(0, 0), part(2, 8)]] {
            assert!(made(config.clone(), list).is_err());
        }
    }
}

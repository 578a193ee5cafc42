//! Experts of a directory as one tensor a layer, as GGUF files have them since April 2024: `[columns, rows, experts]`. Those of
//! older files (Mixtral's first conversions: `blk.0.ffn_up.3.weight`) likewise.
//!
//! transformers writes a matrix for each expert (`mlp.experts.3.up_proj.weight`), or gate and up of all experts in one
//! tensor (`mlp.experts.gate_up_proj`, Granite's `block_sparse_moe.input_linear`). Either becomes a tensor for each kind of
//! matrix, whose bytes lie in several places. So does Granite's shared expert (`shared_mlp.input_linear`), and what Gemma 3n
//! has in front of its layers and behind them (`altup_projections.0.weight`).
//!
//! Nothing is read here, and of whatever is not of these forms nothing changes but names for which GGUF's have a suffix
//! ([`RENAMED`]).

use super::Tensor;
use super::error::{FormatError, quote};
use super::source::Source;
use std::collections::BTreeMap;

/// The parts of tensors that do not lie in one place, by name; each part a range of a file.
pub(super) type Stacks = BTreeMap<String, Vec<Tensor>>;

/// What stands before the number of an expert in its matrices' names.
const EXPERTS: &str = ".experts.";

/// What LFM2 calls the matrices of an expert, and what the others do, as it does where gate and up are one.
const LFM2: [(&str, &str); 3] =
    [("w1.weight", "gate_proj.weight"), ("w3.weight", "up_proj.weight"), ("w2.weight", "down_proj.weight")];

/// Names of fused matrices: what they end with, and the two names that take its place, gate's in front.
const FUSED: [(&str, [&str; 2]); 4] = [
    (".experts.gate_up_proj", [".experts.gate_proj.weight", ".experts.up_proj.weight"]),
    (".experts.gate_up_proj.weight", [".experts.gate_proj.weight", ".experts.up_proj.weight"]),
    (
        ".block_sparse_moe.input_linear.weight",
        [".block_sparse_moe.input_linear.gate.weight", ".block_sparse_moe.input_linear.up.weight"],
    ),
    (".shared_mlp.input_linear.weight", [".shared_mlp.input_linear.gate.weight", ".shared_mlp.input_linear.up.weight"]),
];

/// Names that get a suffix as others have it.
const RENAMED: [(&str, &str); 9] = [
    (".altup.correct_output_scale", ".altup.correct_output_scale.weight"),
    (".experts.down_proj", ".experts.down_proj.weight"),
    (".mlp.gate.e_score_correction_bias", ".mlp.gate.e_score_correction.bias"),
    (".feed_forward.expert_bias", ".feed_forward.expert.bias"),
    (".linear_attn.dt_bias", ".linear_attn.dt.bias"),
    (".linear_attn.A_log", ".linear_attn.A_log.weight"),
    (".layer_scalar", ".layer_scalar.weight"),
    (".router.scale", ".router.proj.scale"),
    (".router.per_expert_scale", ".experts.down_proj.scale"),
];

/// Matrices of Gemma 3n that stand beside each other, by what is in front of their numbers.
const BESIDE: [&str; 2] = ["model.altup_projections.", "model.altup_unembed_projections."];

/// As [`of_expert`], of a matrix that is one of several: `a.3.weight` is `(a.weight, 3)`.
fn of_several(name: &str) -> Option<(String, usize)> {
    let (stem, rest) = BESIDE.iter().find_map(|stem| Some((stem, name.strip_prefix(stem)?)))?;
    let number = rest.strip_suffix(".weight")?;
    let n: usize = number.parse().ok()?;
    (n.to_string() == number).then(|| (format!("{stem}weight"), n))
}

/// The name without the expert's number, and the number: `a.experts.3.b` is `(a.experts.b, 3)`.
fn of_expert(name: &str) -> Option<(String, usize)> {
    let (before, rest) = name.split_once(EXPERTS)?;
    let (number, rest) = rest.split_once('.')?;
    let n: usize = number.parse().ok()?;
    // the number as it would be written again
    let own = LFM2.iter().find(|(name, _)| before.ends_with(".feed_forward") && *name == rest);
    let rest = own.map_or(rest, |(_, name)| name);
    (n.to_string() == number && rest.ends_with(".weight")).then(|| (format!("{before}{EXPERTS}{rest}"), n))
}

/// As [`of_expert`], in a GGUF file of before April 2024: `blk.0.ffn_up.3.weight` is `(blk.0.ffn_up_exps.weight, 3)`.
fn of_old(name: &str) -> Option<(String, usize)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let (kind, number) = rest.strip_suffix(".weight")?.split_once('.')?;
    let n: usize = number.parse().ok()?;
    let is_one = ["ffn_gate", "ffn_up", "ffn_down"].contains(&kind) && n.to_string() == number;
    is_one.then(|| (format!("blk.{layer}.{kind}_exps.weight"), n))
}

/// Gate and up of a tensor that holds both, `rows` of one after `rows` of the other in each of its matrices; `None` where
/// its shape or type does not divide so.
fn halves(t: &Tensor, names: [&str; 2], stem: &str) -> Option<[(Tensor, Vec<Tensor>); 2]> {
    let (columns, both, n) = match t.shape[..] {
        [columns, both] => (columns, both, 1),
        [columns, both, n] => (columns, both, n),
        _ => return None,
    };
    let rows = (both > 0 && both.is_multiple_of(2)).then_some(both / 2)?;
    let halves = 2u64.checked_mul(n).filter(|n| *n > 0)?;
    let bytes = t.bytes.is_multiple_of(halves).then_some(t.bytes / halves)?;
    Some([0, 1].map(|half| {
        let name = format!("{stem}{}", names[half as usize]);
        let part = |e: u64| Tensor {
            name: name.clone(),
            shape: vec![columns, rows],
            bytes,
            offset: t.offset + (2 * e + half) * bytes,
            ..t.clone()
        };
        let parts: Vec<Tensor> = (0..n).map(part).collect();
        let shape = if t.shape.len() == 2 { vec![columns, rows] } else { vec![columns, rows, n] };
        (Tensor { shape, bytes: bytes * n, ..parts[0].clone() }, parts)
    }))
}

/// One tensor of the matrices of `n` experts, which must all be there, alike.
fn stacked(
    name: &str,
    mut parts: Vec<(usize, Tensor)>,
    sources: &[Source],
) -> Result<(Tensor, Vec<Tensor>), FormatError> {
    parts.sort_by_key(|(i, _)| *i);
    let first = parts[0].1.clone();
    let wrong = |t: &Tensor, expected: String, found: String| {
        let place = format!("tensor {}", quote(&t.name));
        let what = format!("experts that make no {}", quote(name));
        Err(FormatError::invalid(sources[t.file].name(), place, &what, expected, found))
    };
    for (i, (number, t)) in parts.iter().enumerate() {
        if *number != i {
            return wrong(t, format!("expert {i}"), format!("expert {number}"));
        }
        if t.dtype != first.dtype || t.shape != first.shape {
            let of = |t: &Tensor| format!("{} {:?}", t.dtype, t.shape);
            return wrong(t, format!("{} as of expert 0", of(&first)), of(t));
        }
    }
    let mut shape = first.shape.clone();
    shape.push(parts.len() as u64);
    // every part lies in its file, so that their sum is no more than a file system holds
    let bytes = parts.iter().fold(0u64, |n, (_, t)| n.saturating_add(t.bytes));
    let whole = Tensor { name: name.to_string(), shape, bytes, ..first };
    Ok((whole, parts.into_iter().map(|(_, t)| t).collect()))
}

/// The tensors with those matrices put together that `of` gives the name of a whole and a number, each where its first part
/// was, and the parts of these.
///
/// Errors: a part that is missing, or unlike the others.
fn together(
    tensors: Vec<Tensor>,
    sources: &[Source],
    of: impl Fn(&str) -> Option<(String, usize)>,
) -> Result<(Vec<Tensor>, Stacks), FormatError> {
    let (mut out, mut stacks) = (Vec::with_capacity(tensors.len()), Stacks::new());
    // where in `out` the tensor of a name belongs, and what it is made of
    let mut found: BTreeMap<String, (usize, Vec<(usize, Tensor)>)> = BTreeMap::new();
    for t in tensors {
        let Some((name, i)) = of(&t.name).filter(|_| t.shape.len() == 2) else {
            out.push(t);
            continue;
        };
        let entry = found.entry(name).or_insert_with(|| {
            out.push(t.clone());
            (out.len() - 1, vec![])
        });
        entry.1.push((i, t));
    }
    for (name, (at, parts)) in found {
        let (whole, parts) = stacked(&name, parts, sources)?;
        out[at] = whole;
        stacks.insert(name, parts);
    }
    Ok((out, stacks))
}

/// The tensors of a GGUF file with single experts put together, and the parts of those.
///
/// Errors: an expert that is missing, or unlike the others.
pub(super) fn of_old_file(tensors: Vec<Tensor>, sources: &[Source]) -> Result<(Vec<Tensor>, Stacks), FormatError> {
    together(tensors, sources, of_old)
}

/// The tensors of a directory with their experts put together, and the parts of those.
///
/// Errors: an expert that is missing, or unlike the others.
pub(super) fn gather(tensors: Vec<Tensor>, sources: &[Source]) -> Result<(Vec<Tensor>, Stacks), FormatError> {
    let (tensors, mut stacks) = together(tensors, sources, |name| of_expert(name).or_else(|| of_several(name)))?;
    let mut out = Vec::with_capacity(tensors.len());
    for t in tensors {
        if stacks.contains_key(&t.name) {
            out.push(t);
            continue;
        }
        let fused = FUSED.iter().find_map(|(end, names)| Some((t.name.strip_suffix(end)?, *names)));
        if let Some(two) = fused.and_then(|(stem, names)| halves(&t, names, stem)) {
            for (whole, parts) in two {
                if parts.len() > 1 {
                    stacks.insert(whole.name.clone(), parts);
                }
                out.push(whole);
            }
            continue;
        }
        let renamed = RENAMED.iter().find_map(|(end, new)| Some(format!("{}{new}", t.name.strip_suffix(end)?)));
        out.push(Tensor { name: renamed.unwrap_or_else(|| t.name.clone()), ..t });
    }
    Ok((out, stacks))
}

#[cfg(test)]
mod tests {
    use super::super::Dtype;
    use super::*;
    use std::borrow::Cow;

    fn tensor(name: &str, shape: &[u64], offset: u64) -> Tensor {
        let dtype = Dtype::from_name("F32").unwrap();
        Tensor {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            bytes: 4 * shape.iter().product::<u64>(),
            offset,
            file: 0,
        }
    }

    fn gathered(list: Vec<Tensor>) -> Result<(Vec<Tensor>, Stacks), FormatError> {
        gather(list, &[Source::bytes("x", Cow::Borrowed(&[0; 4]))])
    }

    #[test]
    fn matrices_of_experts_become_one_tensor_in_the_order_of_their_numbers() {
        let name = |i: usize| format!("model.layers.0.mlp.experts.{i}.up_proj.weight");
        let list = [10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9].map(|i| tensor(&name(i), &[3, 2], 24 * (11 - i as u64)));
        let (out, stacks) = gathered(list.to_vec()).unwrap();
        let whole = &out[0];
        assert_eq!((out.len(), &whole.name[..]), (1, "model.layers.0.mlp.experts.up_proj.weight"));
        assert_eq!((&whole.shape[..], whole.bytes), (&[3, 2, 11][..], 264));
        let offsets: Vec<u64> = stacks[&whole.name].iter().map(|t| t.offset).collect();
        assert_eq!(offsets, (0..11).map(|i| 24 * (11 - i)).collect::<Vec<_>>());
    }

    #[test]
    fn an_expert_that_is_missing_or_unlike_the_others_is_named() {
        let name = |i: usize| format!("model.layers.0.mlp.experts.{i}.up_proj.weight");
        let lost = gathered(vec![tensor(&name(0), &[3, 2], 0), tensor(&name(2), &[3, 2], 24)]).unwrap_err().to_string();
        assert!(lost.contains("expert 1") && lost.contains(&name(2)), "{lost}");
        let unlike =
            gathered(vec![tensor(&name(0), &[3, 2], 0), tensor(&name(1), &[2, 3], 24)]).unwrap_err().to_string();
        assert!(unlike.contains("[2, 3]") && unlike.contains(&name(1)), "{unlike}");
    }

    #[test]
    fn gate_and_up_in_one_tensor_are_two() {
        let (out, stacks) = gathered(vec![tensor("a.mlp.experts.gate_up_proj", &[3, 4, 2], 100)]).unwrap();
        let names: Vec<&str> = out.iter().map(|t| &t.name[..]).collect();
        assert_eq!(names, ["a.mlp.experts.gate_proj.weight", "a.mlp.experts.up_proj.weight"]);
        assert!(out.iter().all(|t| t.shape == [3, 2, 2] && t.bytes == 48), "{out:?}");
        let offsets = |i: usize| stacks[names[i]].iter().map(|t| t.offset).collect::<Vec<_>>();
        assert_eq!([offsets(0), offsets(1)], [vec![100, 148], vec![124, 172]]);
        let (out, stacks) = gathered(vec![tensor("a.shared_mlp.input_linear.weight", &[3, 4], 8)]).unwrap();
        assert!(stacks.is_empty() && out[1].offset == 32 && out[1].shape == [3, 2], "{out:?}");
        // what does not divide stays as it is, for whoever looks for its name
        assert_eq!(
            gathered(vec![tensor("a.experts.gate_up_proj", &[3, 5, 2], 0)]).unwrap().0[0].name,
            "a.experts.gate_up_proj"
        );
    }

    #[test]
    fn single_experts_of_an_old_file_become_one_tensor() {
        let name = |kind: &str, i: usize| format!("blk.11.ffn_{kind}.{i}.weight");
        let list: Vec<Tensor> = (0..3)
            .flat_map(|i| ["gate", "down"].map(|kind| (i, kind)))
            .enumerate()
            .map(|(at, (i, kind))| tensor(&name(kind, i), &[3, 2], 24 * at as u64))
            .collect();
        let sources = [Source::bytes("x", Cow::Borrowed(&[0; 4]))];
        let (out, stacks) = of_old_file(list, &sources).unwrap();
        let names: Vec<&str> = out.iter().map(|t| &t.name[..]).collect();
        assert_eq!(names, ["blk.11.ffn_gate_exps.weight", "blk.11.ffn_down_exps.weight"]);
        assert!(out.iter().all(|t| t.shape == [3, 2, 3] && t.bytes == 72), "{out:?}");
        assert_eq!(stacks[names[1]].iter().map(|t| t.offset).collect::<Vec<_>>(), [24, 72, 120]);
        for name in
            ["blk.0.ffn_gate.weight", "blk.0.ffn_gate.01.weight", "blk.0.attn_q.1.weight", "blk.0.ffn_up.1.bias"]
        {
            let (out, stacks) = of_old_file(vec![tensor(name, &[3, 2], 0)], &sources).unwrap();
            assert!(stacks.is_empty() && out[0].name == name, "{name}");
        }
    }

    #[test]
    fn names_that_only_look_alike_stay() {
        for name in [
            "a.experts.03.up.weight",
            "a.experts.x.up.weight",
            "a.experts.1.up.bias",
            "experts.1.up.weight",
            "a.experts.1",
        ] {
            let (out, stacks) = gathered(vec![tensor(name, &[3, 2], 0)]).unwrap();
            assert!(stacks.is_empty() && out[0].name == name && out[0].shape == [3, 2], "{name}");
        }
        let (out, _) = gathered(vec![tensor("a.mlp.gate.e_score_correction_bias", &[3], 0)]).unwrap();
        assert_eq!(out[0].name, "a.mlp.gate.e_score_correction.bias");
    }
}

//! Measures a whole model: each weight matrix encoded in each type, decoded, compared, and summed up by group.
//!
//! Tensors are read one after the other in pieces of a fixed number of elements, so memory does not grow with the
//! model, and statistics are added in the order of the pieces, so they do not depend on the number of threads.

use super::errors::Errors;
use crate::blocks::BlockType;
use crate::formats::policy::{Group, Place, Policy, place};
use crate::formats::{Container, Tensor};
use anyhow::{Context, bail, ensure};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Elements a thread takes at once: whole blocks of every type.
const PIECE: u64 = 1 << 16;
/// Pieces read from the file at once, at most 16 MiB.
const PIECES: u64 = 64;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// the types; the first is the baseline
    pub types: Vec<BlockType>,
    /// which tensors get the other types, the rest keeping the baseline; `None`: every matrix, embeddings too
    pub policy: Option<Policy>,
    /// threshold of a spiky block
    pub spiky: f64,
}

/// One tensor under every type.
#[derive(Clone, Debug)]
pub struct TensorErrors {
    /// its name in the file
    pub name: String,
    /// where in the model it is
    pub place: Place,
    /// the type it has in the file
    pub source: BlockType,
    /// its dimensions, fastest first
    pub shape: Vec<u64>,
    /// one per type; of a tensor that the policy does not select only the baseline's
    pub types: Vec<Errors>,
}

/// A matrix that was left out, and why.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// its name in the file
    pub name: String,
    /// why
    pub why: String,
}

/// A tensor that will be measured.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    tensor: &'a Tensor,
    place: Place,
    source: BlockType,
    types: usize,
}

/// The tensors of a container to be measured, and the matrices left out.
///
/// Errors: nothing to measure at all.
pub fn plan<'a>(c: &'a Container, wanted: &Wanted) -> anyhow::Result<(Vec<Job<'a>>, Vec<Skipped>)> {
    let (mut jobs, mut skipped) = (Vec::new(), Vec::new());
    for t in c.tensors.iter().filter(|t| t.shape.len() >= 2) {
        let mut skip = |why: String| skipped.push(Skipped { name: t.name.clone(), why });
        let Some(place) = place(&t.name) else {
            skip("not a name of a known weight matrix".into());
            continue;
        };
        let Some(source) = t.dtype.block() else {
            skip(format!("its type {} cannot be decoded", t.dtype.name()));
            continue;
        };
        let selected = wanted.policy.is_none_or(|p| p.selects(place));
        let types = if selected { wanted.types.len() } else { 1 };
        let columns = t.shape[0];
        match wanted.types[..types].iter().find(|ty| !columns.is_multiple_of(ty.elems() as u64)) {
            Some(ty) => skip(format!("rows of {columns} are not whole {} blocks of {}", ty.name(), ty.elems())),
            None if t.elems() == 0 => skip("it is empty".into()),
            None => jobs.push(Job { tensor: t, place, source, types }),
        }
    }
    ensure!(
        !jobs.is_empty(),
        "{}: no weight matrix to measure{}",
        c.files[0].display(),
        skipped.first().map_or(String::new(), |s| format!("; {} was left out: {}", s.name, s.why))
    );
    Ok((jobs, skipped))
}

impl Job<'_> {
    /// Bytes that will be read.
    pub fn bytes(&self) -> u64 {
        self.tensor.bytes
    }

    /// Measures the tensor; `progress` hears how many bytes were read.
    ///
    /// Errors: a read that fails; a weight that is NaN or infinite, or too large for a type.
    pub fn measure(&self, c: &Container, w: &Wanted, mut progress: impl FnMut(u64)) -> anyhow::Result<TensorErrors> {
        let t = self.tensor;
        let file = || format!("{}: tensor {}", c.files[t.file].display(), t.name);
        let types = &w.types[..self.types];
        let bytes_of = |elems: u64| elems / self.source.elems() as u64 * self.source.bytes() as u64;
        let mut all = vec![Errors::default(); types.len()];
        let mut bytes = vec![0u8; bytes_of(t.elems().min(PIECE * PIECES)) as usize];
        let mut done = 0;
        while done < t.elems() {
            let elems = (t.elems() - done).min(PIECE * PIECES);
            let bytes = &mut bytes[..bytes_of(elems) as usize];
            c.read(t, bytes_of(done), bytes)?;
            let pieces: Vec<Vec<Errors>> = bytes
                .par_chunks(bytes_of(PIECE) as usize)
                .enumerate()
                .map(|(i, piece)| {
                    measure_piece(self.source, piece, types, w.spiky)
                        .with_context(|| format!("{}, elements from {}", file(), done + i as u64 * PIECE))
                })
                .collect::<anyhow::Result<_>>()?;
            for piece in &pieces {
                for (sum, e) in all.iter_mut().zip(piece) {
                    sum.add(e);
                }
            }
            progress(bytes.len() as u64);
            done += elems;
        }
        Ok(TensorErrors {
            name: t.name.clone(),
            place: self.place,
            source: self.source,
            shape: t.shape.clone(),
            types: all,
        })
    }
}

fn measure_piece(source: BlockType, bytes: &[u8], types: &[BlockType], spiky: f64) -> anyhow::Result<Vec<Errors>> {
    if let Some(i) = source.find_bad_scale(bytes) {
        bail!("block {i} holds a NaN or an infinity");
    }
    let n = bytes.len() / source.bytes() * source.elems();
    let (mut weights, mut decoded) = (vec![0f32; n], vec![0f32; n]);
    source.decode_row(bytes, &mut weights);
    if let Some(i) = weights.iter().position(|v| !v.is_finite()) {
        bail!("element {i} is {}", weights[i]);
    }
    let mut encoded = Vec::new();
    let mut out = Vec::with_capacity(types.len());
    for &ty in types {
        encoded.resize(n / ty.elems() * ty.bytes(), 0);
        ty.encode_row(&weights, &mut encoded);
        ty.decode_row(&encoded, &mut decoded);
        if let Some(i) = decoded.iter().position(|v| !v.is_finite()) {
            bail!("element {i} is {}, which {} cannot hold; leave that type out", weights[i], ty.name());
        }
        let mut e = Errors::default();
        e.row(&weights, &decoded, ty.elems(), spiky);
        out.push(e);
    }
    Ok(out)
}

/// One group, or the whole model, under every type.
#[derive(Clone, Debug)]
pub struct Summary {
    /// `None`: the whole model, tensors that were not selected counted with the baseline
    pub group: Option<Group>,
    /// how many tensors
    pub tensors: usize,
    /// one per type
    pub types: Vec<TypeSummary>,
}

/// A group under one type.
#[derive(Clone, Debug, Default)]
pub struct TypeSummary {
    /// all its tensors together
    pub errors: Errors,
    /// layers with tensors of the group
    pub layers: usize,
    /// layers whose RMSE is below the baseline's
    pub improved: usize,
    /// layers whose RMSE is above the baseline's
    pub worse: usize,
}

impl Summary {
    /// The name in tables and gates: the group's, or `model`.
    pub fn name(&self) -> &'static str {
        self.group.map_or("model", Group::name)
    }

    fn of(group: Option<Group>, tensors: &[&TensorErrors], types: usize) -> Summary {
        let mut layers: BTreeMap<(Group, Option<usize>), Vec<Errors>> = BTreeMap::new();
        for t in tensors {
            let sums = layers.entry((t.place.group, t.place.layer)).or_insert_with(|| vec![Errors::default(); types]);
            for (i, sum) in sums.iter_mut().enumerate() {
                sum.add(t.types.get(i).unwrap_or(&t.types[0]));
            }
        }
        let mut out = vec![TypeSummary::default(); types];
        for sums in layers.values() {
            for (s, e) in out.iter_mut().zip(sums) {
                s.errors.add(e);
                s.layers += 1;
                s.improved += usize::from(e.rmse() < sums[0].rmse());
                s.worse += usize::from(e.rmse() > sums[0].rmse());
            }
        }
        Summary { group, tensors: tensors.len(), types: out }
    }
}

/// The groups that were measured under every type, in the order of [`Group::ALL`], and the model last.
pub fn summarise(tensors: &[TensorErrors], types: usize) -> Vec<Summary> {
    let mut out = Vec::new();
    for group in Group::ALL {
        let of: Vec<&TensorErrors> =
            tensors.iter().filter(|t| t.place.group == group && t.types.len() == types).collect();
        if !of.is_empty() {
            out.push(Summary::of(Some(group), &of, types));
        }
    }
    out.push(Summary::of(None, &tensors.iter().collect::<Vec<_>>(), types));
    out
}

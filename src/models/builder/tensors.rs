//! Tensors claimed by name and shape, as vectors and as matrices in buffers of whole row blocks.

use super::{Builder, Input, Matrix, Scale, tensor_name};
use crate::blocks::{BlockType, pack};
use crate::formats::names::Spelling;
use crate::models::error::PlanError;
use crate::models::family::Family;
use crate::models::vector;
use crate::ops::exact::flush;
use crate::ops::linear::ROW_BLOCK;
use crate::record::{BufId, Change, Part, Piece, Role};
use anyhow::{Context, bail, ensure};
use std::ops::Range;

impl Builder<'_> {
    /// The tensor's index and type.
    pub fn claim(&mut self, name: &str, shape: &[usize]) -> anyhow::Result<(usize, BlockType)> {
        let file = self.c.files[0].display();
        let index = self.c.index_of(name).with_context(|| format!("{file}: tensor {name} is missing"))?;
        let t = &self.c.tensors[index];
        let found: Vec<usize> = t.shape.iter().map(|&d| d as usize).collect();
        ensure!(found == shape, "{file}: tensor {name} has shape {found:?}, the config asks for {shape:?}");
        let ty = t.dtype.block().with_context(|| {
            let known: Vec<&str> = BlockType::ALL.iter().map(|t| t.name()).collect();
            format!(
                "{file}: tensor {name} is {}, which is not supported (supported: {})",
                t.dtype.name(),
                known.join(", ")
            )
        })?;
        self.claimed.insert(name.to_string());
        Ok((index, ty))
    }

    /// The name in the file of `what.suffix` of this layer.
    pub fn name(&self, what: &str, suffix: &str) -> String {
        tensor_name(self.spelling, self.h.family.name(), what, self.layer, suffix)
    }

    /// Whether the file has `what.suffix` of this layer.
    pub fn has(&self, what: &str, suffix: &str) -> bool {
        self.c.tensor(&self.name(what, suffix)).is_some()
    }

    /// Whether heads of queries and keys have layer norms of their own, which some models of a family have and others not.
    pub fn has_layer_norms_of_heads(&self) -> bool {
        let family = self.h.family;
        let name = tensor_name(self.spelling, family.name(), "attn_q_norm", Some(self.layer.unwrap_or(0)), "weight");
        family.has_layer_norm() && self.c.tensor(&name).is_some()
    }

    /// Refuses a file that has no `what.suffix` of this layer.
    pub fn need(&self, what: &str, suffix: &str) -> anyhow::Result<()> {
        let (file, name) = (self.c.files[0].display(), self.name(what, suffix));
        ensure!(self.has(what, suffix), "{file}: tensor {name} is missing");
        Ok(())
    }

    /// Has a place for `what.weight` of a layer that does without it.
    pub fn leave(&mut self, what: &str) {
        self.claimed.insert(self.name(what, "weight"));
    }

    /// The one number of the tensor `what` of this layer; `None` where the file has none.
    pub fn number(&mut self, what: &str) -> anyhow::Result<Option<f32>> {
        let name = self.name(what, "weight");
        if self.c.tensor(&name).is_none() {
            return Ok(None);
        }
        let (tensor, _) = self.claim(&name, &[1])?;
        Ok(Some(flush(vector::vector(self.c, &self.c.tensors[tensor])?[0])))
    }

    /// A vector of f32, converted when loaded: `what.suffix` of this layer, `[len]`.
    pub fn vector(&mut self, what: &str, suffix: &str, len: usize) -> anyhow::Result<BufId> {
        let [v] = self.fused_vector(what, suffix, [len])?;
        Ok(v)
    }

    /// The same of every expert, `[expert][len]`, as one.
    pub fn vectors(&mut self, what: &str, suffix: &str, [len, count]: [usize; 2]) -> anyhow::Result<BufId> {
        let name = self.name(what, suffix);
        let (tensor, _) = self.claim(&name, &[len, count])?;
        let part = Part::Vector { first: 0, len: len * count, change: Change::None };
        self.buffer(&name, len * count, Role::Weight(vec![Piece { tensor, part }]))
    }

    /// The weights of the norm `what`, `[len]`.
    pub fn norm_weights(&mut self, what: &str, len: usize) -> anyhow::Result<BufId> {
        let id = self.vector(what, "weight", len)?;
        let less = self.h.family.norms_less_one() && self.spelling != Spelling::Gguf;
        if let (true, Role::Weight(pieces)) = (less, &mut self.buffers[id].role) {
            for p in pieces {
                if let Part::Vector { change, .. } = &mut p.part {
                    *change = Change::PlusOne;
                }
            }
        }
        Ok(id)
    }

    /// A vector that holds several one after the other, `[len\[0\] + len\[1\] + …]`, as vectors of their own.
    pub(super) fn fused_vector<const N: usize>(
        &mut self,
        what: &str,
        suffix: &str,
        lens: [usize; N],
    ) -> anyhow::Result<[BufId; N]> {
        let name = self.name(what, suffix);
        let total = lens.iter().sum();
        let (tensor, _) = self.claim(&name, &[total])?;
        let (mut list, mut first) = ([0; N], 0);
        for (id, len) in list.iter_mut().zip(lens) {
            let label = if len == total { name.clone() } else { format!("{name} elements {first}..{}", first + len) };
            *id = self.buffer(
                &label,
                len,
                Role::Weight(vec![Piece { tensor, part: Part::Vector { first, len, change: Change::None } }]),
            )?;
            first += len;
        }
        Ok(list)
    }

    /// A matrix of this layer, `[rows][k]`, split where it exceeds the binding limit.
    pub fn matrix(&mut self, what: &str, k: usize, rows: usize) -> anyhow::Result<Matrix> {
        let [m] = self.fused(what, k, [rows])?;
        Ok(m)
    }

    /// A matrix that holds several below each other, `[rows\[0\] + rows\[1\] + …][k]`, as matrices of their own.
    pub fn fused<const N: usize>(&mut self, what: &str, k: usize, rows: [usize; N]) -> anyhow::Result<[Matrix; N]> {
        let name = self.name(what, "weight");
        let total = rows.iter().sum();
        let (tensor, ty) = self.claim(&name, &[k, total])?;
        let mut first = 0;
        let mut list = Vec::with_capacity(N);
        for n in rows {
            list.push(self.rows_of(tensor, ty, k, first..first + n, n == total)?);
            first += n;
        }
        Ok(list.try_into().unwrap_or_else(|_| unreachable!("one matrix for each of {N}")))
    }

    /// These of `n` matrices `[rows][k]` that a tensor holds, `[k, rows, n]`, below each other as one.
    pub fn stacked_rows(
        &mut self,
        what: &str,
        [k, rows, n]: [usize; 3],
        range: Range<usize>,
    ) -> anyhow::Result<Matrix> {
        let (tensor, ty) = self.claim(&self.name(what, "weight"), &[k, rows, n])?;
        let whole = range.len() == n;
        self.rows_of(tensor, ty, k, range.start * rows..range.end * rows, whole)
    }

    /// Rows of a tensor as a matrix; `whole`: of all its rows.
    pub fn rows_of(
        &mut self,
        tensor: usize,
        t: BlockType,
        k: usize,
        range: Range<usize>,
        whole: bool,
    ) -> anyhow::Result<Matrix> {
        let (name, ty) = (&self.c.tensors[tensor].name, self.o.packing.layers.packed(t));
        let part_rows = self.rows_bound(ty, k);
        ensure!(
            part_rows > 0,
            PlanError::Binding { what: format!("32 rows of tensor {name}"), limit: self.o.max_binding_words * 4 }
        );
        let mut parts = Vec::new();
        for row0 in range.clone().step_by(part_rows) {
            let n = part_rows.min(range.end - row0);
            let label =
                if whole && n == range.len() { name.to_string() } else { format!("{name} rows {row0}..{}", row0 + n) };
            let role = Role::Weight(vec![Piece { tensor, part: Part::Rows { t, packed: ty, k, row0, rows: n } }]);
            parts.push((self.buffer(&label, pack::packed_words(ty, n, k), role)?, row0 - range.start, n));
        }
        let scale = self.scale_of(tensor, None)?;
        Ok(Matrix { ty, input: self.input_of(tensor, ty)?, k, rows: range.len(), scale, parts })
    }

    /// What the file has beside a matrix to multiply its products with, as conversions to NVFP4 leave it: `X.scale`, one number,
    /// or one for each of the `experts`, of `X.weight`. The scale of activations beside that is for their quantising to fp4.
    pub fn scale_of(&mut self, tensor: usize, experts: Option<usize>) -> anyhow::Result<Scale> {
        let name = &self.c.tensors[tensor].name;
        let gemma4 = self.h.family == Family::Gemma4;
        // whose router has a vector by that name
        let has = |stem: &&str| self.spelling == Spelling::Gguf && !(gemma4 && stem.ends_with("ffn_gate_inp"));
        let Some(stem) = name.strip_suffix(".weight").filter(|stem| has(stem) || gemma4 && experts.is_some()) else {
            return Ok(Scale::One(1.0));
        };
        let (name, input, n) = (format!("{stem}.scale"), format!("{stem}.input_scale"), experts.unwrap_or(1));
        if self.c.tensor(&input).is_some() {
            self.claim(&input, &[n])?;
        }
        if self.c.tensor(&name).is_none() {
            return Ok(Scale::One(1.0));
        }
        let (tensor, _) = self.claim(&name, &[n])?;
        if experts.is_none() {
            return Ok(Scale::One(flush(vector::vector(self.c, &self.c.tensors[tensor])?[0])));
        }
        let part = Part::Vector { first: 0, len: n, change: Change::None };
        Ok(Scale::Experts(self.buffer(&name, n, Role::Weight(vec![Piece { tensor, part }]))?))
    }

    /// Rows of `k` elements that one binding holds, whole blocks of them.
    pub fn rows_bound(&self, ty: BlockType, k: usize) -> usize {
        self.o.max_binding_words / pack::words_per_row(ty, k) / ROW_BLOCK * ROW_BLOCK
    }

    /// What a matrix of packed type `ty` is multiplied with.
    pub fn input_of(&self, tensor: usize, ty: BlockType) -> anyhow::Result<Input> {
        Ok(match self.c.activations(&self.c.tensors[tensor].name) {
            _ if ty.is_float() => Input::Floats,
            Some(how) if ty.meets_rows() => Input::Rows(how),
            None if ty.meets_rows() => {
                bail!("{}: nothing says how its activations are quantised", self.c.tensors[tensor].name)
            }
            _ => Input::Groups,
        })
    }
}

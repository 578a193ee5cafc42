//! The parts of a matrix: finding them by name, their shapes, and reading their numbers.

use super::super::Tensor;
use super::super::error::{FormatError, quote};
use super::{COLUMNS, Fate, LEAST_SCALE, MOST_OFFSET, Reader};
use crate::blocks::{BlockType, bf16_to_f32, f16_to_f32};
use serde_json::Value;
use std::fmt::Display;

/// The columns of a linear layer by its name and the model's config; `None` where that does not say.
pub(super) fn columns_of(stem: &str, config: &Value) -> Option<u64> {
    let n = |key: &str| config[key].as_u64().filter(|n| *n > 0);
    let heads = |of_one: &str| n(of_one).and_then(|d| d.checked_mul(n("num_attention_heads")?));
    match stem.rsplit('.').next()? {
        "down_proj" => n("intermediate_size"),
        "dense_4h_to_h" => n("ffn_hidden_size"),
        "o_proj" => heads("head_dim").or(n("hidden_size")),
        "dense" => heads("kv_channels").or(n("hidden_size")),
        "q_proj" | "k_proj" | "v_proj" | "qkv_proj" | "query_key_value" | "gate_proj" | "up_proj" | "gate_up_proj"
        | "dense_h_to_4h" | "lm_head" | "output_layer" => n("hidden_size"),
        _ => None,
    }
}

/// Most channels of keys or values, all heads together.
const MOST_CHANNELS: u64 = 1 << 20;

/// Norms inside a layer, and the matrices that may follow each.
const AFTER: [(&str, &[&str]); 2] = [
    (
        "input_layernorm",
        &[
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "self_attn.qkv_proj",
            "self_attention.query_key_value",
        ],
    ),
    ("post_attention_layernorm", &["mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj", "mlp.dense_h_to_4h"]),
];

/// Norms outside the layers, and the matrix that follows each.
const AFTER_ALL: [(&str, &str); 2] = [("model.norm", "lm_head"), ("encoder.final_layernorm", "output_layer")];

/// The names of the matrices that may follow a norm.
pub(super) fn after(norm: &str) -> Vec<String> {
    if let Some((prefix, next)) = AFTER_ALL.iter().find_map(|(n, next)| Some((norm.strip_suffix(n)?, next))) {
        return vec![format!("{prefix}{next}.weight")];
    }
    let Some((prefix, last)) = norm.rsplit_once('.') else {
        return vec![];
    };
    let known = AFTER.iter().find(|(n, _)| *n == last).map_or(&[][..], |(_, next)| next);
    known.iter().map(|next| format!("{prefix}.{next}.weight")).collect()
}

impl Reader<'_> {
    /// The error of tensor `i`.
    pub(super) fn wrong(
        &self,
        i: usize,
        what: impl Into<String>,
        expected: impl Display,
        found: impl Display,
    ) -> FormatError {
        let t = &self.tensors[i];
        FormatError::invalid(self.sources[t.file].name(), format!("tensor {}", quote(&t.name)), what, expected, found)
    }

    /// A shape as the file has it: the slowest dimension first.
    pub(super) fn shape(&self, i: usize) -> String {
        format!("{:?}", self.tensors[i].shape.iter().rev().collect::<Vec<_>>())
    }

    /// Whether a tensor holds numbers that are computed with as they are.
    pub(super) fn is_float(&self, i: usize) -> bool {
        matches!(self.tensors[i].dtype.block(), Some(BlockType::F32 | BlockType::F16 | BlockType::BF16))
    }

    /// Whether a tensor is a list of such numbers.
    pub(super) fn is_vector(&self, i: usize) -> bool {
        self.is_float(i) && self.tensors[i].shape.len() == 1
    }

    /// Refuses what is no list of numbers.
    pub(super) fn vector(&self, i: usize) -> Result<(), FormatError> {
        if self.is_vector(i) {
            return Ok(());
        }
        let found = format!("{} {}", self.tensors[i].dtype, self.shape(i));
        Err(self.wrong(i, "not a list of numbers", "one dimension of F32, F16 or BF16", found))
    }

    /// The part of this name beside matrix `i`, which is then no tensor of its own. Errors: its scheme is another.
    pub(super) fn part(&mut self, i: usize, part: &str) -> Result<Option<usize>, FormatError> {
        let stem = self.tensors[i].name.strip_suffix("weight").unwrap_or_default();
        let Some(&j) = self.by_name.get(format!("{stem}{part}").as_str()) else {
            return Ok(None);
        };
        let (own, matrix) = (self.schemes[j], self.schemes[i]);
        if own != matrix {
            return Err(self.wrong(j, "a scheme that is not its matrix's", matrix.word(), own.word()));
        }
        self.fates[j] = Fate::Gone;
        Ok(Some(j))
    }

    /// The part of this name, which must be there.
    pub(super) fn need(&mut self, i: usize, part: &str) -> Result<usize, FormatError> {
        let missing = |r: &Self| {
            let expected = format!("a tensor {part} beside it, as {} has it", r.schemes[i].word());
            r.wrong(i, "a matrix without all of its parts", expected, "none")
        };
        self.part(i, part)?.ok_or_else(|| missing(self))
    }

    /// Columns and rows of the codes of matrix `i`, as the file has them.
    pub(super) fn codes(&self, i: usize) -> Result<(u64, u64), FormatError> {
        let t = &self.tensors[i];
        match t.shape[..] {
            [columns, rows] if t.dtype.name() == "I8" && columns > 0 && rows > 0 => Ok((columns, rows)),
            _ => {
                let expected = format!("rows and columns of I8 for {}", self.schemes[i].word());
                Err(self.wrong(i, "not a matrix of codes", expected, format_args!("{} {}", t.dtype, self.shape(i))))
            }
        }
    }

    /// Refuses rows that are not whole blocks.
    pub(super) fn whole_blocks(&self, i: usize, columns: u64) -> Result<(), FormatError> {
        if columns.is_multiple_of(COLUMNS) {
            return Ok(());
        }
        Err(self.wrong(i, "rows that are not whole blocks", format_args!("a multiple of {COLUMNS} columns"), columns))
    }

    /// How many numbers tensor `j` has for each of `rows` rows.
    pub(super) fn groups(&self, j: usize, rows: u64) -> Result<u64, FormatError> {
        match self.tensors[j].shape[..] {
            [n] if n == rows => Ok(1),
            [groups, n] if n == rows && groups > 0 => Ok(groups),
            _ => {
                let expected = format!("[{rows}], [{rows}, 1] or [{rows}, groups]");
                Err(self.wrong(j, "a shape that is not its matrix's", expected, self.shape(j)))
            }
        }
    }

    /// Refuses a tensor that has not one number for each of `rows` rows.
    pub(super) fn of_rows(&self, j: usize, rows: u64) -> Result<(), FormatError> {
        match self.tensors[j].shape[..] {
            [n] | [1, n] if n == rows => Ok(()),
            _ => {
                let expected = format!("[{rows}] or [{rows}, 1]");
                Err(self.wrong(j, "a shape that is not its matrix's", expected, self.shape(j)))
            }
        }
    }

    /// Channels of a scale or an offset of the cache.
    pub(super) fn channels(&self, j: usize) -> Result<u64, FormatError> {
        match self.tensors[j].shape[..] {
            [n] | [1, n] if (1..=MOST_CHANNELS).contains(&n) => Ok(n),
            _ => {
                let expected = format!("[channels] or [channels, 1], at most {MOST_CHANNELS}");
                Err(self.wrong(j, "not a number for each channel", expected, self.shape(j)))
            }
        }
    }

    /// The bytes of a tensor.
    fn bytes(&self, j: usize) -> Result<Vec<u8>, FormatError> {
        let t: &Tensor = &self.tensors[j];
        // the file has as many, or its header would have been refused
        let mut bytes = vec![0; t.bytes as usize];
        self.sources[t.file].read_at(t.offset, &mut bytes, &|| format!("tensor {}", quote(&t.name)))?;
        Ok(bytes)
    }

    /// The numbers of a tensor of floats. Errors: another type, or a number that is not finite.
    pub(super) fn floats(&self, j: usize) -> Result<Vec<f32>, FormatError> {
        let t = &self.tensors[j];
        let halves = |bytes: &[u8], wide: fn(u16) -> f32| {
            bytes.as_chunks().0.iter().map(|b| wide(u16::from_le_bytes(*b))).collect::<Vec<f32>>()
        };
        let values = match t.dtype.block() {
            Some(BlockType::F32) => {
                self.bytes(j)?.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<f32>>()
            }
            Some(BlockType::F16) => halves(&self.bytes(j)?, f16_to_f32),
            Some(BlockType::BF16) => halves(&self.bytes(j)?, bf16_to_f32),
            _ => return Err(self.wrong(j, "numbers of another type", "F32, F16 or BF16", t.dtype)),
        };
        self.finite(j, &values)?;
        Ok(values)
    }

    fn finite(&self, j: usize, values: &[f32]) -> Result<(), FormatError> {
        match values.iter().position(|v| !v.is_finite()) {
            None => Ok(()),
            Some(at) => {
                let found = format!("{:?} at element {at}", values[at]);
                Err(self.wrong(j, "a number that is not finite", "finite numbers", found))
            }
        }
    }

    /// The scales of results: f32, or their bits in an i64 with the sign extended.
    pub(super) fn deq_scales(&self, j: usize) -> Result<Vec<f32>, FormatError> {
        let t = &self.tensors[j];
        if t.dtype.name() != "I64" {
            return match t.dtype.block() {
                Some(BlockType::F32) => self.floats(j),
                _ => Err(self.wrong(j, "numbers of another type", "F32, or I64 with the bits of F32", t.dtype)),
            };
        }
        let bytes = self.bytes(j)?;
        let mut values = Vec::with_capacity(bytes.len() / 8);
        for (row, b) in bytes.as_chunks().0.iter().enumerate() {
            let v = i64::from_le_bytes(*b);
            if ![0, -1].contains(&(v >> 32)) {
                let expected = "the bits of an f32, with 0 or -1 in the upper half";
                return Err(self.wrong(j, "a scale that is no f32", expected, format_args!("{v:#018x} in row {row}")));
            }
            values.push(f32::from_bits(v as u32));
        }
        self.finite(j, &values)?;
        Ok(values)
    }

    /// The numbers of a tensor of i32.
    pub(super) fn integers(&self, j: usize) -> Result<Vec<i32>, FormatError> {
        if self.tensors[j].dtype.name() != "I32" {
            return Err(self.wrong(j, "numbers of another type", "I32", self.tensors[j].dtype));
        }
        Ok(self.bytes(j)?.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect())
    }

    /// Offsets with `added` to each, as blocks have them.
    pub(super) fn offsets(&self, j: usize, added: f32) -> Result<Vec<i8>, FormatError> {
        let code = |v: f32| {
            let sum = v + added;
            let fits = v.fract() == 0.0 && (-128.0..128.0).contains(&sum);
            fits.then_some(sum as i8).ok_or_else(|| {
                let expected = format!("whole numbers from {} to {}", -128.0 - added, 127.0 - added);
                self.wrong(j, "an offset that blocks do not hold", expected, format_args!("{v:?}"))
            })
        };
        self.floats(j)?.into_iter().map(code).collect()
    }

    /// Offsets of a scheme that has none: zeros, where they are there at all.
    pub(super) fn zero_offsets(&mut self, i: usize, rows: u64) -> Result<(), FormatError> {
        let Some(j) = self.part(i, "weight_offset")? else {
            return Ok(());
        };
        self.of_rows(j, rows)?;
        match self.floats(j)?.iter().find(|v| **v != 0.0) {
            None => Ok(()),
            Some(v) => {
                let what = format!("an offset in {}", self.schemes[i].word());
                Err(self.wrong(j, what, "zeros", format_args!("{v:?}")))
            }
        }
    }

    /// A tensor's only number.
    pub(super) fn one(&self, j: usize) -> Result<f32, FormatError> {
        if self.tensors[j].elems() != 1 {
            return Err(self.wrong(j, "not one number", "[1]", self.shape(j)));
        }
        Ok(self.floats(j)?[0])
    }

    /// Refuses a scale that nothing is to be divided by.
    pub(super) fn divides(&self, j: usize, scale: f32) -> Result<(), FormatError> {
        if scale >= LEAST_SCALE {
            return Ok(());
        }
        Err(self.wrong(j, "a scale that is too small", "at least 2^-40", format_args!("{scale:?}")))
    }

    /// Refuses an offset that is beyond all codes.
    pub(super) fn shifts(&self, j: usize, offset: f32) -> Result<(), FormatError> {
        if offset.abs() <= MOST_OFFSET {
            return Ok(());
        }
        Err(self.wrong(j, "an offset that is too large", "at most 2^15 of either sign", format_args!("{offset:?}")))
    }

    /// The bias of a linear layer: a vector of its own. Where the scheme holds it elsewhere nobody adds it, but another form
    /// of the model needs it.
    pub(super) fn bias(&mut self, i: usize, rows: u64) -> Result<(), FormatError> {
        let stem = self.tensors[i].name.strip_suffix("weight").unwrap_or_default();
        let Some(&j) = self.by_name.get(format!("{stem}bias").as_str()) else {
            return Ok(());
        };
        self.vector(j)?;
        if self.tensors[j].shape != [rows] {
            return Err(self.wrong(j, "a shape that is not its matrix's", format_args!("[{rows}]"), self.shape(j)));
        }
        self.fates[j] = Fate::Is(self.tensors[j].clone());
        Ok(())
    }
}

//! msModelSlim's weights (AscendV1): safetensors files and a description that says which scheme each tensor belongs to.
//!
//! Of a linear layer P with n rows and k columns the files have
//!
//! | scheme | tensors | weight |
//! |---|---|---|
//! | FLOAT | P.weight, P.bias | as it is |
//! | W8A16 | weight i8 \[n, k\]; weight_scale and weight_offset \[n\], \[n, 1\] or \[n, groups\] | (q - offset) · scale |
//! | W4A16 | the same; weight i8 \[n/2, k\] or \[n, k/2\] with two codes to a byte, or \[n, k\] | (q - offset) · scale |
//! | W8A8, W8A8S | weight i8 \[n, k\]; deq_scale f32 or i64 \[n\], quant_bias i32 \[n\], input_scale and input_offset \[1\] | q · deq_scale / input_scale |
//! | W8A8_DYNAMIC, W4A4_DYNAMIC | weight i8 \[n, k\]; weight_scale \[n, 1\], weight_offset of zeros | q · scale |
//! | W4A8_DYNAMIC | weight i8 \[n/2, k\] with two rows to a byte; the same and scale_bias | q · scale |
//! | W8A8_MIX | the tensors of W8A8 and of W8A8_DYNAMIC | as W8A8_DYNAMIC |
//!
//! Scales and offsets are F32, F16 or BF16. Of two codes in a byte the even one is low; all have signs. An i64 in deq_scale
//! is the bits of an f32 with its sign extended. quant_bias holds the layer's bias, so P.bias, which is kept, is not added to W8A8;
//! scale_bias makes up for codes without signs, which other hardware computes with, and belongs to no weight.
//!
//! NORM.module.weight and NORM.module.bias replace NORM.weight where the linear layers that follow are quantised, and are
//! left out where they are not. Scales and offsets of a quantised cache (C8) are named as those of k_proj and v_proj in all
//! models.
//!
//! To the rest of the engine a quantised matrix is a tensor of W8A16, W4A16, W8A8 or Q8K128 that lies behind the end of its
//! file (`matrix`). Codes are read when they are asked for; scales, offsets and biases, which are small beside them, when
//! the directory is opened. (Source: msModelSlim's page on its weight format, and its saver.)

mod description;
mod matrix;
mod parts;

use super::dtype::Dtype;
use super::error::{FormatError, quote};
use super::source::Source;
use super::{Activations, Tensor, names};
use crate::blocks::{BlockType, w8a8};
pub use description::Description;
use description::Scheme;
use matrix::{Codes, Lengthened, Matrix, Numbers, Row};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Columns of W8A16, W4A16 and W8A8 blocks.
const COLUMNS: u64 = BlockType::W8A16.elems() as u64;
/// Columns of a block of Q8K128.
const LONG: u64 = BlockType::Q8K128.elems() as u64;
/// The smallest scale that activations or the cache are divided by: 2^-40.
const LEAST_SCALE: f32 = 1.0 / (1u64 << 40) as f32;
/// The largest offset of activations or the cache, of either sign.
const MOST_OFFSET: f32 = (1 << 15) as f32;

/// What the tensors of a directory became.
pub(super) struct Resolved {
    pub tensors: Vec<Tensor>,
    pub sources: Vec<Source>,
    pub activations: BTreeMap<String, Activations>,
}

/// The error of a scheme that is not read.
fn not_read(file: &str, scheme: Scheme, tensor: &str) -> FormatError {
    let what = format!("the scheme {} of {}", scheme.word(), quote(tensor));
    FormatError::unsupported(file, what, "quantise the model with W8A16, W8A8, W8A8_DYNAMIC or W4A8_DYNAMIC")
}

/// What becomes of a tensor.
enum Fate {
    /// nothing has been decided
    Open,
    /// it is a part of another one, or not needed
    Gone,
    Is(Tensor),
}

/// The tensors of the files, and what becomes of them.
struct Reader<'a> {
    tensors: &'a [Tensor],
    sources: &'a [Source],
    config: &'a Value,
    group_size: Option<u64>,
    by_name: HashMap<&'a str, usize>,
    schemes: Vec<Scheme>,
    fates: Vec<Fate>,
    /// of each source
    matrices: Vec<Vec<Matrix>>,
    /// length of each source with its matrices
    ends: Vec<u64>,
    activations: BTreeMap<String, Activations>,
}

/// Puts the tensors of a directory together as the description has them: matrices of codes and their numbers become tensors
/// of block types, and the sources that have them are lengthened.
///
/// Errors: a tensor without entry, an entry without tensor, a scheme that is not known or not read, parts that are missing,
/// of another type or shape than their scheme has, or beyond what the engine computes with.
pub(super) fn resolve(
    description: &Description,
    config: &Value,
    tensors: Vec<Tensor>,
    sources: Vec<Source>,
) -> Result<Resolved, FormatError> {
    let by_name: HashMap<&str, usize> = tensors.iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
    description.check(|name| by_name.contains_key(name))?;
    let mut schemes = Vec::with_capacity(tensors.len());
    for t in &tensors {
        let Some(scheme) = description.scheme(&t.name)? else {
            return Err(FormatError::invalid(
                sources[t.file].name(),
                format!("tensor {}", quote(&t.name)),
                "a tensor that the description does not name",
                format_args!("an entry in {}", description.file),
                "none",
            ));
        };
        schemes.push(scheme);
    }
    let mut reader = Reader {
        tensors: &tensors,
        sources: &sources,
        config,
        group_size: description.group_size(),
        by_name,
        schemes,
        fates: tensors.iter().map(|_| Fate::Open).collect(),
        matrices: sources.iter().map(|_| vec![]).collect(),
        ends: sources.iter().map(Source::len).collect(),
        activations: BTreeMap::new(),
    };
    for i in 0..tensors.len() {
        reader.linear(i)?;
    }
    for i in 0..tensors.len() {
        reader.norm(i)?;
        reader.cache(i)?;
    }
    for i in 0..tensors.len() {
        reader.other(i)?;
    }
    let Reader { fates, matrices, ends, activations, .. } = reader;
    let tensors = fates.into_iter().filter_map(|fate| if let Fate::Is(t) = fate { Some(t) } else { None }).collect();
    let lengthened = sources.into_iter().zip(matrices).zip(ends).map(|((file, matrices), end)| {
        if matrices.is_empty() {
            return file;
        }
        let name = file.name().to_string();
        Source::generated(&name, end, Lengthened { file, matrices })
    });
    Ok(Resolved { tensors, sources: lengthened.collect(), activations })
}

impl Reader<'_> {
    /// A quantised matrix, and what belongs to it.
    fn linear(&mut self, i: usize) -> Result<(), FormatError> {
        let (t, scheme) = (&self.tensors[i], self.schemes[i]);
        if !t.name.ends_with(".weight") || self.is_vector(i) {
            return Ok(());
        }
        // One arm for each way of reading; the floats of 4 and 8 bits with shared exponents would be another.
        match scheme {
            Scheme::Float => Ok(()),
            Scheme::W8A16 | Scheme::W4A16 => self.weight_only(i),
            Scheme::W8A8 => self.fixed(i),
            Scheme::W8A8Dynamic | Scheme::W8A8Mix => self.dynamic(i, Codes::Bytes, 127),
            Scheme::W4A8Dynamic => self.dynamic(i, Codes::RowPairs, 127),
            Scheme::W4A4Dynamic => self.dynamic(i, Codes::Narrow, 7),
            Scheme::C8 => Err(self.wrong(i, "a matrix with the type of a cache", "a type of matrices", scheme.word())),
            Scheme::Other(_) => Err(not_read(self.sources[t.file].name(), scheme, &t.name)),
        }
    }

    /// W8A16 and W4A16: a scale and an offset for each row or group.
    fn weight_only(&mut self, i: usize) -> Result<(), FormatError> {
        let of_four = self.schemes[i] == Scheme::W4A16;
        let (columns, rows) = self.codes(i)?;
        let (scale, offset) = (self.need(i, "weight_scale")?, self.need(i, "weight_offset")?);
        let (codes, columns, rows) =
            if of_four { self.four_bits(i, scale, columns, rows)? } else { (Codes::Bytes, columns, rows) };
        self.whole_blocks(i, columns)?;
        let groups = self.groups(scale, rows)?;
        if self.groups(offset, rows)? != groups {
            return Err(self.wrong(
                offset,
                "offsets of another shape than the scales",
                self.shape(scale),
                self.shape(offset),
            ));
        }
        let group = columns / groups;
        if !columns.is_multiple_of(groups) || !group.is_multiple_of(COLUMNS) {
            let expected = format!("groups of a multiple of {COLUMNS} columns that divide {columns}");
            return Err(self.wrong(
                scale,
                "groups that are not whole blocks",
                expected,
                format_args!("{groups} of a row"),
            ));
        }
        let scales = self.floats(scale)?;
        let offsets = self.offsets(offset, if of_four { 8.0 } else { 0.0 })?;
        let symmetric = !of_four && offsets.iter().all(|o| *o == 0);
        let block = match of_four {
            true => BlockType::W4A16,
            // the same values, for which there are faster kernels
            false if symmetric && columns.is_multiple_of(LONG) && group.is_multiple_of(LONG) => BlockType::Q8K128,
            false => BlockType::W8A16,
        };
        let numbers = Numbers::Groups { scales, offsets, per_row: groups };
        self.bias(i, rows)?;
        self.becomes(i, codes, columns, rows, block, numbers)
    }

    /// How the codes of a W4A16 lie, with its columns and rows, where the file has `columns` and `rows`.
    fn four_bits(&self, i: usize, scale: usize, columns: u64, rows: u64) -> Result<(Codes, u64, u64), FormatError> {
        let of_scales = self.tensors[scale].shape.last().copied().unwrap_or(1);
        if rows.checked_mul(2) == Some(of_scales) {
            return Ok((Codes::RowPairs, columns, of_scales));
        }
        let groups = self.groups(scale, rows)?;
        let twice = columns.saturating_mul(2);
        // Only the model's own sizes tell bytes with one code from those with two.
        let by_groups = self.group_size.filter(|_| groups > 1).map(|n| n.saturating_mul(groups));
        let stem = self.tensors[i].name.strip_suffix(".weight").unwrap_or_default();
        match by_groups.or_else(|| parts::columns_of(stem, self.config)) {
            Some(n) if n == columns => Ok((Codes::Narrow, columns, rows)),
            Some(n) if n != twice => {
                let expected = format!("{n} columns in {n} or half as many bytes");
                Err(self.wrong(i, "codes of another number of columns than the model has", expected, columns))
            }
            _ => Ok((Codes::ColumnPairs, twice, rows)),
        }
    }

    /// W8A8 with a scale of the activations that was fixed beforehand.
    fn fixed(&mut self, i: usize) -> Result<(), FormatError> {
        let (columns, rows) = self.codes(i)?;
        self.whole_blocks(i, columns)?;
        let deq_scale = self.need(i, "deq_scale")?;
        let quant_bias = self.need(i, "quant_bias")?;
        let (input_scale, input_offset) = (self.need(i, "input_scale")?, self.need(i, "input_offset")?);
        // some savers add those of W8A8_DYNAMIC, which say nothing new
        self.part(i, "weight_scale")?;
        self.zero_offsets(i, rows)?;
        self.of_rows(deq_scale, rows)?;
        self.of_rows(quant_bias, rows)?;
        let (scale, offset) = (self.one(input_scale)?, self.one(input_offset)?);
        self.divides(input_scale, scale)?;
        self.shifts(input_offset, offset)?;
        let (d, b) = (self.deq_scales(deq_scale)?, self.integers(quant_bias)?);
        let mut numbers = Vec::with_capacity(d.len());
        for (row, (&d, &b)) in d.iter().zip(&b).enumerate() {
            if !w8a8::fits(columns as usize, b) {
                let expected = format!("sums of {columns} products that stay within 32 bits");
                return Err(self.wrong(
                    quant_bias,
                    "a bias that is too large",
                    expected,
                    format_args!("{b} in row {row}"),
                ));
            }
            let s = d / scale;
            if !s.is_finite() {
                let found = format!("{d:?} / {scale:?} in row {row}");
                return Err(self.wrong(
                    deq_scale,
                    "a scale of weights that is not finite",
                    "deq_scale / input_scale",
                    found,
                ));
            }
            numbers.push(Row { d, b, s });
        }
        self.bias(i, rows)?;
        self.activations.insert(self.tensors[i].name.clone(), Activations::Static { scale, offset });
        self.becomes(i, Codes::Bytes, columns, rows, BlockType::W8A8, Numbers::Rows(numbers))
    }

    /// The schemes whose activations get a scale for each token; `limit` is their greatest code.
    fn dynamic(&mut self, i: usize, codes: Codes, limit: u32) -> Result<(), FormatError> {
        let (columns, in_file) = self.codes(i)?;
        self.whole_blocks(i, columns)?;
        let scale = self.need(i, "weight_scale")?;
        let of_scales = self.tensors[scale].shape.last().copied().unwrap_or(1);
        let rows = if codes == Codes::RowPairs { in_file.saturating_mul(2) } else { in_file };
        if of_scales != rows {
            let expected = match codes {
                Codes::RowPairs => format!("an even number, two to each of {in_file} rows of bytes"),
                _ => format!("{rows}, one a row"),
            };
            return Err(self.wrong(scale, "another number of scales than rows", expected, self.shape(scale)));
        }
        self.of_rows(scale, rows)?;
        self.zero_offsets(i, rows)?;
        if self.schemes[i] == Scheme::W8A8Mix {
            for part in ["deq_scale", "quant_bias", "input_scale", "input_offset"] {
                self.part(i, part)?;
            }
        }
        if codes == Codes::RowPairs {
            self.part(i, "scale_bias")?;
        }
        if !w8a8::fits(columns as usize, 0) {
            return Err(self.wrong(i, "too many columns", "sums of products that stay within 32 bits", columns));
        }
        let numbers = self.floats(scale)?.into_iter().map(|d| Row { d, b: 0, s: d }).collect();
        self.bias(i, rows)?;
        self.activations.insert(self.tensors[i].name.clone(), Activations::Dynamic { limit });
        self.becomes(i, codes, columns, rows, BlockType::W8A8, Numbers::Rows(numbers))
    }

    /// Makes tensor `i` a matrix of blocks behind the end of its file.
    fn becomes(
        &mut self,
        i: usize,
        codes: Codes,
        columns: u64,
        rows: u64,
        block: BlockType,
        numbers: Numbers,
    ) -> Result<(), FormatError> {
        let t = &self.tensors[i];
        let start = self.ends[t.file];
        let m = Matrix { name: t.name.clone(), start, at: t.offset, codes, columns, rows, block, numbers };
        let end = m.len().and_then(|bytes| Some((bytes, start.checked_add(bytes)?)));
        let (Some((bytes, end)), Some(dtype)) = (end, Dtype::from_block(block)) else {
            return Err(self.wrong(i, "a matrix that is too large", "below 2^64 bytes", self.shape(i)));
        };
        self.ends[t.file] = end;
        self.matrices[t.file].push(m);
        self.fates[i] = Fate::Is(Tensor { dtype, shape: vec![columns, rows], bytes, offset: start, ..t.clone() });
        Ok(())
    }

    /// A norm whose weights were scaled, and the bias it got: they take the place of the norm's own where what follows is
    /// quantised.
    fn norm(&mut self, i: usize) -> Result<(), FormatError> {
        let Some((norm, part)) = self.tensors[i].name.rsplit_once(".module.") else {
            return Ok(());
        };
        let name = |part: &str| self.by_name.get(format!("{norm}{part}").as_str()).copied();
        let (own, own_bias, bias) = (name(".weight"), name(".bias"), name(".module.bias"));
        if part == "bias" && name(".module.weight").is_none() {
            return Err(self.wrong(i, "a bias without its norm", format_args!("{norm}.module.weight"), "none"));
        }
        if part != "weight" {
            // with the weight; what has another name is judged as other tensors are
            return Ok(());
        }
        let after: Vec<usize> =
            parts::after(norm).iter().filter_map(|n| self.by_name.get(n.as_str()).copied()).collect();
        let (floats, codes): (Vec<usize>, Vec<usize>) =
            after.into_iter().partition(|&j| self.schemes[j] == Scheme::Float);
        let quoted = |list: &[usize]| list.first().map_or(String::new(), |&j| quote(&self.tensors[j].name));
        match (&floats[..], &codes[..]) {
            ([], []) => Err(self.wrong(i, "a norm before nothing", "a linear layer that follows it", "none")),
            (_, []) => match own {
                Some(_) => {
                    self.fates[i] = Fate::Gone;
                    bias.into_iter().for_each(|j| self.fates[j] = Fate::Gone);
                    Ok(())
                }
                None => {
                    let expected = format!("{}, since {} is FLOAT", quote(&format!("{norm}.weight")), quoted(&floats));
                    Err(self.wrong(i, "a norm without its own weights", expected, "none"))
                }
            },
            ([], _) => {
                for j in [Some(i), bias, own].into_iter().flatten() {
                    self.vector(j)?;
                    if self.tensors[j].shape != self.tensors[i].shape {
                        return Err(self.wrong(j, "parts of a norm with two lengths", self.shape(i), self.shape(j)));
                    }
                }
                let renamed = |j: usize, part| Tensor { name: format!("{norm}.{part}"), ..self.tensors[j].clone() };
                let (weight, bias) = (renamed(i, "weight"), bias.map(|j| (j, renamed(j, "bias"))));
                for j in [own, own_bias].into_iter().flatten() {
                    self.fates[j] = Fate::Gone;
                }
                self.fates[i] = Fate::Is(weight);
                if let Some((j, bias)) = bias {
                    // smoothing leaves zeros, which nobody need add
                    let none = self.floats(j)?.iter().all(|v| *v == 0.0);
                    self.fates[j] = if none { Fate::Gone } else { Fate::Is(bias) };
                }
                Ok(())
            }
            _ => {
                let found =
                    format!("{} FLOAT and {} {}", quoted(&floats), quoted(&codes), self.schemes[codes[0]].word());
                Err(self.wrong(
                    i,
                    "a norm before quantised and other matrices",
                    "all of them quantised, or none",
                    found,
                ))
            }
        }
    }

    /// A scale or an offset of the cache, for each channel of keys or values.
    fn cache(&mut self, i: usize) -> Result<(), FormatError> {
        let t = &self.tensors[i];
        let Some((stem, part)) = t.name.rsplit_once(".kv_cache_") else {
            return Ok(());
        };
        let which = ["k_proj", "v_proj"].into_iter().find(|w| stem.rsplit('.').next() == Some(w));
        let other = if part == "scale" { "offset" } else { "scale" };
        let (Some(which), Some(layer), true) = (which, names::layer_of(stem), ["scale", "offset"].contains(&part))
        else {
            let expected = "kv_cache_scale or kv_cache_offset of k_proj or v_proj in a layer";
            return Err(self.wrong(i, "a name of the cache that is not known", expected, quote(&t.name)));
        };
        if let Scheme::Other(_) = self.schemes[i] {
            return Err(not_read(self.sources[t.file].name(), self.schemes[i], &t.name));
        }
        let channels = self.channels(i)?;
        let Some(&j) = self.by_name.get(format!("{stem}.kv_cache_{other}").as_str()) else {
            return Err(self.wrong(
                i,
                "half of a cache's numbers",
                format_args!("a kv_cache_{other} beside it"),
                "none",
            ));
        };
        let rows = match self.by_name.get(format!("{stem}.weight").as_str()) {
            Some(&j) => match &self.fates[j] {
                Fate::Is(matrix) => matrix.shape.last().copied(),
                _ => self.tensors[j].shape.last().copied(),
            },
            None => None,
        };
        let beside = self.channels(j)?;
        if channels != beside || rows.is_some_and(|rows| rows != channels) {
            let expected = rows.unwrap_or(beside);
            return Err(self.wrong(i, "a number of channels that is not the layer's", expected, channels));
        }
        for v in self.floats(i)? {
            if part == "scale" { self.divides(i, v)? } else { self.shifts(i, v)? }
        }
        let name = format!("model.layers.{layer}.self_attn.{which}.kv_cache_{part}");
        self.fates[i] = Fate::Is(Tensor { name, shape: vec![channels], ..t.clone() });
        Ok(())
    }

    /// Whatever is left: tensors that stay as they are.
    fn other(&mut self, i: usize) -> Result<(), FormatError> {
        if !matches!(self.fates[i], Fate::Open) {
            return Ok(());
        }
        let (t, scheme) = (&self.tensors[i], self.schemes[i]);
        let is_weight = t.name.ends_with(".weight") || t.name.ends_with(".bias");
        match scheme {
            // what the description says of norms is not to be relied on
            _ if is_weight && self.is_vector(i) => {}
            Scheme::Float if is_weight && !self.is_float(i) => {
                return Err(self.wrong(i, "a FLOAT weight of another type", "F32, F16 or BF16", t.dtype));
            }
            Scheme::Float => {}
            Scheme::Other(_) => return Err(not_read(self.sources[t.file].name(), scheme, &t.name)),
            _ => {
                let expected = format!("a part of a matrix of {}", scheme.word());
                return Err(self.wrong(i, "a tensor that no matrix of its scheme has", expected, quote(&t.name)));
            }
        }
        self.fates[i] = Fate::Is(t.clone());
        Ok(())
    }
}

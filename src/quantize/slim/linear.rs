//! Rows of a matrix as codes, scales and what else a scheme's files hold.
//!
//! All arithmetic is f32 in the order written, round is to the nearest whole number and to the even one of two, as torch
//! has it, so a tensor is the same bytes whoever makes it. A row is taken in groups of columns that share a scale (the
//! whole row where nothing else is asked for); min and max are those of a group and of 0.
//!
//! | | d | o | code q of x |
//! |---|---|---|---|
//! | symmetric | max\|x\| / high | 0 | clamp(round(x / d), low, high) |
//! | asymmetric | (max - min) / (high - low) | clamp(round(low - min / d), low, high) | clamp(round(x / d) + o, low, high) |
//!
//! low and high are -128 and 127, or -8 and 7. A group whose d would be no normal number has d = 1. With a scale s and an
//! offset z of the activations fixed beforehand, the result of a row is scaled by d' = s · d, and to its sum is added
//! round(bias / d' - z · (sum of its codes)), in f64.

use super::Scheme;
use crate::blocks::w8a8;
use std::sync::Arc;

/// Activations as codes with a scale fixed beforehand: round(x / scale + offset), from -128 to 127.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// finite and above 2^-40
    pub scale: f32,
    /// the code of 0, a whole number
    pub offset: f32,
}

impl Input {
    /// 255 steps from the least value seen, or 0, to the greatest, or 0: scale (max - min) / 255, offset
    /// clamp(round(-128 - min / scale), -128, 127). Where only 0 was seen the scale is 1.
    pub fn of(min: f32, max: f32) -> Input {
        let steps = Steps::asymmetric(min, max, Steps::EIGHT);
        let scale = if steps.d > (-40f32).exp2() { steps.d } else { 1.0 };
        Input { scale, offset: Steps { d: scale, ..steps }.offset(min) }
    }
}

/// A scale, the code of 0, and the codes there are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Steps {
    d: f32,
    o: f32,
    low: f32,
    high: f32,
}

impl Steps {
    const EIGHT: (f32, f32) = (-128.0, 127.0);
    const FOUR: (f32, f32) = (-8.0, 7.0);

    fn symmetric(peak: f32, (low, high): (f32, f32)) -> Steps {
        Steps { d: usable(peak / high), o: 0.0, low, high }
    }

    fn asymmetric(min: f32, max: f32, (low, high): (f32, f32)) -> Steps {
        let (min, max) = (min.min(0.0), max.max(0.0));
        let steps = Steps { d: usable((max - min) / (high - low)), o: 0.0, low, high };
        Steps { o: steps.offset(min), ..steps }
    }

    fn offset(&self, min: f32) -> f32 {
        (self.low - min.min(0.0) / self.d).round_ties_even().clamp(self.low, self.high)
    }

    fn code(&self, x: f32) -> i8 {
        ((x / self.d).round_ties_even() + self.o).clamp(self.low, self.high) as i8
    }
}

/// A scale that can be divided by: 1 for a group of zeros, or of values so small that they are.
fn usable(d: f32) -> f32 {
    if d < f32::MIN_POSITIVE { 1.0 } else { d }
}

/// What of a matrix a tensor holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// I8: the codes
    Codes,
    /// F32 \[n, groups\]: their scales
    Scale,
    /// F32 \[n, groups\]: the codes of 0
    Offset,
    /// F32 \[n\], or I64 that holds the same bits: the scale of the result
    DeqScale {
        /// whether it is I64, as beside weights of F16
        wide: bool,
    },
    /// I32 \[n\]: what is added to a row's sum
    QuantBias,
    /// F32 \[n, parts\]: 8 times the sum over a part of the columns of code · scale, which kernels that take nibbles without
    /// a sign need
    Compensation {
        /// into how many parts the columns are cut
        parts: usize,
    },
}

/// How the rows of one matrix are quantised.
#[derive(Clone, Debug)]
pub struct Linear {
    /// which codes
    pub scheme: Scheme,
    /// columns that share a scale; the whole row where there is no other
    pub group: usize,
    /// codes of 0 are 0
    pub symmetric: bool,
    /// what each column is multiplied by before
    pub columns: Option<Arc<Vec<f32>>>,
    /// the activations' scale, where it is fixed
    pub input: Option<Input>,
    /// the bias that goes into [`Part::QuantBias`], one a row
    pub bias: Option<Arc<Vec<f32>>>,
}

/// A tensor that is made of a matrix.
#[derive(Clone, Debug)]
pub struct Made {
    /// how
    pub linear: Arc<Linear>,
    /// what of it
    pub part: Part,
}

impl Linear {
    fn groups(&self, k: usize) -> usize {
        k / self.group.max(1)
    }

    fn steps(&self, x: &[f32]) -> Steps {
        let codes = if self.scheme.is_four_bits() { Steps::FOUR } else { Steps::EIGHT };
        if self.symmetric {
            return Steps::symmetric(x.iter().fold(0.0, |m: f32, v| m.max(v.abs())), codes);
        }
        let (min, max) = x.iter().fold((0f32, 0f32), |(min, max), &v| (min.min(v), max.max(v)));
        Steps::asymmetric(min, max, codes)
    }

    /// The row's codes, and the scale and offset of each of its groups.
    ///
    /// Errors: a scale that is not finite.
    fn quantise(&self, x: &[f32]) -> Result<(Vec<i8>, Vec<Steps>), String> {
        let (mut codes, mut all) = (Vec::with_capacity(x.len()), Vec::with_capacity(self.groups(x.len())));
        for group in x.chunks(self.group.max(1)) {
            let steps = self.steps(group);
            if !steps.d.is_finite() {
                return Err(format!("a scale of {}: its values are too large", steps.d));
            }
            codes.extend(group.iter().map(|v| steps.code(*v)));
            all.push(steps);
        }
        Ok((codes, all))
    }

    fn deq_scale(&self, d: f32) -> f32 {
        self.input.map_or(d, |input| input.scale * d)
    }

    fn quant_bias(&self, row: usize, codes: &[i8], d: f32) -> Result<i32, String> {
        let sum: i64 = codes.iter().map(|q| i64::from(*q)).sum();
        let bias = self.bias.as_ref().and_then(|b| b.get(row)).copied().unwrap_or(0.0);
        let offset = self.input.map_or(0.0, |input| input.offset);
        let b = (f64::from(bias) / f64::from(self.deq_scale(d)) - sum as f64 * f64::from(offset)).round_ties_even();
        let fits = b.abs() <= f64::from(i32::MAX) && w8a8::fits(codes.len(), b as i32);
        if fits { Ok(b as i32) } else { Err(format!("a quant_bias of {b}, more than a sum of 32 bits holds")) }
    }
}

impl Made {
    /// The type in the file, as safetensors spells it.
    pub fn dtype(&self) -> &'static str {
        match self.part {
            Part::Codes => "I8",
            Part::QuantBias => "I32",
            Part::DeqScale { wide: true } => "I64",
            _ => "F32",
        }
    }

    /// The shape in the file, the slowest dimension first, for a matrix of `n` rows of `k`.
    pub fn shape(&self, n: u64, k: u64) -> Vec<u64> {
        let groups = self.linear.groups(k as usize) as u64;
        match self.part {
            Part::Codes if self.linear.scheme == Scheme::W4A16 => vec![n, k / 2],
            Part::Codes if self.pairs_rows() => vec![n / 2, k],
            Part::Codes => vec![n, k],
            Part::Scale | Part::Offset => vec![n, groups],
            Part::DeqScale { .. } | Part::QuantBias => vec![n],
            Part::Compensation { parts } => vec![n, parts as u64],
        }
    }

    /// Bytes of an element in the file.
    pub fn element(&self) -> u64 {
        match self.dtype() {
            "I8" => 1,
            "I64" => 8,
            _ => 4,
        }
    }

    /// Whether two neighbouring rows share bytes, so that they must be made together.
    pub fn pairs_rows(&self) -> bool {
        self.part == Part::Codes && self.linear.scheme == Scheme::W4A8Dynamic
    }

    /// Writes what row `row` of the matrix gives as the `slot`-th row of `out`, whose rows are `width` bytes of the file
    /// (two that share bytes have half each). `x` is the row, and is multiplied in place.
    ///
    /// Errors: values no scale covers.
    pub fn write(&self, row: u64, x: &mut [f32], out: &mut [u8], slot: usize, width: usize) -> Result<(), String> {
        let l = &self.linear;
        for (x, s) in x.iter_mut().zip(l.columns.iter().flat_map(|c| c.iter())) {
            *x *= s;
        }
        let (codes, steps) = l.quantise(x)?;
        let first = steps.first().map_or(1.0, |s| s.d);
        if self.pairs_rows() {
            // the first of two rows in the low nibbles
            let pair = &mut out[slot / 2 * x.len()..][..x.len()];
            for (byte, q) in pair.iter_mut().zip(codes) {
                let nibble = q as u8 & 15;
                *byte = if slot.is_multiple_of(2) { nibble } else { *byte | nibble << 4 };
            }
            return Ok(());
        }
        let out = &mut out[slot * width..][..width];
        let put = |out: &mut [u8], values: &mut dyn Iterator<Item = [u8; 4]>| {
            for (place, v) in out.as_chunks_mut().0.iter_mut().zip(values) {
                *place = v;
            }
        };
        match self.part {
            Part::Codes if l.scheme == Scheme::W4A16 => {
                // the first of two columns in the low nibble
                for (byte, pair) in out.iter_mut().zip(codes.chunks(2)) {
                    *byte = pair.iter().rev().fold(0, |b, q| b << 4 | (*q as u8 & 15));
                }
            }
            Part::Codes => out.copy_from_slice(bytemuck::cast_slice(&codes)),
            Part::Scale => put(out, &mut steps.iter().map(|s| s.d.to_le_bytes())),
            Part::Offset => put(out, &mut steps.iter().map(|s| s.o.to_le_bytes())),
            Part::DeqScale { wide: false } => out.copy_from_slice(&l.deq_scale(first).to_le_bytes()),
            // the bits, taken for an i32, with its sign drawn out
            Part::DeqScale { wide: true } => {
                out.copy_from_slice(&i64::from(l.deq_scale(first).to_bits() as i32).to_le_bytes());
            }
            Part::QuantBias => out.copy_from_slice(&l.quant_bias(row as usize, &codes, first)?.to_le_bytes()),
            Part::Compensation { parts } => {
                let sum = |q: &[i8]| 8.0 * q.iter().map(|q| f64::from(*q)).sum::<f64>() * f64::from(first);
                let each = codes.len() / parts.max(1);
                put(out, &mut codes.chunks(each.max(1)).map(|q| (sum(q) as f32).to_le_bytes()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(scheme: Scheme, group: usize, symmetric: bool) -> Linear {
        Linear { scheme, group, symmetric, columns: None, input: None, bias: None }
    }

    fn made(linear: &Linear, part: Part) -> Made {
        Made { linear: Arc::new(linear.clone()), part }
    }

    /// One row's bytes.
    fn row(linear: &Linear, part: Part, x: &[f32]) -> Vec<u8> {
        let made = made(linear, part);
        let width = (made.shape(1, x.len() as u64).iter().product::<u64>() * made.element()) as usize;
        let mut out = vec![0; width];
        made.write(0, &mut x.to_vec(), &mut out, 0, width).unwrap();
        out
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn values(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 % 101) as f32 - 31.0) * 0.013).collect()
    }

    #[test]
    fn asymmetric_codes_reach_both_ends_and_come_within_half_a_step() {
        let x = values(64);
        for (scheme, steps) in [(Scheme::W8A16, 255.0), (Scheme::W4A16, 15.0)] {
            for group in [32, 64] {
                let l = linear(scheme, group, false);
                let (d, o) = (floats(&row(&l, Part::Scale, &x)), floats(&row(&l, Part::Offset, &x)));
                let (codes, _) = l.quantise(&x).unwrap();
                assert_eq!((d.len(), o.len()), (64 / group, 64 / group));
                for (i, (v, q)) in x.iter().zip(&codes).enumerate() {
                    let g = i / group;
                    let (min, max) =
                        x[g * group..][..group].iter().fold((0f32, 0f32), |m, v| (m.0.min(*v), m.1.max(*v)));
                    assert_eq!(d[g], (max - min) / steps);
                    let back = (f32::from(*q) - o[g]) * d[g];
                    // the offset is rounded too, so one step may be lost at an end
                    assert!((back - v).abs() <= d[g] * 1.001, "{v} is {back}, a step is {}", d[g]);
                }
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_even() {
        let l = linear(Scheme::W8A16, 4, true);
        // a step of 1
        let codes = |x: [f32; 4]| row(&l, Part::Codes, &x).iter().map(|b| *b as i8).collect::<Vec<_>>();
        assert_eq!(codes([127.0, 0.5, 1.5, 2.5]), [127, 0, 2, 2]);
        assert_eq!(codes([-127.0, -0.5, -1.5, -2.5]), [-127, 0, -2, -2]);
        assert_eq!(codes([0.0, 0.0, 0.0, 0.0]), [0; 4]);
        assert_eq!(floats(&row(&l, Part::Scale, &[0.0; 4])), [1.0]);
    }

    #[test]
    fn nibbles_of_columns_and_of_rows_have_the_first_low() {
        let l = linear(Scheme::W4A16, 4, true);
        assert_eq!(row(&l, Part::Codes, &[7.0, -1.0, -7.0, 3.0]), [0xf7, 0x39]);
        let made = made(&linear(Scheme::W4A8Dynamic, 4, true), Part::Codes);
        let mut out = vec![0xff; 4];
        for (r, mut x) in [[7.0, -1.0, -7.0, 3.0], [0.0, 7.0, 1.0, -2.0]].into_iter().enumerate() {
            made.write(r as u64, &mut x, &mut out, r, 2).unwrap();
        }
        assert_eq!(out, [0x07, 0x7f, 0x19, 0xe3]);
        assert_eq!((made.shape(2, 4), made.element()), (vec![1, 4], 1));
    }

    #[test]
    fn a_fixed_scale_gives_what_the_float_row_gives_but_for_rounding() {
        let (w, bias) = (values(96), 0.75f32);
        let x: Vec<f32> = (0..96).map(|i| ((i * 53 % 89) as f32) * 0.02 - 0.4).collect();
        let input = Input::of(-0.4, 1.36);
        assert_eq!(input, Input { scale: (1.36f32 + 0.4) / 255.0, offset: -70.0 });
        let l = Linear { input: Some(input), bias: Some(Arc::new(vec![bias])), ..linear(Scheme::W8A8, 96, true) };
        let codes = row(&l, Part::Codes, &w);
        let deq = floats(&row(&l, Part::DeqScale { wide: false }, &w))[0];
        let b = i32::from_le_bytes(row(&l, Part::QuantBias, &w).try_into().unwrap());
        let wide = i64::from_le_bytes(row(&l, Part::DeqScale { wide: true }, &w).try_into().unwrap());
        assert_eq!(f32::from_bits(wide as u32), deq);
        let q = |v: f32| (v / input.scale + input.offset).round_ties_even().clamp(-128.0, 127.0) as i32;
        let sum: i32 = x.iter().zip(&codes).map(|(x, w)| q(*x) * i32::from(*w as i8)).sum();
        let y = (sum + b) as f32 * deq;
        let exact: f64 = x.iter().zip(&w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() + f64::from(bias);
        assert!((f64::from(y) - exact).abs() < 0.1, "{y} and {exact}");
        // what the formula says, in f64
        let sum: f64 = codes.iter().map(|w| f64::from(*w as i8)).sum();
        assert_eq!(f64::from(b), (0.75 / f64::from(deq) + 70.0 * sum).round_ties_even());
    }

    #[test]
    fn compensation_is_eight_times_the_sum_of_each_part() {
        let x = values(64);
        let l = linear(Scheme::W4A8Dynamic, 64, true);
        let (codes, steps) = l.quantise(&x).unwrap();
        for parts in [1, 16] {
            let found = floats(&row(&l, Part::Compensation { parts }, &x));
            let wanted: Vec<f32> = codes
                .chunks(64 / parts)
                .map(|q| (8.0 * q.iter().map(|q| f64::from(*q)).sum::<f64>() * f64::from(steps[0].d)) as f32)
                .collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn columns_are_multiplied_first_and_what_overflows_is_refused() {
        let l = Linear { columns: Some(Arc::new(vec![2.0, 0.5])), ..linear(Scheme::W8A8Dynamic, 2, true) };
        assert_eq!(floats(&row(&l, Part::Scale, &[127.0, 127.0])), [2.0]);
        assert_eq!(row(&l, Part::Codes, &[127.0, 127.0]), [127, 32]);
        let l = Linear { columns: Some(Arc::new(vec![1e30, 1.0])), ..l };
        let mut out = vec![0; 4];
        let error = made(&l, Part::Scale).write(0, &mut [1e30, 1.0], &mut out, 0, 4).unwrap_err();
        assert!(error.contains("too large"), "{error}");
    }

    #[test]
    fn a_bias_that_no_sum_holds_is_refused() {
        let input = Some(Input { scale: 1e-9, offset: 0.0 });
        let l = Linear { input, bias: Some(Arc::new(vec![1e6])), ..linear(Scheme::W8A8, 2, true) };
        let mut out = vec![0; 4];
        let error = made(&l, Part::QuantBias).write(0, &mut [1e-3, 0.0], &mut out, 0, 4).unwrap_err();
        assert!(error.contains("quant_bias"), "{error}");
    }

    #[test]
    fn an_input_that_was_always_zero_has_a_scale_of_one() {
        assert_eq!(Input::of(0.0, 0.0), Input { scale: 1.0, offset: -128.0 });
        assert_eq!(Input::of(0.5, 1.0).offset, -128.0);
        assert_eq!(Input::of(-1.0, -0.5).offset, 127.0);
    }
}

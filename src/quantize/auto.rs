//! Types chosen one tensor at a time, so that a model of a given size loses least.
//!
//! What a tensor would lose in a type is told by some of its rows, encoded and decoded: the squares of the errors, each
//! times the importance of its column, over the same sum of the weights' own squares. With importances that are the mean
//! squares of what a column meets, this is the noise in the product over its signal, as far as columns are independent. It
//! is weighed by what the tensor is (`factor`), and the sum over all tensors is what is made small.
//!
//! Of each tensor the types are points (bytes, loss), of which the lower convex hull is kept. All tensors begin with the
//! smallest type; then, as long as there is room, the step along a hull that gains most for a byte is taken: Lagrange's
//! multiplier found by sorting. What is left over buys the single changes that gain most. Nothing here is random: the same
//! files give the same types.

use super::choose::Mix;
use super::encode_as;
use super::plan::{self, Free, Options};
use crate::blocks::BlockType::{self, *};
use crate::formats::Container;
use crate::formats::mix::Part;
use crate::simd::Level;
use crate::stop::Stop;
use anyhow::{Context, ensure};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Rows of a tensor that are tried, at most.
const ROWS: u64 = 48;

/// What the tensors may become, smaller ones first, where their rows are whole blocks of 256.
const WIDE: [BlockType; 16] =
    [IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, Q2_K, IQ3_XXS, IQ3_S, Q3_K, IQ4_XS, IQ4_NL, Q4_K, Q5_K, Q6_K, Q8_0, F16];
/// What they may become where they are not.
const NARROW: [BlockType; 7] = [IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, F16];

/// How large the new model may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// bits of a weight, over all tensors whose type is to be chosen
    Bits(f64),
    /// bytes of all files together
    Bytes(u64),
}

/// What was chosen.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// types by the names of a GGUF file
    pub types: BTreeMap<String, BlockType>,
    /// bits of a weight, over those tensors
    pub bits: f64,
}

/// Layers of the model that the factors were measured on.
const MEASURED_LAYERS: f64 = 4.0;

/// How much the noise of a tensor's product costs (nats a token for each unit of noise over signal), by what the tensor is.
/// Measured on the story model with importances (docs/quantize.md has the table): each kind alone in six types of 2 to 3
/// bits, whose costs over noises agree within a third for most kinds. What a layer does adds to what the layers before it
/// did, so in a model of more layers each counts less.
fn factor(part: Part, output: bool, layers: usize) -> f64 {
    let of_a_layer = MEASURED_LAYERS / layers.max(1) as f64;
    match part {
        // as the output matrix too, or as the embedding alone
        Part::Embedding if output => 1.2,
        Part::Embedding => 0.3,
        _ if output => 1.0,
        Part::Query | Part::Key => 0.026 * of_a_layer,
        Part::Value | Part::Attention => 0.12 * of_a_layer,
        Part::Gate => 0.15 * of_a_layer,
        Part::Up => 0.12 * of_a_layer,
        Part::Down => 0.22 * of_a_layer,
        // not measured: as what lies between the others
        Part::Any => 0.12 * of_a_layer,
    }
}

/// Layers that tensors are of, by their names.
fn layers(free: &[Free]) -> usize {
    let number = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<usize>().ok();
    free.iter().filter_map(|f| number(&f.name)).max().map_or(1, |n| n.saturating_add(1))
}

/// A type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    ty: BlockType,
    bytes: u64,
    loss: f64,
}

/// Chooses the types of all tensors that nothing else decides. `tick` hears of every tensor that was tried.
///
/// Errors: reading; a source that holds NaN or infinity; a size that not even the smallest types keep; an interruption.
pub fn choose(c: &Container, o: &Options, size: Size, stop: &Stop, tick: &(dyn Fn() + Sync)) -> anyhow::Result<Chosen> {
    let free = plan::free(c, o)?;
    ensure!(!free.is_empty(), "{}: no tensor whose type is to be chosen", c.files[0].display());
    let layers = layers(&free);
    let curves: Vec<Vec<Point>> = free
        .par_iter()
        .map(|f| {
            stop.check()?;
            let curve = tried(c, f, layers).with_context(|| format!("tensor {}", f.name));
            tick();
            curve
        })
        .collect::<anyhow::Result<_>>()?;
    let elems: u64 = free.iter().map(Free::elems).sum();
    let smallest: Vec<usize> = vec![0; free.len()];
    let names = |taken: &[usize]| -> BTreeMap<String, BlockType> {
        free.iter().zip(&curves).zip(taken).map(|((f, curve), i)| (f.name.clone(), curve[*i].ty)).collect()
    };
    let bytes = |taken: &[usize]| -> u64 { curves.iter().zip(taken).map(|(curve, i)| curve[*i].bytes).sum() };
    let least = bytes(&smallest);
    let room = match size {
        Size::Bits(bits) => (bits / 8.0 * elems as f64) as u64,
        Size::Bytes(all) => {
            let o = Options { chosen: Some(names(&smallest)), ..o.clone() };
            // what stays, heads, and a tensor's padding
            let rest = plan::plan(c, &o)?.bytes_out() - least + 32 * free.len() as u64;
            all.saturating_sub(rest)
        }
    };
    let as_bits = |bytes: u64| bytes as f64 * 8.0 / elems as f64;
    ensure!(
        least <= room,
        "the smallest types there are take {:.3} bits a weight, and there is room for {:.3}{}",
        as_bits(least),
        as_bits(room),
        if o.importances.is_some() { "" } else { "; smaller ones need importances" }
    );
    let taken = spend(&curves, room);
    Ok(Chosen { types: names(&taken), bits: as_bits(bytes(&taken)) })
}

/// The types of a tensor that are worth anything, smaller ones first: each loses less than those before it.
fn tried(c: &Container, f: &Free, layers: usize) -> anyhow::Result<Vec<Point>> {
    let t = &c.tensors[f.index];
    let source = t.dtype.block().with_context(|| format!("{} cannot be decoded", t.dtype))?;
    let columns = usize::try_from(t.shape[0])?;
    let rows = t.elems() / t.shape[0].max(1);
    let of_matrix = t.shape.get(1).copied().unwrap_or(1).max(1);
    let row_bytes = t.bytes / rows.max(1);
    let list: Vec<BlockType> = if t.shape[0].is_multiple_of(256) { WIDE.into() } else { NARROW.into() };
    let fits = |ty: &BlockType| columns.is_multiple_of(ty.elems());
    let blind = |ty: &BlockType| f.importances.is_none() && Mix::Plain(*ty).needs_importances(&f.name, *ty);
    let list: Vec<BlockType> = list.into_iter().filter(|ty| fits(ty) && !blind(ty)).collect();
    let (mut bytes, mut x, mut y) = (vec![0; row_bytes as usize], vec![0f32; columns], vec![0f32; columns]);
    let (mut noise, mut signal) = (vec![0f64; list.len()], 0f64);
    let (mut out, level) = (Vec::new(), Level::detect());
    let tried = rows.min(ROWS);
    for i in 0..tried {
        let row = (i as u128 * u128::from(rows) / u128::from(tried)) as u64;
        c.read(t, row * row_bytes, &mut bytes)?;
        source.decode_row(&bytes, &mut x);
        ensure!(x.iter().all(|v| v.is_finite()), "row {row} holds NaN or infinity; the model is damaged");
        let matrix = (row / of_matrix) as usize;
        let importances = f.importances.as_ref().map(|all| &all[matrix * columns..][..columns]);
        let weighed = |v: &dyn Fn(usize) -> f64| -> f64 {
            (0..columns).map(|j| importances.map_or(1.0, |all| f64::from(all[j])) * v(j) * v(j)).sum()
        };
        signal += weighed(&|j| f64::from(x[j]));
        for (ty, noise) in list.iter().zip(&mut noise) {
            out.resize(ty.row_bytes(columns).context("whole blocks")?, 0);
            encode_as(level, *ty, &x, importances, &mut out);
            ty.decode_row(&out, &mut y);
            *noise += weighed(&|j| f64::from(y[j]) - f64::from(x[j]));
        }
    }
    let weight = factor(Part::of(&f.name), f.output, layers) / if signal > 0.0 { signal } else { 1.0 };
    for (ty, noise) in list.iter().zip(&noise) {
        log::debug!("{} in {}: noise over signal {:.6e}", f.name, ty.name(), noise / signal);
    }
    let point = |(ty, noise): (&BlockType, &f64)| -> anyhow::Result<Point> {
        let bytes = ty.row_bytes(columns).map(|n| n as u64 * rows).context("whole blocks")?;
        Ok(Point { ty: *ty, bytes, loss: noise * weight })
    };
    let points: Vec<Point> = list.iter().zip(&noise).map(point).collect::<anyhow::Result<_>>()?;
    ensure!(!points.is_empty(), "no type has blocks that rows of {columns} are whole ones of");
    Ok(worth(points))
}

/// Points in the order of their bytes, without those that another one of no more bytes is no worse than.
fn worth(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.loss.total_cmp(&b.loss)));
    let mut kept: Vec<Point> = Vec::new();
    for p in points {
        if kept.last().is_none_or(|last| p.loss < last.loss) {
            kept.push(p);
        }
    }
    kept
}

/// The points of the lower convex hull of a curve that [`worth`] made.
fn hull(curve: &[Point]) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    let slope = |a: usize, b: usize| (curve[a].loss - curve[b].loss) / (curve[b].bytes - curve[a].bytes) as f64;
    for i in 0..curve.len() {
        while let [.., a, b] = kept[..]
            && slope(a, b) <= slope(b, i)
        {
            kept.pop();
        }
        kept.push(i);
    }
    kept
}

/// Which point of each curve is taken, so that all together have at most `room` bytes, if the first ones have.
fn spend(curves: &[Vec<Point>], room: u64) -> Vec<usize> {
    let mut taken = vec![0; curves.len()];
    let used = |taken: &[usize]| -> u64 { curves.iter().zip(taken).map(|(c, i)| c[*i].bytes).sum() };
    let mut left = room.saturating_sub(used(&taken));
    // steps along the hulls: what each gains for a byte, its curve, where it leads
    let mut steps: Vec<(f64, usize, usize)> = Vec::new();
    for (n, curve) in curves.iter().enumerate() {
        for pair in hull(curve).windows(2) {
            let (a, b) = (&curve[pair[0]], &curve[pair[1]]);
            steps.push(((a.loss - b.loss) / (b.bytes - a.bytes) as f64, n, pair[1]));
        }
    }
    steps.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut closed = vec![false; curves.len()];
    for (_, n, to) in steps {
        let more = curves[n][to].bytes - curves[n][taken[n]].bytes;
        if closed[n] || more > left {
            closed[n] = true;
            continue;
        }
        left -= more;
        taken[n] = to;
    }
    // what is left over
    loop {
        let gain = |n: usize, i: usize| curves[n][taken[n]].loss - curves[n][i].loss;
        let mut best: Option<(usize, usize)> = None;
        for (n, curve) in curves.iter().enumerate() {
            for i in taken[n] + 1..curve.len() {
                let fits = curve[i].bytes - curve[taken[n]].bytes <= left;
                if fits && best.is_none_or(|(m, k)| gain(n, i) > gain(m, k)) {
                    best = Some((n, i));
                }
            }
        }
        let Some((n, i)) = best else { return taken };
        left -= curves[n][i].bytes - curves[n][taken[n]].bytes;
        taken[n] = i;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Vec<Point> {
        points.iter().map(|(bytes, loss)| Point { ty: Q4_K, bytes: *bytes, loss: *loss }).collect()
    }

    #[test]
    fn points_that_others_are_no_worse_than_are_left_out() {
        let kept = worth(curve(&[(20, 5.0), (10, 9.0), (20, 4.0), (30, 4.0), (40, 1.0)]));
        assert_eq!(kept, curve(&[(10, 9.0), (20, 4.0), (40, 1.0)]));
        // (20, 8) lies above the line from (10, 9) to (30, 2)
        assert_eq!(hull(&curve(&[(10, 9.0), (20, 8.0), (30, 2.0), (40, 1.0)])), [0, 2, 3]);
        assert_eq!(hull(&curve(&[(10, 9.0)])), [0]);
    }

    /// The least loss of all ways to take one point of each curve.
    fn best(curves: &[Vec<Point>], room: u64) -> f64 {
        let Some((first, rest)) = curves.split_first() else { return 0.0 };
        let of = |p: &Point| room.checked_sub(p.bytes).map(|room| p.loss + best(rest, room));
        first.iter().filter_map(of).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn the_types_chosen_are_nearly_the_best_there_are() {
        let mut state = 7u64;
        let mut number = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut sum, mut least_sum) = (0.0, 0.0);
        for case in 0..200 {
            let mut one = || {
                let scale = (1 + number(20)) as f64;
                let points: Vec<(u64, f64)> = (1..6).map(|i| (i * 10 + number(9), scale / (i * i) as f64)).collect();
                worth(curve(&points))
            };
            let curves: Vec<Vec<Point>> = (0..5).map(|_| one()).collect();
            let least: u64 = curves.iter().map(|c| c[0].bytes).sum();
            let room = least + number(200);
            let taken = spend(&curves, room);
            let bytes: u64 = curves.iter().zip(&taken).map(|(c, i)| c[*i].bytes).sum();
            let loss: f64 = curves.iter().zip(&taken).map(|(c, i)| c[*i].loss).sum();
            let want = best(&curves, room);
            assert!(bytes <= room, "case {case}: {bytes} bytes of {room}");
            // no more is lost than one step along a hull would gain
            let step = curves.iter().flat_map(|c| c.windows(2).map(|p| p[0].loss - p[1].loss)).fold(0.0, f64::max);
            assert!(loss >= want - 1e-9 && loss <= want + step, "case {case}: {loss}, and {want} would do");
            (sum, least_sum) = (sum + loss, least_sum + want);
        }
        assert!(sum < 1.05 * least_sum, "{sum} and {least_sum}");
    }

    #[test]
    fn all_the_room_there_is_gives_the_best_of_each() {
        let curves = vec![curve(&[(10, 9.0), (20, 1.0), (80, 0.5)]), curve(&[(5, 3.0), (6, 2.9)])];
        assert_eq!(spend(&curves, 1000), [2, 1]);
        assert_eq!(spend(&curves, 15), [0, 0]);
        assert_eq!(spend(&curves, 25), [1, 0]);
        assert_eq!(spend(&curves, 26), [1, 1]);
    }
}

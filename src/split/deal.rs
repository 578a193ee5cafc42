//! Which layers each device gets.

use super::error::SplitError;

/// Bytes that come with a model's layers, and with what stands before and after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// of the embedding, which the first device has
    pub before: u64,
    /// by layer
    pub layers: Vec<u64>,
    /// of norm and output matrix, which the last device has
    pub after: u64,
    /// by layer, whether it keeps something together with the one before it, so that both must be on one device; those that are
    /// not there do not
    pub bound: Vec<bool>,
}

impl Loads {
    /// Of everything.
    pub fn sum(&self) -> u64 {
        self.before + self.layers.iter().sum::<u64>() + self.after
    }
}

/// Layers of each device as they were asked for.
///
/// Errors: not a count for each device, a count of 0, another sum than the layers there are.
pub fn asked(counts: &[usize], devices: usize, layers: usize) -> Result<Vec<usize>, SplitError> {
    well_formed(counts, devices)?;
    let sum = counts.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
    if sum != layers {
        return Err(SplitError::Sum { split: shown(counts), sum, layers });
    }
    Ok(counts.to_vec())
}

/// What is wrong with counts whatever the model is.
///
/// Errors: not a count for each device, a count of 0.
pub fn well_formed(counts: &[usize], devices: usize) -> Result<(), SplitError> {
    if counts.len() != devices {
        return Err(SplitError::Counts { counts: counts.len(), devices });
    }
    match counts.iter().position(|n| *n == 0) {
        Some(at) => Err(SplitError::Empty { split: shown(counts), device: at + 1 }),
        None => Ok(()),
    }
}

fn shown(counts: &[usize]) -> String {
    counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Layers of each device, at least one, so that the greatest load is the least: bytes against memory. A device of which
/// nobody knows how much it has counts as one that has room for all; so does one with more. Of several best ways that with
/// the fewest layers on the last device, then the one before it.
///
/// Errors: fewer layers than devices, or fewer places to cut them.
pub fn by_memory(loads: &Loads, memory: &[Option<u64>]) -> Result<Vec<usize>, SplitError> {
    let (devices, layers) = (memory.len(), loads.layers.len());
    if layers < devices {
        return Err(SplitError::Devices { devices, layers });
    }
    let all = loads.sum().max(1);
    let room: Vec<f64> = memory.iter().map(|m| m.unwrap_or(all).clamp(1, all) as f64).collect();
    let mut upto = vec![0];
    loads.layers.iter().for_each(|bytes| upto.push(upto[upto.len() - 1] + bytes));
    // how full device d is with layers a..b
    let full = |d: usize, a: usize, b: usize| {
        let ends = if d == 0 { loads.before } else { 0 } + if d + 1 == devices { loads.after } else { 0 };
        (upto[b] - upto[a] + ends) as f64 / room[d]
    };
    // by device and layers so far: the least greatest fullness, and where the device begins
    let mut best = vec![vec![(f64::INFINITY, 0); layers + 1]; devices];
    for (b, entry) in best[0].iter_mut().enumerate().skip(1) {
        *entry = (full(0, 0, b), 0);
    }
    for d in 1..devices {
        for b in d + 1..=layers {
            for a in (d..b).filter(|a| loads.bound.get(*a) != Some(&true)) {
                let fullest = best[d - 1][a].0.max(full(d, a, b));
                if fullest <= best[d][b].0 {
                    best[d][b] = (fullest, a);
                }
            }
        }
    }
    if best[devices - 1][layers].0.is_infinite() {
        return Err(SplitError::Plan(format!("layers that share keys and values leave no place for {devices} parts")));
    }
    let (mut counts, mut end) = (vec![0; devices], layers);
    for d in (0..devices).rev() {
        let start = best[d][end].1;
        counts[d] = end - start;
        end = start;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(layers: usize) -> Loads {
        Loads { layers: vec![10; layers], ..Loads::default() }
    }

    #[test]
    fn layers_that_are_bound_are_not_parted() {
        let bound = |from: usize, to: usize| (0..8).map(|l| (from..to).contains(&l)).collect();
        let loads = Loads { bound: bound(3, 8), ..even(8) };
        assert_eq!(by_memory(&loads, &[None, None]), Ok(vec![2, 6]));
        assert_eq!(by_memory(&loads, &[None, None, None]), Ok(vec![1, 1, 6]));
        let error = by_memory(&Loads { bound: bound(2, 8), ..even(8) }, &[None; 3]).unwrap_err().to_string();
        assert!(error.contains("no place for 3 parts"), "{error}");
    }

    #[test]
    fn counts_are_taken_as_they_are_or_refused_in_one_line() {
        assert_eq!(asked(&[20, 12], 2, 32), Ok(vec![20, 12]));
        for (counts, devices, layers, words) in [
            (&[20, 12][..], 3, 32, "2 counts of layers for 3 devices"),
            (&[], 2, 32, "0 counts"),
            (&[32, 0], 2, 32, "32,0 gives device 2 no layer"),
            (&[20, 11], 2, 32, "20,11 is 31 layers, and the model has 32"),
            (&[usize::MAX, 2], 2, 32, "18446744073709551615 layers, and the model has 32"),
        ] {
            let line = asked(counts, devices, layers).unwrap_err().to_string();
            assert!(line.contains(words) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn the_greatest_load_is_the_least() {
        assert_eq!(by_memory(&even(8), &[None, None]), Ok(vec![4, 4]));
        assert_eq!(by_memory(&even(9), &[None, None, None]), Ok(vec![3, 3, 3]));
        // room for a quarter of it
        assert_eq!(by_memory(&even(10), &[None, Some(25)]), Ok(vec![8, 2]));
        assert_eq!(by_memory(&even(10), &[Some(300), Some(100)]), Ok(vec![5, 5]));
        assert_eq!(by_memory(&even(10), &[Some(60), Some(20)]), Ok(vec![8, 2]));
        // the embedding takes the place of three layers, the head of one
        let ends = Loads { before: 30, after: 10, ..even(8) };
        assert_eq!(by_memory(&ends, &[None, None]), Ok(vec![3, 5]));
        // a device without room still has a layer
        assert_eq!(by_memory(&even(4), &[None, Some(0)]), Ok(vec![3, 1]));
        assert_eq!(by_memory(&even(2), &[None; 3]), Err(SplitError::Devices { devices: 3, layers: 2 }));
    }

    #[test]
    fn no_other_way_is_better() {
        let mut seed = 7u64;
        let mut draw = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let layers: Vec<u64> = (0..3 + draw(5)).map(|_| 1 + draw(50)).collect();
            let loads = Loads { before: draw(60), after: draw(60), layers, ..Loads::default() };
            let all = loads.sum();
            let memory = [None, Some(1 + draw(all)), Some(1 + draw(2 * all))];
            let fullest = |counts: [usize; 3]| {
                let mut at = 0;
                let mut worst = 0f64;
                for (d, n) in counts.into_iter().enumerate() {
                    let mut bytes: u64 = loads.layers[at..at + n].iter().sum();
                    bytes += if d == 0 { loads.before } else { 0 } + if d == 2 { loads.after } else { 0 };
                    worst = worst.max(bytes as f64 / memory[d].unwrap_or(all).min(all) as f64);
                    at += n;
                }
                worst
            };
            let n = loads.layers.len();
            let every = (1..n - 1).flat_map(|a| (1..n - a).map(move |b| [a, b, n - a - b]));
            let least = every.map(fullest).fold(f64::INFINITY, f64::min);
            let found = by_memory(&loads, &memory).unwrap();
            assert_eq!(fullest([found[0], found[1], found[2]]), least, "{loads:?} {memory:?} {found:?}");
        }
    }
}

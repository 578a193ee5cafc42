//! What quantising did to weights: error statistics that can be added up, and their definitions in words.
//!
//! Every sum is made in a fixed order (elements of a row, rows, tensors), so the figures do not depend on the number
//! of threads.

/// Definitions of every figure, one sentence each, as printed in the output, the report and `docs/hist.md`.
pub const DEFINITIONS: [(&str, &str); 9] = [
    (
        "error",
        "e = w' - w: w is the value decoded from the source file, w' the value after encoding w in the type and decoding it again; computed in f64",
    ),
    (
        "rmse",
        "square root of the mean of e^2 over elements; of a group: over all elements of its tensors together (so weighted by their sizes)",
    ),
    ("mae", "mean of |e|"),
    ("max", "largest |e|"),
    ("nrmse", "rmse divided by the root mean square of w"),
    ("rel", "mean of |e|/|w| over the elements with |w| > 1e-10"),
    ("collapse", "zero collapse: elements with w not 0 and w' = 0"),
    (
        "spiky",
        "blocks (of the type's own length) whose largest |w| is more than the threshold times the root mean square of the block's other elements; types without blocks have none",
    ),
    (
        "improved",
        "layers of the group whose rmse is below that of the baseline (the first type); a layer's tensors of one group count together",
    ),
];

/// Where a block counts as spiky, unless told otherwise. Of blocks of 256 Gaussian values one in two million is.
pub const SPIKY: f64 = 6.0;

/// Bins for |e|: exactly 0, below 2^-40, half octaves from 2^-40 to 2^16, and above.
pub const BINS: usize = 2 + 2 * OCTAVES + 1;
const OCTAVES: usize = 56;
const LOWEST: i32 = -40;
/// Fraction bits of the square root of 2 in f32.
const SQRT2_FRACTION: u32 = 0x0035_04f3;

/// The bin of an error.
pub fn bin(e: f32) -> usize {
    let bits = e.to_bits() & 0x7fff_ffff;
    if bits == 0 {
        return 0;
    }
    let octave = (bits >> 23) as i32 - 127 - LOWEST;
    match octave {
        ..0 => 1,
        o if o as usize >= OCTAVES => BINS - 1,
        o => 2 + 2 * o as usize + usize::from(bits & 0x007f_ffff >= SQRT2_FRACTION),
    }
}

/// Lower and upper edge of a bin; the lower belongs to it. Bin 0 is (0, 0), the last has no upper edge.
pub fn edges(bin: usize) -> (f64, f64) {
    let edge = |i: usize| libm::exp2(LOWEST as f64 + i as f64 / 2.0);
    match bin {
        0 => (0.0, 0.0),
        1 => (0.0, edge(0)),
        b if b == BINS - 1 => (edge(2 * OCTAVES), f64::INFINITY),
        b => (edge(b - 2), edge(b - 1)),
    }
}

/// Error statistics of some elements; those of more elements are made with [`Errors::add`].
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    /// elements
    pub n: u64,
    /// sum of e^2
    pub squares: f64,
    /// sum of |e|
    pub absolutes: f64,
    /// largest |e|
    pub max: f64,
    /// sum of w^2
    pub power: f64,
    /// sum of |e|/|w| where |w| > 1e-10
    pub relatives: f64,
    /// how many such elements
    pub relative_n: u64,
    /// elements with w not 0 and w' 0
    pub collapsed: u64,
    /// blocks
    pub blocks: u64,
    /// blocks with one element far above the others
    pub spiky: u64,
    /// counts per bin of |e|; they add up to `n`
    pub histogram: [u64; BINS],
}

impl Default for Errors {
    fn default() -> Self {
        Errors {
            n: 0,
            squares: 0.0,
            absolutes: 0.0,
            max: 0.0,
            power: 0.0,
            relatives: 0.0,
            relative_n: 0,
            collapsed: 0,
            blocks: 0,
            spiky: 0,
            histogram: [0; BINS],
        }
    }
}

fn mean(sum: f64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { sum / n as f64 }
}

impl Errors {
    /// Counts one row: `w` as it is, `decoded` after encoding, `block` the type's block length (1: no blocks),
    /// `spiky` the threshold.
    ///
    /// # Panics
    /// When the rows have different lengths.
    pub fn row(&mut self, w: &[f32], decoded: &[f32], block: usize, spiky: f64) {
        assert_eq!(w.len(), decoded.len(), "rows of different lengths");
        self.n += w.len() as u64;
        for (&w, &d) in w.iter().zip(decoded) {
            let (w64, e) = (f64::from(w), f64::from(d) - f64::from(w));
            let a = e.abs();
            self.squares += e * e;
            self.absolutes += a;
            self.max = self.max.max(a);
            self.power += w64 * w64;
            if w64.abs() > 1e-10 {
                self.relatives += a / w64.abs();
                self.relative_n += 1;
            }
            self.collapsed += u64::from(w != 0.0 && d == 0.0);
            self.histogram[bin(e as f32)] += 1;
        }
        if block > 1 {
            for b in w.chunks(block) {
                self.blocks += 1;
                self.spiky += u64::from(is_spiky(b, spiky));
            }
        }
    }

    /// Adds the statistics of other elements.
    pub fn add(&mut self, o: &Errors) {
        self.n += o.n;
        self.squares += o.squares;
        self.absolutes += o.absolutes;
        self.max = self.max.max(o.max);
        self.power += o.power;
        self.relatives += o.relatives;
        self.relative_n += o.relative_n;
        self.collapsed += o.collapsed;
        self.blocks += o.blocks;
        self.spiky += o.spiky;
        for (a, b) in self.histogram.iter_mut().zip(&o.histogram) {
            *a += b;
        }
    }

    /// Root mean square error.
    pub fn rmse(&self) -> f64 {
        mean(self.squares, self.n).sqrt()
    }

    /// Mean absolute error.
    pub fn mae(&self) -> f64 {
        mean(self.absolutes, self.n)
    }

    /// Root mean square error over root mean square weight; 0 for weights that are all 0.
    pub fn nrmse(&self) -> f64 {
        if self.power == 0.0 { 0.0 } else { (self.squares / self.power).sqrt() }
    }

    /// Mean relative error.
    pub fn rel(&self) -> f64 {
        mean(self.relatives, self.relative_n)
    }
}

/// Whether the largest of a block stands above the others: more than `threshold` times their root mean square.
fn is_spiky(block: &[f32], threshold: f64) -> bool {
    let (mut largest, mut power) = (0.0f64, 0.0f64);
    for &v in block {
        let square = f64::from(v) * f64::from(v);
        largest = largest.max(square);
        power += square;
    }
    // equal elements cancel exactly or nearly; a small remainder must not make a spike of the first
    let others = (power - largest).max(0.0) / (block.len().max(2) - 1) as f64;
    largest > threshold * threshold * others
}

/// Change from `base` to `new` in percent; 0 when they are equal, infinite from 0 to more.
pub fn change(base: f64, new: f64) -> f64 {
    if base == new { 0.0 } else { (new / base - 1.0) * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_four_elements_are_those_made_by_hand() {
        let mut e = Errors::default();
        // errors 0.5, -1, 0, 0.25
        e.row(&[1.0, 1.0, 0.0, -2.0], &[1.5, 0.0, 0.0, -1.75], 2, 6.0);
        assert_eq!((e.n, e.collapsed, e.blocks), (4, 1, 2));
        assert_eq!(e.rmse(), ((0.25 + 1.0 + 0.0625) / 4.0f64).sqrt());
        assert_eq!(e.mae(), 1.75 / 4.0);
        assert_eq!(e.max, 1.0);
        assert_eq!(e.rel(), (0.5 + 1.0 + 0.125) / 3.0);
        assert_eq!(e.nrmse(), (1.3125f64 / 6.0).sqrt());
        // the second block is (0, -2): nothing but a spike
        assert_eq!(e.spiky, 1);
        assert_eq!(e.histogram.iter().sum::<u64>(), 4);
        assert_eq!(e.histogram[0], 1);
    }

    #[test]
    fn adding_two_halves_gives_the_whole() {
        let w: Vec<f32> = (0..512).map(|i| (i as f32 - 200.0) / 64.0).collect();
        let d: Vec<f32> = w.iter().map(|v| (v * 4.0).round() / 4.0).collect();
        let (mut whole, mut half, mut other) = (Errors::default(), Errors::default(), Errors::default());
        whole.row(&w, &d, 32, 6.0);
        half.row(&w[..256], &d[..256], 32, 6.0);
        other.row(&w[256..], &d[256..], 32, 6.0);
        half.add(&other);
        // all values are multiples of 1/64, so the sums are exact, but for the relative errors
        assert_eq!(
            (half.squares, half.max, half.blocks, half.histogram),
            (whole.squares, whole.max, 16, whole.histogram)
        );
        assert!((half.rel() / whole.rel() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_error_lies_between_the_edges_of_its_bin() {
        for i in 0..4000 {
            let e = libm::exp2(f64::from(i - 2600) / 50.0) as f32;
            let (low, high) = edges(bin(e));
            // the edge between two halves of an octave is the square root of 2 as f32 has it
            assert!(f64::from(e) >= low * 0.999_999_9 && f64::from(e) < high * 1.000_000_1, "{e} in {low}..{high}");
            assert_eq!(bin(e), bin(-e));
        }
        assert_eq!((bin(0.0), bin(-0.0), bin(1e-30), bin(1e30)), (0, 0, 1, BINS - 1));
    }

    #[test]
    fn a_spike_is_one_element_far_above_the_others_whatever_the_block_length() {
        for n in [32, 128, 256] {
            let mut block = vec![1.0f32; n];
            assert!(!is_spiky(&block, 6.0));
            block[n / 2] = -6.5;
            assert!(is_spiky(&block, 6.0), "{n}");
            block[n / 2] = 5.5;
            assert!(!is_spiky(&block, 6.0), "{n}");
        }
        assert!(!is_spiky(&[0.0; 32], 6.0));
        assert!(is_spiky(&[0.0, 0.0, 1e-3, 0.0], 6.0));
    }
}

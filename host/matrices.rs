//! Matrix units (cooperative matrices): which an adapter has, and whether they are exact.
//!
//! Kernels give them integers in f16 and bounds that keep every sum of magnitudes, accumulator included, below 2^24. A unit
//! that keeps 24 bits of what it adds then gives the integers themselves, in whatever order and with whatever rounding it
//! adds (docs/exactness.md section 11). No interface says how many bits a unit keeps, so a device is asked: by sums at the
//! bound that lose a one wherever a bit is missing, and by random tiles within the bounds of the kernels.

use super::device::GpuDevice;
use super::faults::HostError;
use super::module::Halves;
use super::probe::Probe;

/// Sizes of matrices that kernels are made for: square, as wgpu has them.
pub(super) const SIZES: [u32; 2] = [8, 16];

/// The stems of the probe's shaders, by size.
pub const PROBES: [&str; 2] = ["coop8_probe", "coop16_probe"];

/// Elements that a tile of the probe adds up, as many as a step of the kernels.
const DEPTH: usize = 32;

/// Lanes of a subgroup at most, so that a workgroup of a kernel has the two that it counts on.
const LANES: u32 = 64;

/// Sums below it are exact.
const BOUND: i32 = 1 << 24;

/// The features that matrices are used with, for adapters that have some that kernels are made for.
pub(super) fn features(adapter: &wgpu::Adapter) -> wgpu::Features {
    match offered(adapter).contains(&true) {
        true => wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SHADER_F16,
        false => wgpu::Features::empty(),
    }
}

/// Whether the adapter says that it has matrices of f16 with sums of f32, of each size.
pub(super) fn offered(adapter: &wgpu::Adapter) -> [bool; 2] {
    use wgpu::{CooperativeScalarType as Scalar, Features};
    let needed = Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16 | Features::SUBGROUP;
    let info = adapter.get_info();
    // Mesa 26's llvmpipe names matrices with vectors of 128 and of 512 bits too: with 4 lanes it has no such feature, for which
    // wgpu ends the process, and with 16 its compiler does
    let lanes = if info.device_type == wgpu::DeviceType::Cpu { 8..=8 } else { 8..=LANES };
    if !adapter.features().contains(needed) || !lanes.contains(&info.subgroup_max_size) {
        return [false; 2];
    }
    let all = adapter.cooperative_matrix_properties();
    SIZES.map(|n| {
        all.iter()
            .any(|m| [m.m_size, m.n_size, m.k_size] == [n; 3] && m.ab_type == Scalar::F16 && m.cr_type == Scalar::F32)
    })
}

/// The random tiles of a probe, beside the planted ones.
const RANDOM: usize = 512;

/// Which sizes of those offered give the integers' sums.
pub(super) async fn qualify(gpu: &GpuDevice, offered: [bool; 2]) -> Result<[bool; 2], HostError> {
    let mut exact = [false; 2];
    for place in (0..SIZES.len()).filter(|&place| offered[place]) {
        let tiles = Tiles::new(SIZES[place] as usize, RANDOM);
        let wrong = run(gpu, PROBES[place], &tiles).await?.map(|found| tiles.wrong(&found));
        exact[place] = wrong == Ok(None);
        let (title, n) = (&gpu.title, SIZES[place]);
        match wrong {
            Ok(None) => log::info!("{title}: {} tiles of {n} by {n} were exact", tiles.count),
            Ok(Some(what)) => log::warn!("{title}: its matrices of {n} by {n} are not exact ({what}) and not used"),
            Err(e) => log::warn!("{title}: its matrices of {n} by {n} are not used: {e}"),
        }
    }
    Ok(exact)
}

/// Tiles of matrices: DEPTH elements of rows, of columns, and what is added to.
struct Tiles {
    size: usize,
    count: usize,
    /// of each tile the rows, the columns, and the sums begun, column after column
    words: Vec<i32>,
}

impl Tiles {
    /// The planted tiles, then `random` ones. Of all, magnitudes add up to less than [`BOUND`].
    fn new(size: usize, random: usize) -> Tiles {
        let mut tiles = Tiles { size, count: 0, words: Vec::new() };
        for sign in [1, -1] {
            // a one at every place of the sum, alone, beside maxima that cancel, and beside maxima that do not
            for shift in 0..DEPTH {
                let at = |row: usize, k: usize| (k + DEPTH - (row + shift) % DEPTH) % DEPTH;
                tiles.add(|row, k| i32::from(at(row, k) == 0), |_, _| sign, sign * (BOUND - 2));
                let cancelling = |row, k| [1, 2047, -2047].get(at(row, k)).copied().unwrap_or(0);
                tiles.add(cancelling, |_, _| sign, sign * (BOUND - 2 - 2 * 2047));
                let maxima = |row, k| if at(row, k) == 0 { 1 } else { 945 };
                tiles.add(maxima, |_, _| 127 * sign, sign * (BOUND - 1 - 127 * (945 * 31 + 1)));
            }
            // the last sums of a group of Q4_K at its bound, and of each type as far as 32 elements go
            tiles.add(|_, _| 945, |_, _| 127 * sign, sign * 127 * 945 * 96);
            for most in [127, 480, 945] {
                tiles.add(|_, _| -most, |_, _| 127 * sign, 0);
            }
        }
        let mut seed = 1u32;
        for n in 0..random {
            let most = [127, 256, 480, 945, 2047][n % 5];
            let mut draw = |most: i32| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((u64::from(seed) * (2 * most as u64 + 1)) >> 32) as i32 - most
            };
            let rows: Vec<i32> = (0..size * DEPTH).map(|_| draw(most)).collect();
            let columns: Vec<i32> = (0..size * DEPTH).map(|_| draw(127)).collect();
            let left = BOUND - 1 - 127 * most * DEPTH as i32;
            let begun: Vec<i32> = (0..size * size).map(|_| draw(left)).collect();
            tiles.words.extend(rows.into_iter().chain(columns).chain(begun));
            tiles.count += 1;
        }
        // a workgroup of the probe has 64 rows
        while !tiles.count.is_multiple_of(64 / size) {
            tiles.add(|_, _| 1, |_, _| 1, 1);
        }
        tiles
    }

    /// A tile by its elements (row or column, k), and one number that all sums begin with.
    fn add(&mut self, row: impl Fn(usize, usize) -> i32, column: impl Fn(usize, usize) -> i32, begun: i32) {
        let of = |f: &dyn Fn(usize, usize) -> i32| -> Vec<i32> {
            (0..self.size * DEPTH).map(|i| f(i / DEPTH, i % DEPTH)).collect()
        };
        let (rows, columns) = (of(&row), of(&column));
        self.words.extend(rows.into_iter().chain(columns));
        self.words.extend(std::iter::repeat_n(begun, self.size * self.size));
        self.count += 1;
    }

    /// Words of a tile.
    fn stride(&self) -> usize {
        self.size * (2 * DEPTH + self.size)
    }

    /// Every sum, column after column, made of the number it begins with and its products.
    fn sums<'a, X: 'a>(&'a self, add: impl Fn(i32, [i32; DEPTH]) -> X + 'a) -> impl Iterator<Item = X> + 'a {
        let n = self.size;
        let places = (0..self.count).flat_map(move |tile| (0..n * n).map(move |i| (tile, i)));
        places.map(move |(tile, i)| {
            let tile = &self.words[tile * self.stride()..][..self.stride()];
            let (row, column) = (&tile[i % n * DEPTH..], &tile[(n + i / n) * DEPTH..]);
            add(tile[2 * n * DEPTH + i], std::array::from_fn(|k| row[k] * column[k]))
        })
    }

    /// The first of the sums found that is not the integers', in words.
    fn wrong(&self, found: &[f32]) -> Option<String> {
        let expected = self.sums(|begun, products| begun + products.iter().sum::<i32>());
        let mut all = expected.zip(found).enumerate();
        let first = all.find(|(_, (e, f))| *e as f32 != **f);
        first.map(|(i, (e, f))| format!("tile {}: {f} for {e}", i / (self.size * self.size)))
    }
}

/// What the device makes of the tiles: their sums, or why it cannot.
async fn run(gpu: &GpuDevice, stem: &'static str, tiles: &Tiles) -> Result<Result<Vec<f32>, String>, HostError> {
    let probe = Probe {
        stem,
        halves: Halves::Integers,
        count: tiles.count as u32,
        words: bytemuck::cast_slice(&tiles.words),
        written: tiles.count * tiles.size * tiles.size,
        // a workgroup has 64 rows
        groups: (tiles.count * tiles.size / 64) as u32,
    };
    Ok(probe.run(gpu).await?.map(|found| found.into_iter().map(f32::from_bits).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A unit that adds `block` products at a time to what it has, all aligned to the greatest of them, cut off `bits` below
    /// it, and rounded towards zero to 24 bits: the model of NVIDIA's (arXiv 2511.10909).
    fn unit(bits: i32, block: usize) -> impl Fn(i32, [i32; DEPTH]) -> f32 {
        move |begun, products| {
            let chunks = products.chunks_exact(block);
            chunks.fold(f64::from(begun), |sum, chunk| {
                let addends = || chunk.iter().map(|&p| f64::from(p)).chain([sum]);
                let most = addends().fold(0.0, |m: f64, x| m.max(x.abs()));
                let last = 2f64.powi(most.max(1.0).log2().floor() as i32 - bits);
                let sum: f64 = addends().map(|x| (x / last).trunc() * last).sum();
                let last = 2f64.powi(sum.abs().max(1.0).log2().floor() as i32 - 23);
                (sum / last).trunc() * last
            }) as f32
        }
    }

    #[test]
    fn a_unit_that_loses_a_bit_is_found_and_one_that_keeps_24_is_not() {
        for size in SIZES.map(|n| n as usize) {
            let tiles = Tiles::new(size, 40);
            assert_eq!(tiles.words.len(), tiles.count * tiles.stride());
            let wrong = |bits, block| tiles.wrong(&tiles.sums(unit(bits, block)).collect::<Vec<_>>());
            for block in [1, 4, 8, 16] {
                assert_eq!(wrong(23, block), None, "{size}, {block} at a time");
                for bits in [10, 13, 22] {
                    assert!(wrong(bits, block).is_some(), "{size}, {bits} bits, {block} at a time");
                }
            }
        }
    }

    #[test]
    fn one_wrong_sum_a_swapped_tile_and_what_is_not_a_number_are_found() {
        let tiles = Tiles::new(8, 8);
        let good: Vec<f32> = tiles.sums(|begun, p| (begun + p.iter().sum::<i32>()) as f32).collect();
        assert_eq!(tiles.wrong(&good), None);
        for i in [0, 77, good.len() - 1] {
            for other in [good[i] + 1.0, f32::NAN, good[i] * 2.0 + 1.0] {
                let mut bad = good.clone();
                bad[i] = other;
                assert!(tiles.wrong(&bad).is_some(), "{i}: {other}");
            }
        }
        let mut rows_for_columns = good.clone();
        let last = good.len() - 64;
        (0..64).for_each(|i| rows_for_columns[last + i] = good[last + i % 8 * 8 + i / 8]);
        assert!(tiles.wrong(&rows_for_columns).is_some());
    }

    /// Entries of a type as the shaders make them, all there are, and how many with an activation go into a sum.
    fn entries() -> Vec<(&'static str, Vec<i32>, i32)> {
        let bytes: Vec<i32> = (-128..128).collect();
        let of = |scales: std::ops::Range<i32>, codes: std::ops::Range<i32>| {
            scales.flat_map(|s| codes.clone().map(move |q| s * q)).collect::<Vec<_>>()
        };
        vec![
            ("Q8_0", bytes.clone(), 32),
            ("Q8K128", bytes, 128),
            ("Q4_K", of(0..64, 0..16), 128),
            ("Q6_K, low digit of scales", of(0..16, -32..32), 128),
            ("Q6_K, high digit", of(-8..8, -32..32), 128),
        ]
    }

    #[test]
    fn entries_of_every_type_are_f16_and_their_sums_below_the_bound() {
        for (name, entries, elements) in entries() {
            let most = entries.iter().map(|e| e.abs()).max().expect("there are some");
            // eleven bits
            assert!(most <= 2048, "{name}: {most}");
            assert!(elements * most * 127 < BOUND, "{name}: {most}");
        }
        // what the digits of Q6_K's scales give is what the scales give
        for (scale, q) in (-128..128).flat_map(|s: i32| (-32..32).map(move |q| (s, q))) {
            assert_eq!(16 * ((scale >> 4) * q) + (scale & 15) * q, scale * q);
        }
        // sums of 32 activations in two bytes for the minima of Q4_K, and what these come to
        for sum in -32 * 127..=32 * 127 {
            let (high, low) = (sum >> 7, sum & 127);
            assert!(i8::try_from(high).is_ok() && i8::try_from(low).is_ok() && 128 * high + low == sum);
        }
        const { assert!(4 * 63 * 32 * 127 < BOUND) };
    }

    #[test]
    fn magnitudes_of_every_tile_add_up_to_less_than_the_bound() {
        for size in SIZES {
            let tiles = Tiles::new(size as usize, 100);
            let most = tiles.sums(|begun, p| begun.abs() + p.iter().map(|p| p.abs()).sum::<i32>()).max();
            assert_eq!(most, Some(BOUND - 1));
            assert!((tiles.count * tiles.size).is_multiple_of(64) && tiles.words.iter().all(|w| w.abs() < BOUND));
        }
    }
}

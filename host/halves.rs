//! Whether a device's own conversion of two f16 to f32 (`unpack2x16float`) gives what the shaders' integers give.
//!
//! WGSL leaves open what becomes of subnormal f16, and a driver may lack the builtin. So a device is asked for every f16 below
//! infinity, in either half of a word; where one differs, attention converts by integers (`shared/exact/halves.wgsl`). What lies
//! beyond is asked of none: caches hold f16 below infinity, but for the mark of a key that is no number, and that is looked for
//! by its bits.

use super::device::GpuDevice;
use super::faults::HostError;
use super::module::Halves;
use super::probe::Probe;
use crate::ops::exact::f16_to_f32;

/// The stem of the probe's shader.
pub const PROBE: &str = "halves_probe";

/// Every f16 below infinity, each in the lower half of a word and in the upper half of another.
fn words() -> Vec<u32> {
    let finite: Vec<u32> = (0..=0xffff).filter(|h| (h >> 10) & 31 != 31).collect();
    finite.iter().zip(finite.iter().rev()).map(|(low, high)| low | (high << 16)).collect()
}

/// The place of the first of the numbers found that is not the words', if there is one.
fn wrong(words: &[u32], found: &[u32]) -> Option<usize> {
    let expected = words.iter().flat_map(|w| [w & 0xffff, w >> 16]).map(|h| f16_to_f32(h as u16).to_bits());
    expected.zip(found).position(|(e, f)| e != *f)
}

/// Whether the device's own conversion is used.
pub(super) async fn qualify(gpu: &GpuDevice) -> Result<bool, HostError> {
    let words = words();
    let n = words.len();
    let probe = Probe {
        stem: PROBE,
        halves: Halves::Unpacked,
        count: n as u32,
        words: &words,
        written: 2 * n,
        groups: (n as u32).div_ceil(64),
    };
    let found = probe.run(gpu).await?;
    let place = found.map(|found| wrong(&words, &found));
    match &place {
        Ok(None) => log::info!("{}: f16 are unpacked by the device: {} of them agreed", gpu.title, 2 * n),
        Ok(Some(place)) => log::info!("{}: f16 are unpacked by integers: number {place} differs", gpu.title),
        Err(e) => log::info!("{}: f16 are unpacked by integers: {e}", gpu.title),
    }
    Ok(place == Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_asked_for_twice_and_one_that_differs_is_found() {
        let words = words();
        assert_eq!(words.len(), 2 * 31 * 1024);
        for half in [|w: &u32| w & 0xffff, |w: &u32| w >> 16] {
            let mut all: Vec<u32> = words.iter().map(half).collect();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), words.len());
        }
        let two = |w: &u32| [w & 0xffff, w >> 16].map(|h| half::f16::from_bits(h as u16).to_f32().to_bits());
        let good: Vec<u32> = words.iter().flat_map(two).collect();
        assert_eq!(wrong(&words, &good), None);
        // subnormals that a device makes 0, and a zero without its sign
        for h in [1u32, 0x83ff, 0x8000] {
            let place = words.iter().position(|w| w >> 16 == h).expect("it is there") * 2 + 1;
            let mut bad = good.clone();
            bad[place] = 0;
            assert_eq!(wrong(&words, &bad), Some(place), "{h:04x}");
        }
    }
}

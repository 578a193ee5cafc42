//! What this machine can do at most, measured: how fast threads read memory, and how many int8 operations they do; and, as
//! the system tells it, how much memory and which cores it has.
//!
//! A speed is worth little without the limit it is near to, and limits move with the machine and its neighbours: measure
//! both in one process. The loops are in `simd::peak`; here is only the clock. Nothing is cached and nothing is printed.

mod cores;

use crate::simd::{Level, Words, peak};
use crate::stop::{Interrupted, Stop};
pub use cores::{Cores, kinds};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Bytes of main memory, where the system tells (Linux).
pub fn total_memory() -> Option<u64> {
    memory("MemTotal:")
}

/// Bytes of main memory that may be taken without swapping, where the system tells.
pub fn free_memory() -> Option<u64> {
    memory("MemAvailable:")
}

/// A line of /proc/meminfo in bytes.
fn memory(line: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with(line))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes that no cache holds.
const FAR: usize = 1 << 30;

/// Pieces they are read in, each still far larger than a cache, and passes over all of them. The best piece counts: on a
/// machine with other work, short runs find a moment without it.
const PIECES: usize = 8;
const PASSES: usize = 8;

/// Seconds of each of the runs of an int8 loop, and how many there are; the best counts.
const SECONDS: f64 = 0.004;
const RUNS: usize = 50;

/// Plain reads from memory, bytes per second: `threads` (at least 1) threads together read 1 GiB, each a contiguous part
/// of its own, in huge pages where weights get them too. Best of many pieces of 128 MiB; takes about a second, or less
/// where it is asked to stop, which is its error.
pub fn read_bandwidth(threads: usize, stop: &Stop) -> Result<f64, Interrupted> {
    let threads = threads.max(1);
    let piece = FAR / 8 / threads / PIECES;
    let part = piece * PIECES;
    let mut words = Words::zeroed(2 * part * threads);
    let words: &mut [u64] = bytemuck::cast_slice_mut(&mut words);
    // pages that were never written are all one page of zeros, and in the cache
    std::thread::scope(|s| words.chunks_exact_mut(part).for_each(|p| drop(s.spawn(move || write(p, stop)))));
    let each: Vec<&[u64]> = words.chunks_exact(part).collect();
    let seconds = together(threads, PASSES * PIECES, |i, run| {
        if stop.asked() {
            return;
        }
        let sum = black_box(peak::read(&each[i][run % PIECES * piece..][..piece]));
        assert_eq!(sum, piece as u64, "every word read counts one");
    });
    stop.check()?;
    Ok((piece * threads * 8) as f64 / seconds)
}

/// Ones, until it is asked to stop.
fn write(words: &mut [u64], stop: &Stop) {
    words.chunks_mut(1 << 20).take_while(|_| !stop.asked()).for_each(|w| w.fill(1));
}

/// Int8 operations per second of `threads` (at least 1) threads together, a multiplication and an addition counting one
/// each, with the dot instruction of `level` and its operands at hand. Best of several runs; takes about a quarter of a
/// second. Panics when this CPU does not have `level`.
pub fn int8_rate(level: Level, threads: usize) -> f64 {
    let threads = threads.max(1);
    let mut rounds = 1 << 12;
    loop {
        let start = Instant::now();
        black_box(peak::dots(level, rounds));
        let seconds = start.elapsed().as_secs_f64();
        if seconds >= SECONDS / 4.0 {
            rounds = (rounds as f64 * SECONDS / seconds) as usize;
            break;
        }
        rounds *= 2;
    }
    let seconds = together(threads, RUNS, |_, _| {
        black_box(peak::dots(level, rounds));
    });
    (threads * rounds * peak::ops_per_round(level)) as f64 / seconds
}

/// Seconds from the first start to the last end when `threads` threads run `work(its number, the run's number)` together:
/// the best of `runs`.
fn together(threads: usize, runs: usize, work: impl Fn(usize, usize) + Sync) -> f64 {
    let start = Barrier::new(threads);
    let each = |i: usize| -> Vec<(Instant, Instant)> {
        (0..runs)
            .map(|run| {
                start.wait();
                let from = Instant::now();
                work(i, run);
                (from, Instant::now())
            })
            .collect()
    };
    let each = &each;
    let times: Vec<Vec<(Instant, Instant)>> = std::thread::scope(|s| {
        let others: Vec<_> = (1..threads).map(|i| s.spawn(move || each(i))).collect();
        let mut times = vec![each(0)];
        times.extend(others.into_iter().map(|o| o.join().expect("the loops do not panic")));
        times
    });
    let whole = |run: usize| {
        let first = times.iter().map(|t| t[run].0).min().expect("a thread at least");
        let last = times.iter().map(|t| t[run].1).max().expect("a thread at least");
        last.duration_since(first).as_secs_f64()
    };
    (0..runs).map(whole).fold(f64::MAX, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lasts_from_the_first_start_to_the_last_end() {
        let pause = |i: usize, _: usize| std::thread::sleep(std::time::Duration::from_millis(4 * i as u64));
        let seconds = together(3, 3, pause);
        // no more is known of the longest on a machine with other work
        assert!(seconds >= 0.008, "{seconds}");
    }

    #[test]
    fn every_level_of_this_machine_has_a_rate() {
        for level in Level::available() {
            let rate = int8_rate(level, 1);
            assert!(rate > 1e8, "{} {rate:e}", level.name());
        }
    }
}

//! Times attention of every SIMD level: `cargo bench --bench attention [-- threads]`.
//!
//! One token attends to a full cache, one query head to a key-value head ("decode"), then with 2, 4 and 8 query heads
//! sharing one ("shared"), then 64 tokens do ("prefill"); last the writing of one token's keys and of its values ("write",
//! in microseconds, beside the plain twin's). CPU time only. Per level: tokens a second of one layer with 8 key-value
//! heads, and the bytes of cache read a second (for prefill counted once per query, as decode would read them). Three
//! runs of at least 50 ms after a warm-up; the best is printed, with the spread to the worst. Each result is compared
//! with the first level's, bit for bit, before it is timed.

use isobit::internals::ops::attention::{AttentionParams, SCOPE_ALL};
use isobit::internals::ops::cache::{CacheType, CacheWriteParams, cache_write_k, cache_write_v};
use isobit::internals::ops::places::{self, Places};
use isobit::internals::simd::{self, Level, attention};
use std::time::{Duration, Instant};

const KV_HEADS: usize = 8;

/// Best and worst seconds of one call.
fn seconds(mut f: impl FnMut()) -> (f64, f64) {
    f();
    let (mut best, mut worst) = (f64::INFINITY, 0f64);
    for _ in 0..3 {
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(50) {
            f();
            calls += 1;
        }
        let each = start.elapsed().as_secs_f64() / calls as f64;
        (best, worst) = (best.min(each), worst.max(each));
    }
    (best, worst)
}

/// Repeats with a prime period, as large as a head's elements are.
fn pattern(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed) % 1009) as f32 / 504.0 - 1.0).collect()
}

fn main() {
    let threads = std::env::args().skip(1).find_map(|s| s.parse().ok()).unwrap_or(1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("worker threads");
    println!("{threads} threads, {KV_HEADS} key-value heads; tokens/s of one layer, GB/s of cache, spread");
    for (what, sharing, n_tokens, depths) in [
        ("decode", 1, 1, &[512, 2048, 8192, 16384][..]),
        ("shared", 2, 1, &[2048][..]),
        ("shared", 4, 1, &[2048][..]),
        ("shared", 8, 1, &[512, 1024, 2048][..]),
        ("prefill", 1, 64, &[2048][..]),
    ] {
        for head_dim in [64, 128] {
            for t in CacheType::ALL {
                for &depth in depths {
                    print!("{what} x{sharing} hd {head_dim:3} {:5} depth {depth:5}", t.name());
                    case(&pool, t, head_dim, depth, sharing, n_tokens);
                    println!();
                }
            }
        }
    }
    for head_dim in [64, 128] {
        for t in CacheType::ALL {
            print!("write hd {head_dim:3} {:5}", t.name());
            pool.install(|| written(t, head_dim));
            println!();
        }
    }
}

/// Where tokens of one sequence lie whose chunks are in order.
fn in_order(pos: usize, n_tokens: usize) -> Vec<u32> {
    let mut words = Vec::new();
    places::in_order(pos, n_tokens, 0, &mut words);
    words
}

/// Times the writing of one token, of 8 key-value heads.
fn written(t: CacheType, head_dim: usize) {
    let page_len = 2048;
    let p = CacheWriteParams {
        n_tokens: 1,
        kv_heads: KV_HEADS as u32,
        head_dim: head_dim as u32,
        page_first: 0,
        page_len: page_len as u32,
        ring: 0,
        table: 0,
    };
    let at = in_order(77, 1);
    let at = Places::new(&at);
    let x = pattern(KV_HEADS * head_dim, 4);
    let words = KV_HEADS * page_len * t.words(head_dim).expect("a head of 64 or 128");
    let (mut expected, mut found) = (vec![0; words], vec![0; words]);
    cache_write_k(t, &p, at, &x, &x, &mut expected);
    let (twin, _) = seconds(|| cache_write_k(t, &p, at, &x, &x, &mut expected));
    print!(" | twin {:6.2} us", twin * 1e6);
    for level in Level::available() {
        found.fill(0);
        simd::cache_write_k(level, t, &p, at, &x, &x, &mut found);
        assert!(found == expected, "{} differs", level.name());
        let (keys, _) = seconds(|| simd::cache_write_k(level, t, &p, at, &x, &x, &mut found));
        let (values, _) = seconds(|| simd::cache_write_v(level, t, &p, at, &x, &mut found));
        print!(" | {} keys {:6.2} values {:6.2}", level.name(), keys * 1e6, values * 1e6);
    }
}

fn case(pool: &rayon::ThreadPool, t: CacheType, head_dim: usize, depth: usize, sharing: usize, n_tokens: usize) {
    let write = CacheWriteParams {
        n_tokens: depth as u32,
        kv_heads: KV_HEADS as u32,
        head_dim: head_dim as u32,
        page_first: 0,
        page_len: depth as u32,
        ring: 0,
        table: 0,
    };
    let whole = in_order(0, depth);
    let whole = Places::new(&whole);
    let words = KV_HEADS * depth * t.words(head_dim).expect("a head of 64 or 128");
    let (mut k, mut v) = (vec![0; words], vec![0; words]);
    let keys = pattern(KV_HEADS * depth * head_dim, 1);
    cache_write_k(t, &write, whole, &keys, &keys, &mut k);
    cache_write_v(t, &write, whole, &pattern(KV_HEADS * depth * head_dim, 2), &mut v);
    let p = AttentionParams {
        n_tokens: n_tokens as u32,
        chunk0: 0,
        chunks: 0,
        heads: (KV_HEADS * sharing) as u32,
        kv_heads: KV_HEADS as u32,
        head_dim: head_dim as u32,
        page_first: 0,
        page_len: depth as u32,
        scale: 1.0 / (head_dim as f32).sqrt(),
        scope: SCOPE_ALL,
        window: 0,
        table: 0,
        softcap: 0.0,
        inv_softcap: 0.0,
        sinks: 0,
    };
    let at = in_order(depth - n_tokens, n_tokens);
    let at = Places::new(&at);
    let n = n_tokens * KV_HEADS * sharing * head_dim;
    let q = pattern(n, 3);
    let (mut first, mut out) = (Vec::new(), vec![0f32; n]);
    for level in Level::available() {
        pool.install(|| {
            attention(level, (t, t), &p, &q, &k, &v, at, &mut [], &mut out);
            if first.is_empty() {
                first = out.clone();
            }
            assert!(first.iter().zip(&out).all(|(a, b)| a.to_bits() == b.to_bits()), "{} differs", level.name());
            let (best, worst) = seconds(|| attention(level, (t, t), &p, &q, &k, &v, at, &mut [], &mut out));
            let tokens = n_tokens as f64 / best;
            let bytes = 8.0 * words as f64;
            let spread = (worst / best - 1.0) * 100.0;
            print!(" | {} {tokens:8.0} {:6.1} {spread:3.0}%", level.name(), bytes * tokens / 1e9);
        });
    }
}

//! Attention, SwiGLU and RMS norm of every SIMD level against the plain twins: every word equal, nothing written that
//! the twin does not write.

use isobit::internals::ops::altup_correct::{self, AltupCorrectParams};
use isobit::internals::ops::altup_predict::{self, AltupPredictParams, OTHERS, STREAMS};
use isobit::internals::ops::altup_rescale::{self, AltupRescaleParams};
use isobit::internals::ops::attention::{AttentionParams, SCOPE_ALL, attention as twin_attention, head as twin_head};
use isobit::internals::ops::cache::{CacheType, CacheWriteParams, POISONED, cache_write_k, cache_write_v};
use isobit::internals::ops::exact::{POISON, canon};
use isobit::internals::ops::gaussian_topk::{self, GaussianTopkParams};
use isobit::internals::ops::geglu::element as twin_geglu;
use isobit::internals::ops::gelu::element as twin_gelu;
use isobit::internals::ops::layer_norm::{self, LayerNormParams};
use isobit::internals::ops::places::{self, Places};
use isobit::internals::ops::rms_norm::{RmsNormParams, row as twin_norm};
use isobit::internals::ops::swiglu::element as twin_swiglu;
use isobit::internals::simd::{
    self, Level, attention, attention_head, geglu, gelu, layer_norm_row, rms_norm_row, swiglu,
};

/// What output buffers hold before a call; no operation gives it.
const GUARD: u32 = 0x7fc1_2345;

/// Its state is the seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        isobit::internals::random::next(&mut self.0)
    }

    /// -1..1
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 * (2.0 / (1 << 24) as f32) - 1.0
    }

    /// Either sign, magnitudes spread evenly in the exponent.
    fn spread(&mut self, low: f32, high: f32) -> f32 {
        let t = (self.unit() + 1.0) / 2.0;
        let magnitude = (low.ln() + t * (high / low).ln()).exp();
        if self.next() & 1 == 0 { magnitude } else { -magnitude }
    }

    /// A stored row: of unit size, zero, tiny or the same as others; when `wild` also with large outliers, which make one
    /// position outweigh all others.
    fn row(&mut self, n: usize, wild: bool) -> Vec<f32> {
        let kind = self.next() % if wild { 8 } else { 6 };
        (0..n)
            .map(|i| {
                canon(match kind {
                    0 => 0.0,
                    1 => (i % 7) as f32 - 3.0,
                    2 => self.unit() * 1e-6,
                    6 => self.spread(1e-12, 1e4),
                    7 if self.next().is_multiple_of(17) => self.unit() * 3e4,
                    _ => self.unit(),
                })
            })
            .collect()
    }

    fn rows(&mut self, rows: usize, n: usize, wild: bool) -> Vec<f32> {
        (0..rows).flat_map(|_| self.row(n, wild)).collect()
    }
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|x| x.to_bits()).collect()
}

fn guarded(n: usize) -> Vec<f32> {
    vec![f32::from_bits(GUARD); n]
}

fn same(got: &[f32], want: &[f32]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} values, expected {}", got.len(), want.len()));
    }
    match got.iter().zip(want).position(|(g, w)| g.to_bits() != w.to_bits()) {
        None => Ok(()),
        Some(i) => Err(format!(
            "value {i} is {:e} ({:08x}), expected {:e} ({:08x})",
            got[i],
            bits(got)[i],
            want[i],
            bits(want)[i]
        )),
    }
}

/// Where tokens of one sequence lie whose chunks are in order.
fn in_order(pos: usize, n_tokens: usize) -> Vec<u32> {
    let mut words = Vec::new();
    places::in_order(pos, n_tokens, 0, &mut words);
    words
}

// ---------------------------------------------------------------- attention

/// A cache of some positions, in pages.
struct Cache {
    types: (CacheType, CacheType),
    kv_heads: usize,
    head_dim: usize,
    page_len: usize,
    /// keys and values of each page
    pages: Vec<(Vec<u32>, Vec<u32>)>,
}

impl Cache {
    fn new(
        types: (CacheType, CacheType),
        (kv_heads, head_dim): (usize, usize),
        (pages, page_len): (usize, usize),
        keys: &[f32],
        values: &[f32],
    ) -> Cache {
        let n_tokens = keys.len() / (kv_heads * head_dim);
        let at = in_order(0, n_tokens);
        let pages = (0..pages)
            .map(|page| {
                let p = CacheWriteParams {
                    n_tokens: n_tokens as u32,
                    kv_heads: kv_heads as u32,
                    head_dim: head_dim as u32,
                    page_first: (page * page_len) as u32,
                    page_len: page_len as u32,
                    ring: 0,
                    table: 0,
                };
                let words = |t: CacheType| kv_heads * page_len * t.words(head_dim).unwrap();
                // what a page holds past the last position must not matter: a finite value in every type
                let (mut k, mut v) = (vec![0x3bcd_3bcd; words(types.0)], vec![0x3bcd_3bcd; words(types.1)]);
                cache_write_k(types.0, &p, Places::new(&at), keys, values, &mut k);
                cache_write_v(types.1, &p, Places::new(&at), values, &mut v);
                (k, v)
            })
            .collect();
        Cache { types, kv_heads, head_dim, page_len, pages }
    }

    fn params(&self, page: usize, sharing: usize, n_tokens: usize) -> AttentionParams {
        AttentionParams {
            n_tokens: n_tokens as u32,
            chunk0: 0,
            chunks: 0,
            heads: (self.kv_heads * sharing) as u32,
            kv_heads: self.kv_heads as u32,
            head_dim: self.head_dim as u32,
            page_first: (page * self.page_len) as u32,
            page_len: self.page_len as u32,
            scale: (1.0 / (self.head_dim as f64).sqrt()) as f32,
            scope: SCOPE_ALL,
            window: 0,
            table: 0,
            softcap: 0.0,
            inv_softcap: 0.0,
            sinks: 0,
        }
    }
}

/// What one form of attention leaves in state and out after all pages.
fn all_pages(
    cache: &Cache,
    (sharing, pos, n_tokens): (usize, usize, usize),
    mut one: impl FnMut(&AttentionParams, &[u32], &[u32], Places, &mut [f32], &mut [f32]),
) -> (Vec<f32>, Vec<f32>) {
    let rows = n_tokens * cache.kv_heads * sharing;
    let carried = if cache.pages.len() > 1 { rows * (cache.head_dim + 2) } else { 0 };
    let (mut state, mut out) = (guarded(carried), guarded(rows * cache.head_dim));
    let at = in_order(pos, n_tokens);
    for (page, (k, v)) in cache.pages.iter().enumerate() {
        one(&cache.params(page, sharing, n_tokens), k, v, Places::new(&at), &mut state, &mut out);
    }
    (state, out)
}

/// Compares head by head and as a whole command, at every level.
fn compare(cache: &Cache, how: (usize, usize, usize), q: &[f32]) {
    let (sharing, pos, n_tokens) = how;
    let (types, hd) = (cache.types, cache.head_dim);
    let q = &q[..n_tokens * cache.kv_heads * sharing * hd];
    let want = all_pages(cache, how, |p, k, v, at, state, out| twin_attention(types, p, q, k, v, at, state, out));
    assert!(want.1.iter().all(|x| x.is_finite()), "the twin gave no finite result");
    for level in Level::available() {
        let heads = all_pages(cache, how, |p, k, v, at, state, out| {
            for (row, (q, out)) in q.chunks_exact(hd).zip(out.chunks_exact_mut(hd)).enumerate() {
                let state = if state.is_empty() { &mut [] } else { &mut state[row * (hd + 2)..][..hd + 2] };
                attention_head(level, types, p, row, q, k, v, at, state, out);
            }
        });
        let whole =
            all_pages(cache, how, |p, k, v, at, state, out| attention(level, types, p, q, k, v, at, state, out));
        for (form, got) in [("head", &heads), ("command", &whole)] {
            for (what, got, want) in [("out", &got.1, &want.1), ("state", &got.0, &want.0)] {
                if let Err(e) = same(got, want) {
                    panic!(
                        "{} by {form}, keys {}, values {}, head of {hd}, {sharing} sharing, {n_tokens} tokens at {pos}, \
                         {} pages of {}: {what}: {e}",
                        level.name(),
                        types.0.name(),
                        types.1.name(),
                        cache.pages.len(),
                        cache.page_len,
                    );
                }
            }
        }
    }
}

/// The pairs of cache types that can hold a head.
fn pairs(head_dim: usize) -> Vec<(CacheType, CacheType)> {
    let types = CacheType::ALL.into_iter().filter(|t| t.words(head_dim).is_some());
    types.clone().flat_map(|k| types.clone().map(move |v| (k, v))).collect()
}

/// Every pair of types and every level at one head size. All key types and all value types meet all cases, though not
/// each pair of them: with nine types on either side a case takes the pairs whose numbers add up to its own, modulo 4.
fn heads_of(head_dim: usize) {
    const POSITIONS: [usize; 8] = [0, 1, 31, 32, 63, 64, 65, 200];
    let kv_heads = 2;
    let mut random = Random(head_dim as u64);
    let stored = 204;
    for wild in [false, true] {
        let keys = random.rows(stored * kv_heads, head_dim, wild);
        let values = random.rows(stored * kv_heads, head_dim, wild);
        let q = random.rows(8 * kv_heads * 4, head_dim, wild);
        let mut cases = Vec::new();
        for sharing in [1, 2, 4] {
            for pos in POSITIONS {
                cases.push((sharing, pos, 1));
            }
            // several tokens, within a page and over its end
            for pos in [0, 61, 126] {
                cases.push((sharing, pos, 5));
            }
        }
        let pairs = pairs(head_dim);
        for &types in &pairs {
            for (first, pages) in [(1, 256), (2, 128), (4, 64)].into_iter().enumerate() {
                let cache = Cache::new(types, (kv_heads, head_dim), pages, &keys, &values);
                for (i, &case) in cases.iter().enumerate() {
                    let number = first * cases.len() + i;
                    if pairs.len() < 64 || (types.0 as usize + types.1 as usize) % 4 == number % 4 {
                        compare(&cache, case, &q);
                    }
                }
            }
        }
    }
}

#[test]
fn heads_of_2_equal_the_twin() {
    heads_of(2);
}

#[test]
fn heads_of_40_equal_the_twin() {
    heads_of(40);
}

#[test]
fn heads_of_32_equal_the_twin() {
    heads_of(32);
}

#[test]
fn heads_of_64_equal_the_twin() {
    heads_of(64);
}

#[test]
fn heads_of_96_equal_the_twin() {
    heads_of(96);
}

#[test]
fn heads_of_128_equal_the_twin() {
    heads_of(128);
}

#[test]
fn heads_of_256_equal_the_twin() {
    heads_of(256);
}

#[test]
fn odd_head_sizes_and_sharing_by_three_or_seven_equal_the_twin() {
    for (head_dim, sharing) in [(1, 3), (7, 7), (80, 3), (160, 7)] {
        let mut random = Random(1000 + head_dim as u64);
        let keys = random.rows(80, head_dim, false);
        let values = random.rows(80, head_dim, false);
        let q = random.rows(3 * sharing, head_dim, false);
        for types in pairs(head_dim) {
            let cache = Cache::new(types, (1, head_dim), (2, 64), &keys, &values);
            compare(&cache, (sharing, 62, 3), &q);
        }
    }
}

#[test]
fn one_thread_and_three_give_the_same_command() {
    let (kv_heads, head_dim) = (2, 64);
    let mut random = Random(5);
    let keys = random.rows(140 * kv_heads, head_dim, false);
    let values = random.rows(140 * kv_heads, head_dim, false);
    let q = random.rows(40 * kv_heads * 2, head_dim, false);
    let cache = Cache::new((CacheType::Q8_0, CacheType::F16), (kv_heads, head_dim), (3, 64), &keys, &values);
    for threads in [1, 3, 16] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| compare(&cache, (2, 100, 40), &q));
    }
}

#[test]
fn many_rows_equal_the_twin() {
    // one thread, so that however many cores there are rows are taken in blocks
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let kv_heads = 2;
    let floats = |t: CacheType| matches!(t, CacheType::F32 | CacheType::F16);
    for (i, (head_dim, sharing, wild)) in
        [(32, 4, false), (64, 3, true), (96, 1, false), (128, 2, true), (64, 8, false)].into_iter().enumerate()
    {
        let mut random = Random(60 + head_dim as u64);
        let keys = random.rows(204 * kv_heads, head_dim, wild);
        let values = random.rows(204 * kv_heads, head_dim, wild);
        let q = random.rows(70 * kv_heads * sharing, head_dim, wild);
        for (types, number) in pairs(head_dim).into_iter().zip(0..) {
            // of floats all cases; of the others each type of keys and of values with some other, once a case
            let of_floats = floats(types.0) && floats(types.1);
            let (k, v) = (number / 9, number % 9);
            if !of_floats && (k + v) % 9 != i {
                continue;
            }
            for pages in [(1, 256), (4, 64)] {
                let cache = Cache::new(types, (kv_heads, head_dim), pages, &keys, &values);
                for pos in [0, 100, 134] {
                    if of_floats || (pos == 100) == (pages.0 == 1) {
                        pool.install(|| compare(&cache, (sharing, pos, 70), &q));
                    }
                }
            }
        }
    }
}

/// What a block takes for usual is not: scores and values of any size, a few of them too large or no number.
#[test]
fn many_rows_of_extremes_equal_the_twin() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let (head_dim, sharing, n, pos) = (64, 4, 70, 100);
    for (types, scale) in [
        ((CacheType::F32, CacheType::F32), 1e18),
        ((CacheType::F32, CacheType::F32), 1e9),
        ((CacheType::F16, CacheType::F32), 3e4),
        ((CacheType::Q8_0, CacheType::F16), 1e-9),
        ((CacheType::F32, CacheType::F16), 1e-14),
        ((CacheType::F16, CacheType::Q8_0), 0.0),
    ] {
        let mut random = Random(70);
        let mut wide =
            |rows: usize| -> Vec<f32> { random.rows(rows, head_dim, true).iter().map(|x| canon(x * scale)).collect() };
        let (mut keys, mut values, q) = (wide(204), wide(204), wide(n * sharing));
        // a key that is marked, in a chunk that is seen by some rows alone
        keys[150 * head_dim + 3] = f32::INFINITY;
        for x in keys.iter_mut().chain(&mut values) {
            *x = if x.is_nan() { 1.0 } else { *x };
        }
        let cache = Cache::new(types, (1, head_dim), (1, 256), &keys, &values);
        let (k, v) = &cache.pages[0];
        let (p, at) = (cache.params(0, sharing, n), in_order(pos, n));
        let mut want = guarded(n * sharing * head_dim);
        let q: Vec<f32> = q.iter().map(|x| if x.is_nan() { 1.0 } else { *x }).collect();
        twin_attention(types, &p, &q, k, v, Places::new(&at), &mut [], &mut want);
        let poisoned = want.iter().filter(|x| x.to_bits() == POISON.to_bits()).count();
        assert!(poisoned >= 20 * sharing * head_dim, "rows that see the key are marked");
        assert!(scale > 1e5 || poisoned <= 20 * sharing * head_dim, "the others are numbers");
        for level in Level::available() {
            let mut got = guarded(n * sharing * head_dim);
            pool.install(|| attention(level, types, &p, &q, k, v, Places::new(&at), &mut [], &mut got));
            same(&got, &want).unwrap_or_else(|e| panic!("{level:?}, {types:?} times {scale:e}: {e}"));
        }
    }
}

/// What pages before bring may lie above what values of this one can come to: those of f32 before a ring of f16.
#[test]
fn many_rows_that_bring_large_sums_equal_the_twin() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let (head_dim, sharing, n, pos) = (64, 4, 64, 64);
    let mut random = Random(71);
    let (keys, values) = (random.rows(128, head_dim, false), random.rows(128, head_dim, false));
    let q = random.rows(n * sharing, head_dim, false);
    let cache = Cache::new((CacheType::F16, CacheType::F16), (1, head_dim), (2, 64), &keys, &values);
    let (k, v) = &cache.pages[1];
    let (p, at) = (cache.params(1, sharing, n), in_order(pos, n));
    let mut brought: Vec<f32> = (0..n * sharing * (head_dim + 2)).map(|_| random.spread(1e16, 1e21)).collect();
    for row in brought.chunks_exact_mut(head_dim + 2) {
        (row[0], row[1], row[7]) = (1.0, 2.0, POISON);
    }
    let run = |attend: &mut dyn FnMut(&mut [f32], &mut [f32])| {
        let (mut state, mut out) = (brought.clone(), guarded(n * sharing * head_dim));
        attend(&mut state, &mut out);
        out
    };
    let want = run(&mut |state, out| {
        twin_attention(cache.types, &p, &q, k, v, Places::new(&at), state, out);
    });
    assert!(want.iter().any(|x| x.is_nan()) && want.iter().any(|x| x.is_finite()));
    for level in Level::available() {
        let got = run(&mut |state, out| {
            pool.install(|| attention(level, cache.types, &p, &q, k, v, Places::new(&at), state, out));
        });
        same(&got, &want).unwrap_or_else(|e| panic!("{level:?}: {e}"));
    }
}

#[test]
fn values_that_overflow_are_cached_as_numbers_beside_marked_keys_and_a_token_before_them_does_not_see_them() {
    let (types, head_dim) = ((CacheType::F16, CacheType::F32), 64);
    let mut random = Random(21);
    let keys = random.rows(66, head_dim, false);
    let mut values = random.rows(66, head_dim, false);
    values[64 * head_dim..65 * head_dim].fill(f32::INFINITY);
    values[65 * head_dim..].fill(f32::NAN);
    let q = random.rows(4, head_dim, false);
    let cache = Cache::new(types, (1, head_dim), (1, 128), &keys, &values);
    let (k, v) = &cache.pages[0];
    assert!(v[64 * head_dim..66 * head_dim].iter().all(|w| *w == 0));
    // the first words of rows 64 and 65, in the third group of 32 positions
    let first = 64 / 32 * (head_dim / 2) * 32;
    assert_eq!(k[first..first + 2], [POISONED; 2]);
    let (p, at) = (cache.params(0, 1, 4), in_order(62, 4));
    let at = Places::new(&at);
    let mut want = guarded(4 * head_dim);
    twin_attention(types, &p, &q, k, v, at, &mut [], &mut want);
    assert!(want[..2 * head_dim].iter().all(|x| x.is_finite()));
    assert!(want[2 * head_dim..].iter().all(|x| x.to_bits() == POISON.to_bits()), "those after it see it");
    for level in Level::available() {
        let mut got = guarded(4 * head_dim);
        attention(level, types, &p, &q, k, v, at, &mut [], &mut got);
        same(&got, &want).unwrap_or_else(|e| panic!("{level:?}: {e}"));
    }
}

#[test]
fn zero_queries_and_equal_keys_give_the_mean_as_the_twin_does() {
    for (types, head_dim) in pairs(64).into_iter().map(|t| (t, 64)) {
        let keys = [0.25f32; 100 * 64];
        let values: Vec<f32> = (0..100 * 64).map(|i| (i / 64 % 2) as f32).collect();
        let cache = Cache::new(types, (1, head_dim), (1, 128), &keys, &values);
        compare(&cache, (1, 99, 1), &[0.0; 64]);
        let (p, at) = (cache.params(0, 1, 1), in_order(99, 1));
        let mut out = guarded(64);
        let (k, v) = &cache.pages[0];
        attention_head(Level::detect(), types, &p, 0, &[0.0; 64], k, v, Places::new(&at), &mut [], &mut out);
        // half the values are 1, which a type holds as nearly as its scales and levels can
        let tolerance = match types.1 {
            CacheType::Q8_0R => 0.005,
            CacheType::Q4_0R => 0.05,
            CacheType::TQ3_0 | CacheType::TQ3_1 => 0.3,
            _ => 1e-3,
        };
        let error = out.iter().map(|x| (x - 0.5) * (x - 0.5)).sum::<f32>() / 64.0;
        assert!(error.sqrt() < tolerance, "{types:?}: {out:?}");
    }
}

#[test]
fn swapping_two_positions_changes_bits() {
    let head_dim = 64;
    let mut random = Random(9);
    let mut plain = |n: usize| (0..n * head_dim).map(|_| random.unit()).collect::<Vec<f32>>();
    let (keys, values, q) = (plain(64), plain(64), plain(1));
    let swapped = |x: &[f32]| {
        let mut x = x.to_vec();
        for e in 0..head_dim {
            x.swap(3 * head_dim + e, 40 * head_dim + e);
        }
        x
    };
    for types in pairs(head_dim) {
        for level in Level::available() {
            let run = |keys: &[f32], values: &[f32]| {
                let cache = Cache::new(types, (1, head_dim), (1, 64), keys, values);
                let (k, v) = &cache.pages[0];
                let (mut out, at) = (guarded(head_dim), in_order(63, 1));
                attention_head(level, types, &cache.params(0, 1, 1), 0, &q, k, v, Places::new(&at), &mut [], &mut out);
                out
            };
            let straight = run(&keys, &values);
            assert!(same(&straight, &run(&keys, &values)).is_ok());
            // the same terms in another order
            let reordered = run(&swapped(&keys), &swapped(&values));
            assert!(same(&straight, &reordered).is_err(), "{types:?} {level:?}: the order of positions is not seen");
            assert!(straight.iter().zip(&reordered).all(|(a, b)| (a - b).abs() < 1e-4));
            // the last position is seen, the next is not
            let cache = Cache::new(types, (1, head_dim), (1, 64), &keys, &values);
            let (k, v) = &cache.pages[0];
            let (mut out, at) = (guarded(head_dim), in_order(62, 1));
            attention_head(level, types, &cache.params(0, 1, 1), 0, &q, k, v, Places::new(&at), &mut [], &mut out);
            assert!(same(&straight, &out).is_err(), "{types:?} {level:?}: the last position is not seen");
        }
    }
}

#[test]
fn a_row_before_the_page_writes_nothing() {
    let types = (CacheType::F16, CacheType::F16);
    let keys = [1f32; 64 * 32];
    let cache = Cache::new(types, (1, 32), (2, 64), &keys, &keys);
    let (k, v) = &cache.pages[1];
    for level in Level::available() {
        let (p, at) = (cache.params(1, 1, 1), in_order(63, 1));
        let at = Places::new(&at);
        let (mut state, mut out) = (guarded(34), guarded(32));
        attention_head(level, types, &p, 0, &[1.0; 32], k, v, at, &mut state, &mut out);
        twin_head(types, &p, 0, &[1.0; 32], k, v, at, &mut state, &mut out);
        assert!(state.iter().chain(&out).all(|x| x.to_bits() == GUARD));
    }
}

#[test]
#[should_panic(expected = "attention: 10 words of keys, expected 2048")]
fn a_short_cache_is_refused() {
    let types = (CacheType::F32, CacheType::F32);
    let cache = Cache::new(types, (1, 32), (1, 64), &[1.0; 32], &[1.0; 32]);
    let (k, v) = &cache.pages[0];
    let (p, at) = (cache.params(0, 1, 1), in_order(0, 1));
    attention_head(Level::Portable, types, &p, 0, &[1.0; 32], &k[..10], v, Places::new(&at), &mut [], &mut [0.0; 32]);
}

// ---------------------------------------------------------------- elementwise

/// Sizes at and around every vector and lane count.
fn sizes() -> impl Iterator<Item = usize> {
    (1..=300).chain([4096])
}

#[test]
fn swiglu_equals_the_twin() {
    let mut random = Random(11);
    for n in sizes() {
        for (low, high) in [(1e-12, 1e4), (0.1, 10.0), (50.0, 120.0)] {
            let gate: Vec<f32> = (0..n).map(|_| canon(random.spread(low, high))).collect();
            let up: Vec<f32> = (0..n).map(|_| canon(random.spread(1e-12, 1e4))).collect();
            let want: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| twin_swiglu(*g, *u)).collect();
            for level in Level::available() {
                let mut got = guarded(n);
                swiglu(level, &gate, &up, &mut got);
                same(&got, &want).unwrap_or_else(|e| panic!("{level:?}, {n} elements: {e}"));
            }
        }
    }
}

#[test]
fn swiglu_equals_the_twin_at_edges_of_the_exponential() {
    let mut gate = vec![0.0, -0.0, f32::MAX, -f32::MAX];
    for edge in [1e-15f32, 1.0, 83.17, 83.18, 86.99999, 87.0, 87.00001, 88.0, 89.0] {
        gate.extend([edge, -edge, edge.next_up(), -edge.next_up(), edge.next_down(), -edge.next_down()]);
    }
    for u in [1.0, -3.5, 1e-10, 1e-15, 0.0] {
        let want: Vec<f32> = gate.iter().map(|g| twin_swiglu(*g, u)).collect();
        for level in Level::available() {
            let mut got = guarded(gate.len());
            swiglu(level, &gate, &vec![u; gate.len()], &mut got);
            same(&got, &want).unwrap_or_else(|e| panic!("{level:?}: {e}"));
        }
    }
}

#[test]
fn geglu_equals_the_twin() {
    let mut random = Random(12);
    let edges = [1e-15f32, 0.7, 5.0, 8.9, 15.9, 16.0, 16.1, 1e10, 1e19];
    let mut gates: Vec<Vec<f32>> = vec![vec![0.0, -0.0, f32::NAN]];
    gates
        .push(edges.iter().flat_map(|e| [*e, -*e, e.next_up(), -e.next_up(), e.next_down(), -e.next_down()]).collect());
    for n in sizes() {
        for (low, high) in [(1e-12, 1e4), (0.1, 10.0), (10.0, 30.0)] {
            gates.push((0..n).map(|_| canon(random.spread(low, high))).collect());
        }
    }
    for gate in gates {
        let up: Vec<f32> = gate.iter().map(|_| canon(random.spread(1e-12, 1e4))).collect();
        for erf in [false, true] {
            let want: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| twin_geglu(erf, *g, *u)).collect();
            for level in Level::available() {
                let mut got = guarded(gate.len());
                geglu(level, erf, &gate, &up, &mut got);
                same(&got, &want).unwrap_or_else(|e| panic!("{level:?}, {} elements, erf {erf}: {e}", gate.len()));
            }
        }
    }
}

#[test]
fn rms_norm_equals_the_twin() {
    let mut random = Random(13);
    for n in sizes().chain([255, 511, 512, 513, 768, 1000, 5000]) {
        for (low, high) in [(1e-12, 1e4), (0.1, 10.0), (1e-12, 1e-9)] {
            let x: Vec<f32> = (0..n).map(|_| canon(random.spread(low, high))).collect();
            let w: Vec<f32> = (0..n).map(|_| canon(random.spread(1e-12, 1e4))).collect();
            let p = RmsNormParams { n_tokens: 1, dim: n as u32, inv_n: (1.0 / n as f64) as f32, eps: 1e-5 };
            let mut want = guarded(n);
            twin_norm(&p, &x, &w, &mut want);
            for level in Level::available() {
                let mut got = guarded(n);
                rms_norm_row(level, &p, &x, &w, &mut got);
                same(&got, &want).unwrap_or_else(|e| panic!("{level:?}, {n} elements: {e}"));
            }
        }
    }
}

#[test]
fn layer_norm_and_gelu_equal_their_twins() {
    let mut random = Random(14);
    for n in sizes().chain([511, 512, 513, 1000, 5000]) {
        for (low, high) in [(1e-12, 1e4), (0.1, 10.0), (1e-12, 1e-9), (10.0, 30.0)] {
            let mut values = || -> Vec<f32> { (0..n).map(|_| canon(random.spread(low, high))).collect() };
            let [x, w, b] = [values(), values(), values()];
            for b in [&b[..], &[]] {
                let (dim, inv_n, biased) = (n as u32, (1.0 / n as f64) as f32, u32::from(!b.is_empty()));
                let p = LayerNormParams { n_tokens: 1, dim, inv_n, eps: 1e-5, w_rows: 1, biased };
                let mut want = guarded(n);
                layer_norm::row(&p, &x, &w, b, &mut want);
                for level in Level::available() {
                    let mut got = guarded(n);
                    layer_norm_row(level, &p, &x, &w, b, &mut got);
                    same(&got, &want).unwrap_or_else(|e| panic!("{level:?}, {n} elements: {e}"));
                }
            }
            for erf in [false, true] {
                let want: Vec<f32> = x.iter().map(|x| twin_gelu(erf, *x)).collect();
                for level in Level::available() {
                    let mut got = guarded(n);
                    gelu(level, erf, &x, &mut got);
                    same(&got, &want).unwrap_or_else(|e| panic!("{level:?}, {n} elements: {e}"));
                }
            }
        }
    }
}

#[test]
fn streams_and_gates_above_a_bound_equal_their_twins() {
    let mut random = Random(15);
    for n in sizes().chain([511, 512, 513, 1000, 5000]) {
        for (low, high) in [(1e-12, 1e4), (0.1, 10.0), (1e-12, 1e-9), (10.0, 30.0)] {
            let mut values = |n: usize| -> Vec<f32> { (0..n).map(|_| canon(random.spread(low, high))).collect() };
            let [x, a, scale] = [values(n), values(n), values(n)];
            let (others, c) = (values(OTHERS * n), values(STREAMS * STREAMS));
            let (dim, inv_n) = (n as u32, (1.0 / n as f64) as f32);
            let rescale = AltupRescaleParams { n_tokens: 1, dim, inv_n };
            let predict = AltupPredictParams { n_tokens: 1, dim };
            let correct = AltupCorrectParams { n_tokens: 1, dim };
            let gaussian = GaussianTopkParams { n_tokens: 1, dim, inv_n, factor: 1.5 };
            let all = |level: Option<Level>| {
                let [mut x, mut a, mut others, mut gates] = [x.clone(), a.clone(), others.clone(), x.clone()];
                match level {
                    None => {
                        altup_rescale::altup_rescale(&rescale, &x, &mut others);
                        altup_predict::altup_predict(&predict, &c, &mut x, &mut others);
                        altup_correct::altup_correct(&correct, &c, &scale, &mut a, &mut x, &mut others);
                        gaussian_topk::gaussian_topk(&gaussian, &mut gates);
                    }
                    Some(level) => {
                        others.chunks_exact_mut(n).for_each(|o| simd::altup_rescale(level, &rescale, &x, o));
                        simd::altup_predict(level, &predict, &c, &mut x, &mut others);
                        simd::altup_correct(level, &correct, &c, &scale, &mut a, &mut x, &mut others);
                        simd::gaussian_topk_row(level, &gaussian, &mut gates);
                    }
                }
                [x, a, others, gates].concat()
            };
            let want = all(None);
            for level in Level::available() {
                same(&all(Some(level)), &want).unwrap_or_else(|e| panic!("{level:?}, {n} elements: {e}"));
            }
        }
    }
}

#[test]
fn the_norm_sees_the_order_of_its_elements() {
    let mut random = Random(17);
    let x: Vec<f32> = (0..1024).map(|_| random.unit()).collect();
    let p = RmsNormParams { n_tokens: 1, dim: 1024, inv_n: 1.0 / 1024.0, eps: 0.0 };
    let scale = |x: &[f32]| {
        let mut y = guarded(1024);
        rms_norm_row(Level::detect(), &p, x, &[1.0; 1024], &mut y);
        y[0] / x[0]
    };
    let differs = (1..200).any(|i| {
        let mut other = x.clone();
        other.swap(i, 1023 - i);
        scale(&x).to_bits() != scale(&other).to_bits()
    });
    assert!(differs, "no swap of two elements changed a bit");
}

#[test]
fn the_comparison_sees_one_flipped_bit_a_nan_and_a_short_buffer() {
    let a = [1.0, 2.0, 3.0];
    assert!(same(&a, &a).is_ok());
    assert!(same(&[1.0, 2.0, f32::from_bits(3f32.to_bits() ^ 1)], &a).is_err());
    assert!(same(&[1.0, f32::NAN, 3.0], &a).is_err());
    assert!(same(&[-0.0], &[0.0]).is_err());
    assert!(same(&a[..2], &a).is_err());
}

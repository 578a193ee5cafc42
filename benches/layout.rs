//! Q4_K with rows side by side against Q4_K as the file has it: `cargo bench --bench layout [rows k]`.
//!
//! Both on one thread with AVX-512 and VNNI, alternating within each round; speeds are of the best round, the ratio is the
//! median of the rounds' ratios. The kernel over the file's order exists only here and is a serious one: a row's 64 bytes
//! of nibbles meet a vector of activations laid out for them, and 16 sums (of 16 rows with one token, of 16 tokens with
//! many) are folded together, so that the scales are applied to whole vectors too. What it cannot avoid is the folding,
//! and its scales are unpacked row by row. Both give the same bits, which is checked first.

use std::process::ExitCode;

#[cfg(not(target_arch = "x86_64"))]
fn main() -> ExitCode {
    eprintln!("layout: the kernel over the file's order is written for x86-64");
    ExitCode::SUCCESS
}

#[cfg(target_arch = "x86_64")]
fn main() -> ExitCode {
    x86::main()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use isobit::internals::blocks::BlockType;
    use isobit::internals::blocks::pack::{pack_rows, packed_words};
    use isobit::internals::ops::act_quantize::ActQuantizeParams;
    use isobit::internals::ops::exact::canon;
    use isobit::internals::ops::linear::{ACT_BLOCK_WORDS, LinearParams, act_words, seg_groups};
    use isobit::internals::simd::team::Team;
    use isobit::internals::simd::{Act, Level, Words, act_quantize, matvec};
    use std::arch::x86_64::*;
    use std::process::ExitCode;
    use std::time::Instant;

    /// Bytes of a block of 256.
    const BLOCK: usize = 144;

    /// Tokens of the prefill row.
    const TOKENS: usize = 64;

    /// Activations of one group of 128 as this kernel wants them: codes of sub-blocks 0 and 2, then of 1 and 3.
    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    struct Codes([[u8; 64]; 2]);

    /// The activations of all tokens, per group: codes by token, then scales and the four sums of 32 by token.
    struct Panel {
        codes: Vec<Codes>,
        d: Vec<f32>,
        sums: [Vec<i32>; 4],
    }

    impl Panel {
        /// `[token][group]` blocks to `[group][token]`.
        fn new(act: &[u32], groups: usize) -> Panel {
            let n = act.len() / ACT_BLOCK_WORDS / groups;
            let mut panel = Panel { codes: vec![], d: vec![], sums: std::array::from_fn(|_| vec![]) };
            for g in 0..groups {
                for token in 0..n {
                    let block = &act[(token * groups + g) * ACT_BLOCK_WORDS..][..ACT_BLOCK_WORDS];
                    let mut codes = Codes([[0; 64]; 2]);
                    for (i, w) in block[1..33].iter().enumerate() {
                        let (sub, at) = (i / 8, i % 8 * 4);
                        codes.0[sub % 2][sub / 2 * 32 + at..][..4].copy_from_slice(&w.to_le_bytes());
                    }
                    panel.codes.push(codes);
                    panel.d.push(f32::from_bits(block[0]));
                    for (sums, w) in panel.sums.iter_mut().zip(&block[33..]) {
                        sums.push((*w as i32 >> 16) + (*w as u16 as i16 as i32));
                    }
                }
            }
            panel
        }
    }

    /// What a row says of one half block: nibbles, the four scales and minima a byte each, d and dmin.
    #[derive(Clone, Copy)]
    struct Half {
        q: __m512i,
        scales: u32,
        minima: u32,
        d: u32,
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn half(block: &[u8; BLOCK], h: usize) -> Half {
        let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let (u0, u1, u2) = (word(4), word(8), word(12));
        let (scales, minima) = if h == 0 {
            (u0 & 0x3f3f_3f3f, u1 & 0x3f3f_3f3f)
        } else {
            (u2 & 0x0f0f_0f0f | u0 >> 2 & 0x3030_3030, u2 >> 4 & 0x0f0f_0f0f | u1 >> 2 & 0x3030_3030)
        };
        let q = &block[16 + 64 * h..][..64];
        // SAFETY: 64 bytes are there.
        let q = unsafe { _mm512_loadu_si512(q.as_ptr().cast()) };
        Half { q, scales, minima, d: word(0) }
    }

    /// Scale times dot of all four sub-blocks, spread over 16 lanes.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn products(h: &Half, codes: &Codes) -> __m512i {
        let low = _mm512_and_si512(h.q, _mm512_set1_epi8(15));
        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(h.q), _mm512_set1_epi8(15));
        // SAFETY: both halves are 64 bytes.
        let a = unsafe { codes.0.each_ref().map(|c| _mm512_load_si512(c.as_ptr().cast())) };
        let zero = _mm512_setzero_si512();
        let (s02, s13) = (_mm512_dpbusd_epi32(zero, low, a[0]), _mm512_dpbusd_epi32(zero, high, a[1]));
        let sc = _mm512_set1_epi32(h.scales as i32);
        let shift =
            |first: i64, second: i64| _mm512_set_epi64(second, second, second, second, first, first, first, first);
        let by = |at: i64| at | at << 32;
        let byte = |s: __m512i| _mm512_and_si512(_mm512_srlv_epi32(sc, s), _mm512_set1_epi32(255));
        let (sc02, sc13) = (byte(shift(0, by(16))), byte(shift(by(8), by(24))));
        _mm512_add_epi32(_mm512_mullo_epi32(s02, sc02), _mm512_mullo_epi32(s13, sc13))
    }

    /// Lane i: the sum of the lanes of vector i.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn fold(v: [__m512i; 16]) -> __m512i {
        let add = |a, b| _mm512_add_epi32(a, b);
        let pairs: [__m512i; 8] = std::array::from_fn(|i| {
            let (a, b) = (v[2 * i], v[2 * i + 1]);
            add(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
        });
        let fours: [__m512i; 4] = std::array::from_fn(|i| {
            let (a, b) = (pairs[2 * i], pairs[2 * i + 1]);
            add(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
        });
        // each quarter of a vector now holds partial sums of the same four; join quarters
        let eights: [__m512i; 2] = std::array::from_fn(|i| {
            let (a, b) = (fours[2 * i], fours[2 * i + 1]);
            add(_mm512_shuffle_i64x2::<0b1000_1000>(a, b), _mm512_shuffle_i64x2::<0b1101_1101>(a, b))
        });
        let (a, b) = (eights[0], eights[1]);
        add(_mm512_shuffle_i64x2::<0b1000_1000>(a, b), _mm512_shuffle_i64x2::<0b1101_1101>(a, b))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn term(s: __m512i, m: __m512i, d: __m512i) -> __m512 {
        let low = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d));
        let high = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(d)));
        _mm512_sub_ps(_mm512_mul_ps(low, _mm512_cvtepi32_ps(s)), _mm512_mul_ps(high, _mm512_cvtepi32_ps(m)))
    }

    fn lanes(v: __m512) -> [f32; 16] {
        // SAFETY: both are 64 bytes without padding.
        unsafe { std::mem::transmute(v) }
    }

    fn vector<T: Copy>(v: &[T]) -> __m512i {
        assert!(size_of_val(v) == 64);
        // SAFETY: 64 bytes are there, and every pattern is a value of either type.
        unsafe { v.as_ptr().cast::<__m512i>().read_unaligned() }
    }

    /// y of a matrix in the file's order with one token, 16 rows at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn decode(w: &[[u8; BLOCK]], panel: &Panel, k: usize, y: &mut [f32]) {
        let (groups, seg) = (k / 128, seg_groups(k));
        for (w, y) in w.chunks_exact(16 * k / 256).zip(y.chunks_exact_mut(16)) {
            let mut total = _mm512_setzero_ps();
            for first in (0..groups).step_by(seg) {
                let mut acc = _mm512_setzero_ps();
                for g in first..groups.min(first + seg) {
                    let (mut s, mut m, mut d) = ([_mm512_setzero_si512(); 16], [0u32; 16], [0u32; 16]);
                    for row in 0..16 {
                        let block = &w[row * (k / 256) + g / 2];
                        _mm_prefetch::<_MM_HINT_T0>(block.as_ptr().wrapping_add(1024).cast());
                        let h = half(block, g % 2);
                        (s[row], m[row], d[row]) = (products(&h, &panel.codes[g]), h.minima, h.d);
                    }
                    let minima = vector(&m);
                    let mut sum = _mm512_setzero_si512();
                    for j in 0..4 {
                        let m = _mm512_and_si512(
                            _mm512_srlv_epi32(minima, _mm512_set1_epi32(8 * j as i32)),
                            _mm512_set1_epi32(255),
                        );
                        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(m, _mm512_set1_epi32(panel.sums[j][g])));
                    }
                    let t = term(fold(s), sum, vector(&d));
                    acc = _mm512_add_ps(acc, _mm512_mul_ps(_mm512_set1_ps(panel.d[g]), t));
                }
                total = _mm512_add_ps(total, acc);
            }
            y.copy_from_slice(&lanes(total).map(canon));
        }
    }

    /// y of a matrix in the file's order with TOKENS tokens, 16 at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn prefill(w: &[[u8; BLOCK]], panel: &Panel, k: usize, rows: usize, y: &mut [f32]) {
        let (groups, seg) = (k / 128, seg_groups(k));
        for (row, w) in w.chunks_exact(k / 256).enumerate() {
            let mut total = [_mm512_setzero_ps(); TOKENS / 16];
            for first in (0..groups).step_by(seg) {
                let mut acc = [_mm512_setzero_ps(); TOKENS / 16];
                for g in first..groups.min(first + seg) {
                    let h = half(&w[g / 2], g % 2);
                    for (tile, acc) in acc.iter_mut().enumerate() {
                        let at = g * TOKENS + 16 * tile;
                        let mut s = [_mm512_setzero_si512(); 16];
                        for (s, codes) in s.iter_mut().zip(&panel.codes[at..]) {
                            *s = products(&h, codes);
                        }
                        let mut sum = _mm512_setzero_si512();
                        for j in 0..4 {
                            let m = _mm512_set1_epi32((h.minima >> (8 * j) & 255) as i32);
                            sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(m, vector(&panel.sums[j][at..at + 16])));
                        }
                        let t = term(fold(s), sum, _mm512_set1_epi32(h.d as i32));
                        let da = _mm512_castsi512_ps(vector(&panel.d[at..at + 16]));
                        *acc = _mm512_add_ps(*acc, _mm512_mul_ps(da, t));
                    }
                }
                for (total, acc) in total.iter_mut().zip(acc) {
                    *total = _mm512_add_ps(*total, acc);
                }
            }
            for (tile, total) in total.iter().enumerate() {
                for (i, v) in lanes(*total).into_iter().enumerate() {
                    y[(16 * tile + i) * rows + row] = canon(v);
                }
            }
        }
    }

    /// Best seconds of each, and the median of the second's over the first's.
    fn alternate(mut a: impl FnMut(), mut b: impl FnMut()) -> (f64, f64, f64) {
        let seconds = |f: &mut dyn FnMut()| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        };
        let times: Vec<(f64, f64)> = (0..31).map(|_| (seconds(&mut a), seconds(&mut b))).collect();
        let mut ratios: Vec<f64> = times.iter().map(|(a, b)| b / a).collect();
        ratios.sort_by(f64::total_cmp);
        let best = |f: fn(&(f64, f64)) -> f64| times.iter().map(f).fold(f64::MAX, f64::min);
        (best(|t| t.0), best(|t| t.1), ratios[ratios.len() / 2])
    }

    pub fn main() -> ExitCode {
        if !Level::Avx512.is_available() {
            eprintln!("layout: this CPU has no AVX-512 with VNNI");
            return ExitCode::SUCCESS;
        }
        let args: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
        let (rows, k) = match args[..] {
            [rows, k] if rows % 32 == 0 && k % 256 == 0 && rows * k > 0 => (rows, k),
            [] => (32768, 2048),
            _ => {
                eprintln!("layout: expected rows (a multiple of 32) and k (of 256)");
                return ExitCode::from(2);
            }
        };
        let mut state = 1u64;
        let mut file: Vec<[u8; BLOCK]> = vec![[0; BLOCK]; rows * k / 256];
        for byte in file.as_flattened_mut() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
        for block in &mut file {
            for i in [1, 3] {
                block[i] = 0x28 | (block[i] & 0x83);
            }
        }
        let mut packed = Words::zeroed(packed_words(BlockType::Q4_K, rows, k));
        pack_rows(BlockType::Q4_K, k, rows, file.as_flattened(), &mut packed).expect("the scales are finite");
        let x: Vec<f32> = (0..TOKENS * k).map(|i| ((i * 7919) % 10007) as f32 / 5003.0 - 1.0).collect();
        let mut act = vec![0; TOKENS * act_words(k, 1)];
        act_quantize(
            Level::Avx512,
            &ActQuantizeParams { n_tokens: TOKENS as u32, k: k as u32, digits: 1 },
            &x,
            &mut act,
        );
        let (one, many) = (Panel::new(&act[..act_words(k, 1)], k / 128), Panel::new(&act, k / 128));
        let team = Team::new(1).expect("a team of one starts no thread");
        println!("Q4_K, {rows} x {k}, one thread, AVX-512");
        // a part that the second-level cache holds for the prefill row
        let near = rows.min(1024);
        for (tokens, rows) in [(1, rows), (TOKENS, near)] {
            let p = LinearParams {
                n_tokens: tokens as u32,
                k: k as u32,
                rows: rows as u32,
                digits: 1,
                y_stride: rows as u32,
                y_offset: 0,
                residual: 0,
            };
            let file = &file[..rows * k / 256];
            let words = &packed[..packed_words(BlockType::Q4_K, rows, k)];
            let (mut ours, mut theirs) = (vec![0f32; tokens * rows], vec![1f32; tokens * rows]);
            let (a, b, ratio) = alternate(
                || team.install(|| matvec(Level::Avx512, BlockType::Q4_K, &p, words, Act::Blocks(&act), &mut ours)),
                // SAFETY: AVX-512 with VNNI is available, checked above.
                || unsafe {
                    match tokens {
                        1 => decode(file, &one, k, &mut theirs),
                        _ => prefill(file, &many, k, rows, &mut theirs),
                    }
                },
            );
            assert!(ours.iter().zip(&theirs).all(|(a, b)| a.to_bits() == b.to_bits()), "the layouts differ");
            let (unit, amount) = match tokens {
                1 => ("GB/s", size_of_val(file) as f64 * 1e-9),
                _ => ("GOP/s", 2e-9 * (tokens * rows * k) as f64),
            };
            println!(
                "{tokens:3} tokens, {rows} rows: side by side {:.1} {unit}, file's order {:.1} {unit}, ratio {ratio:.2}",
                amount / a,
                amount / b
            );
        }
        ExitCode::SUCCESS
    }
}

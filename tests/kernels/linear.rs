//! The linear operations: every SIMD level against the twin, bit for bit; the twin against plain f64 arithmetic.

use isobit::internals::blocks::grids::{GRID_1, GRID_2S, GRID_2XS, GRID_2XXS, GRID_3S, GRID_3XXS};
use isobit::internals::blocks::pack::{pack_rows_as, packed_type, packed_words, wide_type, words_per_row};
use isobit::internals::blocks::{BlockType, NumberKind};
use isobit::internals::ops::act_quantize::ActQuantizeParams;
use isobit::internals::ops::linear::{LinearParams, act_words, groups};
use isobit::internals::ops::row_quantize::RowQuantizeParams;
use isobit::internals::ops::{self};
use isobit::internals::simd::{self, Act, Level};

/// Its state is the seed.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        isobit::internals::random::next(&mut self.0)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }
    /// -1..1
    fn unit(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// What the weights and activations of a case look like.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fill {
    /// any bytes, scales of either sign over many exponents, some zero or subnormal
    Random,
    /// every byte 0x80, 0xff, 0x7f or 0: codes, scales and minima at their ends, with large scales
    Extreme,
}

/// File bytes of `rows` rows with finite scales.
fn file_rows(random: &mut Random, fill: Fill, t: BlockType, k: usize, rows: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; rows * k / t.elems() * t.bytes()];
    for block in bytes.chunks_exact_mut(t.bytes()) {
        let ends = [0x80, 0xff, 0x7f, 0x80, 0][random.below(5)];
        for b in block.iter_mut() {
            *b = if fill == Fill::Extreme { ends } else { random.word() as u8 };
        }
        // an offset at the other end than the codes
        if fill == Fill::Extreme && matches!(t, BlockType::W8A16 | BlockType::W4A16) {
            block[4] = !ends;
        }
        let f16_scale = |random: &mut Random| match (fill, random.below(12)) {
            (Fill::Extreme, i) => [0x7bffu16, 0xfbff, 0x0001, 0x8001][i % 4],
            (_, 0) => 0,
            (_, 1) => random.word() as u16 & 0x83ff,
            _ => random.word() as u16 & 0x9fff | 0x1000,
        };
        let f32_scale = |random: &mut Random| match random.below(12) {
            0 => 0.0,
            1 => random.unit() * 1e-20,
            _ => random.unit() * [1.0, 1e-3, 1e3][random.below(3)],
        };
        for n in t.format().numbers {
            let block = &mut block[n.at..];
            match n.kind {
                NumberKind::F16 => block[..2].copy_from_slice(&f16_scale(random).to_le_bytes()),
                NumberKind::BF16 => block[..2].copy_from_slice(&f32_scale(random).to_le_bytes()[2..]),
                NumberKind::F32 => block[..4].copy_from_slice(&f32_scale(random).to_le_bytes()),
                NumberKind::E8M0 => {
                    block[0] = match (fill, random.below(12)) {
                        (Fill::Extreme, i) => [0, 77, 78, 190][i % 4],
                        (_, 0) => 0,
                        (_, 1) => 70 + random.below(10) as u8,
                        _ => 100 + random.below(40) as u8,
                    }
                }
                NumberKind::TopNibbles => {
                    let d = f16_scale(random);
                    for i in 0..4 {
                        block[2 * i + 1] = block[2 * i + 1] & 15 | ((d >> (4 * i)) as u8) << 4;
                    }
                }
            }
        }
    }
    // what belongs to a row is the same in all its blocks; sums with a bias only where codes are at their ends
    if t == BlockType::W8A8 {
        for row in bytes.chunks_exact_mut(k / t.elems() * t.bytes()) {
            let mut head: [u8; 12] = row[..12].try_into().unwrap();
            head.copy_within(..4, 8);
            if fill == Fill::Random {
                head[4..8].fill(0);
            }
            row.chunks_exact_mut(t.bytes()).for_each(|b| b[..12].copy_from_slice(&head));
        }
    }
    // a row of zeros
    if rows > 2 {
        let row = bytes.len() / rows;
        bytes[row..2 * row].fill(0);
    }
    bytes
}

fn activations(random: &mut Random, fill: Fill, n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| match fill {
            // a whole group of zeros, a group of tiny values, outliers
            Fill::Random if i / 128 % 7 == 3 => 0.0,
            Fill::Random if i / 128 % 7 == 5 => random.unit() * 2f32.powi(-38),
            Fill::Random if random.below(50) == 0 => random.unit() * 40.0,
            Fill::Random => random.unit(),
            Fill::Extreme => [1.0, -1.0][if i / 128 % 2 == 0 { 0 } else { random.below(2) }],
        })
        .map(ops::exact::canon)
        .collect()
}

/// What weights of the type meet: blocks with scales of their own, or rows with one.
fn quantised(t: BlockType, digits: usize, x: &[f32], k: usize) -> Vec<u32> {
    let n_tokens = (x.len() / k) as u32;
    let mut act = vec![0; n_tokens as usize * act_words(k, digits)];
    if t.meets_rows() {
        // odd widths with a scale so small that codes reach both ends
        let fixed = (k / 32) % 2 == 1;
        let (limit, scale, offset) = if fixed { (0, 0.004, -3.0) } else { (127, 0.0, 0.0) };
        let p = RowQuantizeParams { n_tokens, k: k as u32, limit, scale, offset };
        ops::row_quantize::row_quantize(&p, x, &mut act);
    } else {
        let p = ActQuantizeParams { n_tokens, k: k as u32, digits: digits as u32 };
        ops::act_quantize::act_quantize(&p, x, &mut act);
    }
    act
}

fn twin(t: BlockType, p: &LinearParams, w: &[u32], act: &[u32], x: &[f32], y: &mut [f32]) {
    let act = if t.is_float() { bytemuck::cast_slice(x) } else { act };
    (ops::types::twins(t).matvec)(p, w, act, y);
}

/// One matrix and its activations.
struct Case {
    t: BlockType,
    k: usize,
    rows: usize,
    digits: usize,
    bytes: Vec<u8>,
    /// packed as on GPUs, and where it can be, as codes in the place of rows of a codebook
    forms: Vec<(BlockType, Vec<u32>)>,
    x: Vec<f32>,
    act: Vec<u32>,
}

/// What rows of a type are packed as.
fn forms(t: BlockType, k: usize, rows: usize, bytes: &[u8]) -> Vec<(BlockType, Vec<u32>)> {
    let mut types = vec![packed_type(t), wide_type(t)];
    types.dedup();
    let form = |packed| {
        let mut w = vec![0; packed_words(packed, rows, k)];
        pack_rows_as(t, packed, k, rows, bytes, &mut w).unwrap();
        (packed, w)
    };
    types.into_iter().map(form).collect()
}

/// More than are taken one tile after the other where a row block is unpacked first, and no whole number of tiles.
const MAX_TOKENS: usize = 18;

impl Case {
    fn new(random: &mut Random, fill: Fill, t: BlockType, k: usize, rows: usize, digits: usize) -> Case {
        let bytes = file_rows(random, fill, t, k, rows);
        let forms = forms(t, k, rows, &bytes);
        let x = activations(random, fill, MAX_TOKENS * k);
        let act = quantised(t, digits, &x, k);
        Case { t, k, rows, digits, bytes, forms, x, act }
    }

    /// Rows of y start at word 3, tokens are 5 words further apart than need be.
    fn params(&self, n_tokens: usize) -> LinearParams {
        LinearParams {
            n_tokens: n_tokens as u32,
            k: self.k as u32,
            rows: self.rows as u32,
            digits: self.digits as u32,
            y_stride: self.rows as u32 + 5,
            y_offset: 3,
            residual: 0,
        }
    }

    /// Filled with a guard pattern that must survive around the rows.
    fn blank_y(&self) -> Vec<f32> {
        vec![f32::from_bits(0x7fc0_1234); MAX_TOKENS * (self.rows + 5)]
    }

    fn twin(&self, n_tokens: usize) -> Vec<f32> {
        let mut y = self.blank_y();
        twin(self.t, &self.params(n_tokens), &self.forms[0].1, &self.act, &self.x, &mut y);
        y
    }

    /// Its words as on GPUs.
    fn packed(&mut self) -> &mut Vec<u32> {
        &mut self.forms[0].1
    }

    fn simd(&self, level: Level, n_tokens: usize) -> Vec<f32> {
        self.simd_of(&self.forms[0], level, n_tokens)
    }

    fn simd_of(&self, (packed, w): &(BlockType, Vec<u32>), level: Level, n_tokens: usize) -> Vec<f32> {
        let mut y = self.blank_y();
        let act = if is_float(self.t) { Act::Floats(&self.x) } else { Act::Blocks(&self.act) };
        simd::matvec(level, *packed, &self.params(n_tokens), w, act, &mut y);
        y
    }

    fn name(&self) -> String {
        format!("{} {} x {}, {} digits", self.t.name(), self.rows, self.k, self.digits)
    }
}

fn is_float(t: BlockType) -> bool {
    t.elems() == 1
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn widths(t: BlockType) -> Vec<usize> {
    let mut ks = vec![32, 64, 96, 128, 160, 256, 512, 1024, 1280, 2304];
    if is_float(t) {
        ks.extend([1, 7, 172, 1173]);
    }
    ks.retain(|k| k % t.elems() == 0);
    ks
}

fn digit_choices(t: BlockType) -> &'static [usize] {
    if is_float(t) || t.meets_rows() { &[1] } else { &[1, 2] }
}

#[test]
fn every_level_gives_the_words_of_the_twin() {
    let seed = 20;
    let mut random = Random(seed);
    let levels = Level::available();
    eprintln!("seed {seed}, levels {levels:?}");
    for t in BlockType::ALL {
        for k in widths(t) {
            for rows in [1, 31, 32, 33, 70] {
                // the twin is slow: the widest matrices need no more than one odd height
                if k > 1024 && rows != 33 {
                    continue;
                }
                for &digits in digit_choices(t) {
                    for fill in [Fill::Random, Fill::Extreme] {
                        let case = Case::new(&mut random, fill, t, k, rows, digits);
                        for n_tokens in [1, 2, 5, 9, MAX_TOKENS] {
                            let want = case.twin(n_tokens);
                            for (form, &level) in case.forms.iter().flat_map(|f| levels.iter().map(move |l| (f, l))) {
                                let got = case.simd_of(form, level, n_tokens);
                                assert!(
                                    same_bits(&got, &want),
                                    "{} as {}, {fill:?}, {n_tokens} tokens: {} differs from the twin",
                                    case.name(),
                                    form.0.name(),
                                    level.name()
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_and_the_cut_of_tokens_change_no_bit() {
    let mut random = Random(21);
    for t in [BlockType::Q4_K, BlockType::Q8_0, BlockType::F16] {
        let case = Case::new(&mut random, Fill::Random, t, 1024, 300, 1);
        let want = case.twin(MAX_TOKENS);
        for threads in [1, 2, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for level in Level::available() {
                let got = pool.install(|| case.simd(level, MAX_TOKENS));
                assert!(same_bits(&got, &want), "{} {} on {threads} threads", case.name(), level.name());
            }
        }
    }
}

/// Rows so long that a segment is unpacked in pieces, and more tokens than one task takes.
#[test]
fn long_rows_and_many_tokens_are_the_same_at_every_level() {
    let (k, rows, n) = (8448, 45, 270);
    let mut random = Random(27);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    for t in BlockType::ALL.into_iter().filter(|t| !is_float(*t) && !t.meets_rows()) {
        for fill in [Fill::Random, Fill::Extreme] {
            let bytes = file_rows(&mut random, fill, t, k, rows);
            let forms = forms(t, k, rows, &bytes);
            let x = activations(&mut random, fill, n * k);
            let act = quantised(t, 1, &x, k);
            let params = |n: usize| LinearParams {
                n_tokens: n as u32,
                k: k as u32,
                rows: rows as u32,
                digits: 1,
                y_stride: rows as u32,
                y_offset: 0,
                residual: 0,
            };
            let run = |(packed, w): &(BlockType, Vec<u32>), level: Level, n: usize| {
                let p = params(n);
                let mut y = vec![0.0; n * rows];
                pool.install(|| simd::matvec(level, *packed, &p, w, Act::Blocks(&act), &mut y));
                y
            };
            // of some tokens the twin's words, of all of them those of the plainest level
            let mut want = vec![0.0; 2 * rows];
            twin(t, &params(2), &forms[0].1, &act, &x, &mut want);
            let plain = run(&forms[0], Level::Portable, n);
            assert!(same_bits(&plain[..2 * rows], &want), "{} {fill:?}: portable differs from the twin", t.name());
            for (form, level) in forms.iter().flat_map(|f| Level::available().into_iter().map(move |l| (f, l))) {
                // tiles of 4 and of 16 tokens, two of which are taken together, filled and not
                for n in [n, 75, 64, 49, 48, 32, 17, 16, 8] {
                    let (got, name) = (run(form, level, n), form.0.name());
                    assert!(same_bits(&got, &plain[..n * rows]), "{name} {fill:?}, {n} tokens, {level:?}");
                }
            }
        }
    }
}

#[test]
fn every_level_quantises_rows_as_the_twin_does() {
    let mut random = Random(26);
    for (limit, scale, offset) in [(127, 0.0, 0.0), (7, 0.0, 0.0), (0, 0.01, -7.0), (0, 3.0, 0.25)] {
        for k in [1, 7, 32, 127, 128, 129, 172, 1280, 5632] {
            for (n_tokens, fill) in [(1, Fill::Random), (3, Fill::Extreme), (9, Fill::Random)] {
                let mut x = activations(&mut random, fill, n_tokens * k);
                // halves between two codes, and what the fixed scales do not reach
                if k > 16 {
                    (x[3], x[12], x[13]) = (127.0, 1.0e30, -3.0e9);
                    for i in 4..12 {
                        x[i] = i as f32 * [0.5, -0.5][i % 2];
                    }
                }
                let p = RowQuantizeParams { n_tokens: n_tokens as u32, k: k as u32, limit, scale, offset };
                let mut want = vec![u32::MAX; n_tokens * act_words(k, 1)];
                ops::row_quantize::row_quantize(&p, &x, &mut want);
                for level in Level::available() {
                    let mut got = vec![u32::MAX; want.len()];
                    simd::row_quantize(level, &p, &x, &mut got);
                    assert!(got == want, "{} k {k} tokens {n_tokens} limit {limit}", level.name());
                }
            }
        }
    }
}

#[test]
fn every_level_quantises_activations_as_the_twin_does() {
    let mut random = Random(22);
    for digits in [1, 2] {
        for k in [1, 7, 32, 127, 128, 129, 172, 256, 1280, 5632] {
            for (n_tokens, fill) in [(1, Fill::Random), (3, Fill::Random), (3, Fill::Extreme), (40, Fill::Random)] {
                let mut x = activations(&mut random, fill, n_tokens * k);
                // halves between two codes
                if k > 16 {
                    x[3] = 127.0;
                    for i in 4..12 {
                        x[i] = i as f32 * [0.5, -0.5][i % 2];
                    }
                }
                let p = ActQuantizeParams { n_tokens: n_tokens as u32, k: k as u32, digits };
                let mut want = vec![u32::MAX; n_tokens * act_words(k, digits as usize)];
                ops::act_quantize::act_quantize(&p, &x, &mut want);
                for level in Level::available() {
                    let mut got = vec![u32::MAX; want.len()];
                    simd::act_quantize(level, &p, &x, &mut got);
                    assert!(got == want, "{} k {k} tokens {n_tokens} digits {digits}", level.name());
                }
            }
        }
    }
}

/// Decoded weights of one file row, in f64, from the format tables and nothing of the crate but the widening of f16.
fn decode(t: BlockType, row: &[u8]) -> Vec<f64> {
    let f16 = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f64();
    let f32 = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f64;
    let mut out = Vec::new();
    for b in row.chunks_exact(t.bytes()) {
        match t {
            BlockType::F32 => out.push(f32(b)),
            BlockType::F16 => out.push(f16(b)),
            BlockType::BF16 => out.push(f32(&[0, 0, b[0], b[1]])),
            BlockType::Q8_0 => out.extend((0..32).map(|e| f16(b) * b[2 + e] as i8 as f64)),
            BlockType::Q4_0 => out.extend((0..32).map(|e| {
                let q = if e < 16 { b[2 + e] & 15 } else { b[2 + e - 16] >> 4 };
                f16(b) * (q as f64 - 8.0)
            })),
            BlockType::Q4_1 => out.extend((0..32).map(|e| {
                let q = if e < 16 { b[4 + e] & 15 } else { b[4 + e - 16] >> 4 };
                f16(b) * q as f64 + f16(&b[2..])
            })),
            BlockType::Q5_0 | BlockType::Q5_1 => out.extend((0..32).map(|e| {
                let (qh, qs) = b[t.bytes() - 20..].split_at(4);
                let low = if e < 16 { qs[e] & 15 } else { qs[e - 16] >> 4 };
                let q = (low + 16 * (qh[e / 8] >> (e % 8) & 1)) as f64;
                if t == BlockType::Q5_0 { f16(b) * (q - 16.0) } else { f16(b) * q + f16(&b[2..]) }
            })),
            BlockType::Q4_K | BlockType::Q5_K => {
                let s = &b[4..16];
                let qs = if t == BlockType::Q4_K { &b[16..] } else { &b[48..] };
                for e in 0..256 {
                    let j = e / 32;
                    let (sc, m) = if j < 4 {
                        (s[j] & 63, s[j + 4] & 63)
                    } else {
                        (s[j + 4] & 15 | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4)
                    };
                    let byte = qs[e / 64 * 32 + e % 32];
                    let mut q = if e % 64 < 32 { byte & 15 } else { byte >> 4 };
                    if t == BlockType::Q5_K {
                        q += (b[16 + e % 32] >> j & 1) * 16;
                    }
                    out.push(f16(b) * sc as f64 * q as f64 - f16(&b[2..]) * m as f64);
                }
            }
            BlockType::Q6_K => {
                for e in 0..256 {
                    let (h, t, l) = (e / 128, e % 128 / 32, e % 32);
                    let low = b[64 * h + t % 2 * 32 + l] >> (t / 2 * 4) & 15;
                    let high = b[128 + 32 * h + l] >> (2 * t) & 3;
                    let q = (low + 16 * high) as f64 - 32.0;
                    out.push(f16(&b[208..]) * b[192 + e / 16] as i8 as f64 * q);
                }
            }
            BlockType::Q8_K => out.extend((0..256).map(|e| f32(b) * b[4 + e] as i8 as f64)),
            BlockType::Q8K128 => out.extend((0..128).map(|e| f32(b) * b[4 + e] as i8 as f64)),
            BlockType::W8A16 => out.extend((0..32).map(|e| f32(b) * (b[5 + e] as i8 as f64 - b[4] as i8 as f64))),
            BlockType::W4A16 => out.extend((0..32).map(|e| {
                let q = if e < 16 { b[5 + e] & 15 } else { b[5 + e - 16] >> 4 };
                f32(b) * (q as f64 - b[4] as i8 as f64)
            })),
            BlockType::W8A8 => out.extend((0..32).map(|e| f32(&b[8..]) * b[12 + e] as i8 as f64)),
            _ => out.extend((0..t.elems()).map(|e| coded(t, b, e))),
        }
    }
    out
}

/// Element `e` of a block of a type with codes in tables, or with scales of a few bits: D · scale · code.
// inlined, it takes a compiler minutes: a loop for each type
#[inline(never)]
fn coded(t: BlockType, b: &[u8], e: usize) -> f64 {
    use BlockType::*;
    let f16 = |at: usize| half::f16::from_le_bytes([b[at], b[at + 1]]).to_f64();
    let u16 = |at: usize| u32::from(u16::from_le_bytes([b[at], b[at + 1]]));
    let u32 = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    let nibble = |at: usize, k: usize, i: usize| u32::from(b[at + k] >> (4 * i) & 15);
    let pair = |at: usize| f64::from(b[at + 32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32)) & 3);
    let eighths = |scale: u32| f16(0) / 8.0 * f64::from(2 * scale + 1);
    let (j, l) = (e / 32, e % 32 / 8);
    let value = |words: &[u32], i: usize| f64::from((words[i / 4] >> (8 * (i % 4))) as i8);
    let negated = |minus: u32, i: usize, x: f64| if minus >> i & 1 == 1 { -x } else { x };
    // the eighth sign makes the number of minus signs even
    let even = |seven: u32| seven & 127 | ((seven & 127).count_ones() % 2) << 7;
    let ninths =
        |row: u32, minus: bool| 8.0 * value(&GRID_1.words[row as usize], e % 8) + if minus { -1.0 } else { 1.0 };
    const FP4: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let fp4 = |code: u32| FP4[code as usize % 8] * if code > 7 { -1.0 } else { 1.0 };
    const KV: [i32; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let kv = |code: u32| f64::from(KV[code as usize]);
    match t {
        Q2_K => f16(80) * f64::from(b[e / 16] & 15) * pair(16) - f16(82) * f64::from(b[e / 16] >> 4),
        Q3_K => {
            let s = e / 16;
            let scale = nibble(96, s % 8, s / 8) + 16 * u32::from(b[104 + s % 4] >> (2 * (s / 4)) & 3);
            let high = f64::from(b[e % 32] >> (e / 32) & 1);
            f16(108) * (f64::from(scale) - 32.0) * (pair(32) + 4.0 * high - 4.0)
        }
        IQ4_NL => f16(0) * kv(nibble(2, e % 16, e / 16)),
        IQ4_XS => {
            let scale = nibble(4, j / 2, j % 2) + 16 * (u16(2) >> (2 * j) & 3);
            f16(0) * (f64::from(scale) - 32.0) * kv(nibble(8, 16 * j + e % 16, e % 32 / 16))
        }
        IQ2_XXS => {
            let w = u32(6 + 8 * j);
            let x = value(&GRID_2XXS.words[b[2 + 8 * j + l] as usize], e % 8);
            eighths(w >> 28) * negated(even(w >> (7 * l)), e % 8, x)
        }
        IQ2_XS => {
            let q = u16(2 + 2 * (e / 8));
            let x = value(&GRID_2XS.words[q as usize & 511], e % 8);
            eighths(nibble(66, j, e % 32 / 16)) * negated(even(q >> 9), e % 8, x)
        }
        IQ2_S => {
            let k = e / 8;
            let row = b[2 + k] as usize | (b[66 + k / 4] as usize >> (2 * (k % 4)) & 3) << 8;
            eighths(nibble(74, j, e % 32 / 16)) * negated(b[34 + k].into(), e % 8, value(&GRID_2S.words[row], e % 8))
        }
        IQ3_XXS => {
            let w = u32(66 + 4 * j);
            let x = value(&GRID_3XXS.words[b[2 + e / 4] as usize], e % 4);
            2.0 * eighths(w >> 28) * negated(even(w >> (7 * l)), e % 8, x)
        }
        IQ3_S => {
            let k = e / 4;
            let row = b[2 + k] as usize | (b[66 + k / 8] as usize >> (k % 8) & 1) << 8;
            8.0 * eighths(nibble(106, e / 64, j % 2))
                * negated(b[74 + e / 8].into(), e % 8, value(&GRID_3S.words[row], e % 4))
        }
        IQ1_S => {
            let high = u16(34 + 2 * j);
            let row = u32::from(b[2 + e / 8]) | (high >> (3 * l) & 7) << 8;
            eighths(high >> 12 & 7) * ninths(row, high >> 15 == 1)
        }
        IQ1_M => {
            let d = (0..4).fold(0, |d, i| d | (u16(48 + 2 * i) as u16 >> 12) << (4 * i));
            let scale = 2 * (u16(48 + 2 * (e / 64)) >> (3 * (e / 16 % 4)) & 7) + 1;
            let high = nibble(32, e / 16, e / 8 % 2);
            let code = ninths(u32::from(b[e / 8]) | (high & 7) << 8, high > 7);
            half::f16::from_bits(d).to_f64() / 8.0 * f64::from(scale) * code
        }
        TQ1_0 => {
            let (byte, p) = match e {
                0..160 => (b[e % 32], e / 32),
                160..240 => (b[32 + (e - 160) % 16], (e - 160) / 16),
                _ => (b[48 + (e - 240) % 4], (e - 240) / 4),
            };
            let digit = (u32::from(byte.wrapping_mul([1, 3, 9, 27, 81][p])) * 3) >> 8;
            f16(52) * (f64::from(digit) - 1.0)
        }
        TQ2_0 => f16(64) * (pair(0) - 1.0),
        // 0 where the scale is below 2^-50
        MXFP4 if b[0] < 78 => 0.0,
        MXFP4 => 2f64.powi(i32::from(b[0]) - 127) * fp4(nibble(1, e % 16, e / 16)),
        NVFP4 => {
            let (s, byte) = (e / 16, b[e / 16]);
            let (x, m) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
            let d = match x {
                _ if byte == 0x7f => 0.0,
                0 => m / 512.0,
                _ => (1.0 + m / 8.0) * 2f64.powi(x - 7),
            };
            d * fp4(nibble(4, 8 * s + e % 8, e % 16 / 8))
        }
        Q1_0 => f16(0) * [-1.0, 1.0][usize::from(b[2 + e / 8] >> (e % 8) & 1)],
        Q2_0 => f16(0) * (f64::from(b[2 + e / 4] >> (2 * (e % 4)) & 3) - 1.0),
        other => panic!("{} is decoded elsewhere", other.name()),
    }
}

/// Decoded activations of one token, in f64.
fn decode_act(act: &[u32], k: usize, digits: usize) -> Vec<f64> {
    let code = |block: &[u32], e: usize| (block[1 + e / 4] >> (8 * (e % 4))) as u8 as i8 as f64;
    (0..k)
        .map(|i| {
            let blocks = &act[i / 128 * digits * 37..][..digits * 37];
            let high = if digits == 2 { 128.0 * code(&blocks[37..], i % 128) } else { 0.0 };
            f32::from_bits(blocks[0]) as f64 * (high + code(blocks, i % 128))
        })
        .collect()
}

#[test]
fn the_twin_computes_the_product_of_decoded_weights_and_activations() {
    let mut random = Random(23);
    for t in BlockType::ALL {
        for k in widths(t) {
            for &digits in digit_choices(t) {
                let case = Case::new(&mut random, Fill::Random, t, k, 33, digits);
                let y = case.twin(2);
                for token in 0..2 {
                    let a = if is_float(t) {
                        case.x[token * k..][..k].iter().map(|&x| x as f64).collect()
                    } else {
                        decode_act(&case.act[token * act_words(k, digits)..], k, digits)
                    };
                    for row in 0..33 {
                        let row_bytes = case.bytes.len() / 33;
                        let w = decode(t, &case.bytes[row * row_bytes..][..row_bytes]);
                        let want: f64 = w.iter().zip(&a).map(|(w, a)| w * a).sum();
                        // with minima, w is a small difference of large terms: the scale of the terms counts
                        let scale = term_scale(t, &case.bytes[row * row_bytes..][..row_bytes], &w, &a);
                        let got = y[token * 38 + 3 + row] as f64;
                        assert!(
                            (got - want).abs() <= 1e-5 * scale + 2f64.powi(-49),
                            "{} row {row}: {got} instead of {want}, scale {scale}",
                            case.name()
                        );
                    }
                }
            }
        }
    }
}

/// Sum of |w * a|, and for formats with minima of both terms of w.
fn term_scale(t: BlockType, row: &[u8], w: &[f64], a: &[f64]) -> f64 {
    let minimum = match t {
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => 2,
        BlockType::Q2_K => 82,
        _ => 0,
    };
    if minimum == 0 {
        return w.iter().zip(a).map(|(w, a)| (w * a).abs()).sum();
    }
    let mut no_minimum = row.to_vec();
    for b in no_minimum.chunks_exact_mut(t.bytes()) {
        b[minimum..minimum + 2].fill(0);
    }
    let scaled = decode(t, &no_minimum);
    w.iter().zip(&scaled).zip(a).map(|((w, s), a)| (s.abs() + (s - w).abs()) * a.abs()).sum()
}

/// Word `i` of a packed row of a type with scales of a few bits, where it holds scales: such that every code counts.
fn unit_scale(t: BlockType, i: usize) -> Option<u32> {
    const ONE: u32 = 0x3c00;
    Some(match (t, i % t.format().words) {
        (BlockType::IQ4_NL, 0..2) | (BlockType::Q2_0, 0) => ONE << 16 | ONE,
        (BlockType::MXFP4, 0) => 0x7f7f_7f7f,
        (BlockType::NVFP4, 0..2) => 0x3838_3838,
        // the scales of a quarter, 9; in the upper nibbles a 1
        (BlockType::IQ1_M, 0..2) => [0x0924_0924, 0x3924_c924][i % 14],
        (BlockType::IQ4_XS, 0) => 0xaaaa_0000 | ONE,
        (BlockType::TQ1_0, _) => return i.is_multiple_of(17).then_some(ONE),
        (
            BlockType::Q2_K
            | BlockType::Q3_K
            | BlockType::IQ3_S
            | BlockType::IQ3_XXS
            | BlockType::IQ2_S
            | BlockType::IQ2_XS
            | BlockType::IQ2_XXS
            | BlockType::IQ1_S
            | BlockType::TQ2_0
            | BlockType::Q1_0,
            0,
        ) => ONE,
        // scales and minima of 1; scales of 17 - 32
        (BlockType::Q2_K, 1..5) => 0x1111_1111,
        (BlockType::Q3_K, 1..3) => 0x1111_1111,
        (BlockType::Q3_K, 3) => 0x5555_5555,
        (BlockType::IQ4_XS, 1) => 0x1111_1111,
        _ => return None,
    })
}

#[test]
fn one_flipped_weight_bit_is_seen_at_every_level() {
    let mut random = Random(24);
    for t in BlockType::ALL {
        let k = 512;
        let mut case = Case::new(&mut random, Fill::Random, t, k, 33, 1);
        // a scale of 1 and activations that are not 0, so that every code counts
        case.x = (0..MAX_TOKENS * k).map(|i| 1.0 + (i % 97) as f32).collect();
        case.act = quantised(t, 1, &case.x, k);
        let per_row = words_per_row(t, k);
        let row = 32;
        let block_words = per_row / (groups(k) / t.elems().div_ceil(128).max(1)).max(1);
        for i in 0..per_row {
            match t {
                BlockType::F32 | BlockType::F16 | BlockType::BF16 => case.packed()[(per_row + i) * 32] = 0x3c00_3c00,
                BlockType::Q8_K | BlockType::Q8K128 if i % 33 == 0 => {
                    case.packed()[(per_row + i) * 32] = 1f32.to_bits()
                }
                BlockType::Q8_0 if i % 34 < 2 => case.packed()[(per_row + i) * 32] = 0x3c00_3c00,
                BlockType::Q4_0 if i % 18 < 2 => case.packed()[(per_row + i) * 32] = 0x3c00_3c00,
                BlockType::Q5_0 if i % 22 < 2 => case.packed()[(per_row + i) * 32] = 0x3c00_3c00,
                BlockType::Q4_1 if i % 20 < 4 => case.packed()[(per_row + i) * 32] = 0x3c00_3c00,
                BlockType::Q5_1 if i % 24 < 4 => case.packed()[(per_row + i) * 32] = 0x3c00_3c00,
                BlockType::W8A8 if i < 2 => case.packed()[(per_row + i) * 32] = [1f32.to_bits(), 0][i],
                BlockType::W8A16 if i % 37 < 4 => case.packed()[(per_row + i) * 32] = 1f32.to_bits(),
                BlockType::W4A16 if i % 21 < 4 => case.packed()[(per_row + i) * 32] = 1f32.to_bits(),
                BlockType::Q4_K | BlockType::Q5_K | BlockType::Q6_K if i % block_words == 0 => {
                    case.packed()[(per_row + i) * 32] = 0x3c00_3c00
                }
                _ if unit_scale(t, i).is_some() => case.packed()[(per_row + i) * 32] = unit_scale(t, i).unwrap_or(0),
                // scales that are not 0
                BlockType::Q4_K | BlockType::Q5_K if i % block_words < 4 => {
                    case.packed()[(per_row + i) * 32] |= 0x1111_1111
                }
                BlockType::Q6_K if i % block_words < 5 => case.packed()[(per_row + i) * 32] |= 0x0101_0101,
                _ => {}
            }
        }
        let want = case.twin(1);
        for i in [per_row - 1, per_row / 2 + 7, 7] {
            let at = (per_row + i) * 32;
            // one that the rounding of the sum cannot hide, also in an f32
            let bit = 1 << if t == BlockType::F32 { 19 } else { random.below(2) * 16 + 3 };
            case.packed()[at] ^= bit;
            for level in Level::available() {
                let got = case.simd(level, 1);
                let changed: Vec<usize> = (0..38).filter(|&i| got[i].to_bits() != want[i].to_bits()).collect();
                assert_eq!(changed, [3 + row], "{} word {i} bit {bit:x} {}", case.name(), level.name());
            }
            assert!(same_bits(&case.twin(1), &case.simd(Level::detect(), 1)));
            case.packed()[at] ^= bit;
        }
    }
}

#[test]
#[should_panic(expected = "words of weights")]
fn short_weights_are_refused() {
    let mut case = Case::new(&mut Random(25), Fill::Random, BlockType::Q4_K, 256, 33, 1);
    case.packed().pop();
    case.simd(Level::Portable, 1);
}

#[test]
#[should_panic(expected = "activation words")]
fn short_activations_are_refused() {
    let mut case = Case::new(&mut Random(26), Fill::Random, BlockType::Q4_K, 256, 33, 2);
    case.act.pop();
    case.simd(Level::Portable, MAX_TOKENS);
}

#[test]
#[should_panic(expected = "reach past a stride")]
fn tokens_that_overlap_are_refused() {
    let case = Case::new(&mut Random(27), Fill::Random, BlockType::F32, 256, 33, 1);
    let mut p = case.params(2);
    p.y_stride = 34;
    simd::matvec(Level::Portable, BlockType::F32, &p, &case.forms[0].1, Act::Floats(&case.x), &mut case.blank_y());
}

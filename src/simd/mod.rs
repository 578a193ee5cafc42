//! The linear operations per instruction set, bit-equal to the twins in `ops` at every level and thread count.
//!
//! `kernels` holds the arithmetic once, over the vector operations of `lanes`; one file per instruction set implements
//! those. A lane is a row, so a level differs from another only in how many rows it takes at once. This is the one place
//! where a level is chosen, and with file mapping the only one with unsafe code.

pub mod attention;
pub mod elementwise;
pub mod encode;
#[cfg(target_arch = "x86_64")]
mod encode_k;
pub mod fused;
mod kernels;
mod lanes;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::blocks::BlockType;
use crate::blocks::pack::packed_words;
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::linear::{ACT_BLOCK_WORDS, GROUP, LinearParams, ROW_BLOCK, act_words, groups, seg_groups};
pub use attention::{attention, attention_head};
pub use elementwise::{rms_norm_row, swiglu};
use kernels::{ActBlock, Floats, Quantised};
use lanes::Word;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;

/// Vectors of 32 rows at the portable level.
const PORTABLE_PARTS: usize = ROW_BLOCK / <portable::Portable as lanes::Lanes>::N;

/// The environment variable that forces the level down.
const LEVEL_VARIABLE: &str = "ISOBIT_SIMD";

/// An instruction set the kernels are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Level {
    /// plain Rust, on every CPU
    Portable,
    /// x86-64 with AVX2 and F16C
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI
    Avx512,
}

impl Level {
    /// Every level, from the slowest to the fastest.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// The best level of this CPU, or the one `ISOBIT_SIMD` names when the CPU has it. What the variable asks for in vain
    /// is logged once as a warning. The answer does not change while the process lives.
    pub fn detect() -> Level {
        static CHOSEN: OnceLock<Level> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let best = Level::best();
            match std::env::var_os(LEVEL_VARIABLE) {
                None => best,
                Some(asked) => {
                    let (level, warning) = Level::choose(&asked.to_string_lossy(), best);
                    if let Some(warning) = warning {
                        log::warn!("{warning}");
                    }
                    level
                }
            }
        })
    }

    fn best() -> Level {
        Level::available().last().copied().unwrap_or(Level::Portable)
    }

    /// What `asked` gives on a CPU whose best level is `best`, and what to say about it.
    fn choose(asked: &str, best: Level) -> (Level, Option<String>) {
        match Level::parse(asked) {
            Some(level) if level <= best => (level, None),
            Some(level) => {
                let (asked, has) = (level.name(), best.name());
                (best, Some(format!("{LEVEL_VARIABLE}={asked}: this CPU has {has} at most, which is used")))
            }
            None if asked.is_empty() => (best, None),
            None => {
                let has = best.name();
                let warning = format!("{LEVEL_VARIABLE}={asked:?}: expected portable, avx2 or avx512; {has} is used");
                (best, Some(warning))
            }
        }
    }

    /// The levels this CPU can run, from the slowest to the fastest.
    pub fn available() -> Vec<Level> {
        Level::ALL.into_iter().filter(|l| l.is_available()).collect()
    }

    /// Whether this CPU can run the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The name `ISOBIT_SIMD` takes.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// The level of a name, in any case of letters.
    pub fn parse(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(name))
    }
}

/// What the weights are multiplied with.
#[derive(Clone, Copy, Debug)]
pub enum Act<'a> {
    /// `act_quantize`'s blocks, `[token][group][digit]` of 37 words: for every quantised format
    Blocks(&'a [u32]),
    /// `[token][k]`: for F32, F16 and BF16
    Floats(&'a [f32]),
}

/// y\[token\]\[y_offset + row\] of a matrix of packed type `t`, the same bits as the twin `ops::<t>_matvec` at every
/// level and thread count. Runs on rayon's current pool, in parallel over row blocks and, for many tokens, tokens.
///
/// `w` is packed (`blocks::pack`); `y` holds the tokens `y_stride` apart. Panics when a length does not fit, when `t` is
/// not a packed type, when `act` is of the wrong kind, or when this CPU does not have `level`.
pub fn matvec(level: Level, t: BlockType, p: &LinearParams, w: &[u32], act: Act, y: &mut [f32]) {
    let (n_tokens, k, rows, digits) = (p.n_tokens as usize, p.k as usize, p.rows as usize, p.digits as usize);
    let (stride, offset) = (p.y_stride as usize, p.y_offset as usize);
    assert!(level.is_available(), "matvec: this CPU does not have {}", level.name());
    assert!(k.is_multiple_of(t.elems()), "matvec: k {k} is no multiple of {} for {}", t.elems(), t.name());
    let words = packed_words(t, rows, k);
    assert!(w.len() >= words, "matvec: {} words of weights, {} {rows} x {k} has {words}", w.len(), t.name());
    if n_tokens == 0 || rows == 0 {
        return;
    }
    assert!(n_tokens == 1 || offset + rows <= stride, "matvec: rows {offset}+{rows} reach past a stride of {stride}");
    let end = (n_tokens - 1) * stride + offset + rows;
    assert!(y.len() >= end, "matvec: y has {} words, {n_tokens} tokens of {rows} rows reach {end}", y.len());

    let (w, _) = w[..words].as_chunks::<ROW_BLOCK>();
    let out = Out { y: y.as_mut_ptr(), stride, offset, rows, residual: p.residual == 1 };
    match act {
        Act::Blocks(act) => {
            assert!(digits == 1 || digits == 2, "matvec: digits is {digits}, expected 1 or 2");
            let words = n_tokens * act_words(k, digits);
            assert!(act.len() >= words, "matvec: {} activation words, expected {words}", act.len());
            let (act, _) = act[..words].as_chunks::<ACT_BLOCK_WORDS>();
            let job = QuantisedJob { level, w, act, k, digits };
            parallel(rows, k, n_tokens, |row_block, tokens| {
                // SAFETY: `parallel` gives every (row block, token) to one call, and the rows and tokens of `out` were
                // checked above to lie within y, tokens not overlapping.
                unsafe {
                    match t {
                        BlockType::Q8_0 => job.run::<kernels::Q8_0>(row_block, tokens, &out),
                        BlockType::Q4_0 => job.run::<kernels::Q4_0>(row_block, tokens, &out),
                        BlockType::Q4_K => job.run::<kernels::Q4K>(row_block, tokens, &out),
                        BlockType::Q5_K => job.run::<kernels::Q5K>(row_block, tokens, &out),
                        BlockType::Q6_K => job.run::<kernels::Q6K>(row_block, tokens, &out),
                        BlockType::Q8K128 => job.run::<kernels::Q8K128>(row_block, tokens, &out),
                        _ => panic!("matvec: {} does not take quantised activations", t.name()),
                    }
                }
            });
        }
        Act::Floats(x) => {
            let words = n_tokens * k;
            assert!(x.len() >= words, "matvec: {} activations, expected {words}", x.len());
            let job = FloatsJob { level, w, x, k };
            parallel(rows, k, n_tokens, |row_block, tokens| {
                // SAFETY: as above.
                unsafe {
                    match t {
                        BlockType::F32 => job.run::<kernels::F32>(row_block, tokens, &out),
                        BlockType::F16 => job.run::<kernels::F16>(row_block, tokens, &out),
                        BlockType::BF16 => job.run::<kernels::BF16>(row_block, tokens, &out),
                        _ => panic!("matvec: {} does not take f32 activations", t.name()),
                    }
                }
            });
        }
    }
}

/// `ops::act_quantize` with the same bits, in parallel over groups when there are many.
///
/// `x` `[token][k]`, `act` `[token][group][digit]` blocks of 37 words. Panics as [`matvec`] does.
pub fn act_quantize(level: Level, p: &ActQuantizeParams, x: &[f32], act: &mut [u32]) {
    /// Groups of one task.
    const TASK: usize = 64;

    let (n_tokens, k, digits) = (p.n_tokens as usize, p.k as usize, p.digits as usize);
    assert!(level.is_available(), "act_quantize: this CPU does not have {}", level.name());
    assert!(digits == 1 || digits == 2, "act_quantize: digits is {digits}, expected 1 or 2");
    assert!(x.len() >= n_tokens * k, "act_quantize: {} elements, expected {}", x.len(), n_tokens * k);
    let words = n_tokens * act_words(k, digits);
    assert!(act.len() >= words, "act_quantize: room for {} words, expected {words}", act.len());
    let (blocks, _) = act[..words].as_chunks_mut::<ACT_BLOCK_WORDS>();
    let run = |first: usize, blocks: &mut [ActBlock]| match level {
        Level::Portable => quantise_groups(x, k, digits, first, blocks),
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { quantise_groups_avx2(x, k, digits, first, blocks) },
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { quantise_groups_avx512(x, k, digits, first, blocks) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => unreachable!("only available levels come here"),
    };
    if blocks.len() < 4 * TASK * digits || rayon::current_num_threads() == 1 {
        run(0, blocks);
    } else {
        blocks.par_chunks_mut(TASK * digits).enumerate().for_each(|(i, blocks)| run(i * TASK, blocks));
    }
}

/// The groups from `first` on, of all tokens' groups in one row.
#[inline(always)]
fn quantise_groups(x: &[f32], k: usize, digits: usize, first: usize, blocks: &mut [ActBlock]) {
    for (i, blocks) in blocks.chunks_exact_mut(digits).enumerate() {
        let (token, g) = ((first + i) / groups(k), (first + i) % groups(k));
        let x = &x[token * k..][..k][g * GROUP..];
        match x.first_chunk() {
            Some(x) => kernels::quantise_group(x, blocks),
            None => {
                let mut padded = [0.0; GROUP];
                padded[..x.len()].copy_from_slice(x);
                kernels::quantise_group(&padded, blocks);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn quantise_groups_avx2(x: &[f32], k: usize, digits: usize, first: usize, blocks: &mut [ActBlock]) {
    quantise_groups(x, k, digits, first, blocks);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantise_groups_avx512(x: &[f32], k: usize, digits: usize, first: usize, blocks: &mut [ActBlock]) {
    quantise_groups(x, k, digits, first, blocks);
}

/// Calls `f(row block, tokens)` so that every row block meets every token once, in parallel when that pays.
fn parallel(rows: usize, k: usize, n_tokens: usize, f: impl Fn(usize, Range<usize>) + Sync) {
    /// Multiplications below which waking another thread costs more than it brings.
    const SMALL: usize = 1 << 17;
    /// Tokens a task has at least, as a multiple: the largest tile.
    const TOKENS: usize = 8;

    let row_blocks = rows.div_ceil(ROW_BLOCK);
    let threads = rayon::current_num_threads();
    if threads == 1 || row_blocks * ROW_BLOCK * k.max(1) * n_tokens < SMALL {
        (0..row_blocks).for_each(|b| f(b, 0..n_tokens));
        return;
    }
    let wanted = 4 * threads;
    let row_tasks = row_blocks.min(wanted);
    let token_tasks = wanted.div_ceil(row_tasks).min(n_tokens.div_ceil(TOKENS));
    let tokens_each = n_tokens.div_ceil(token_tasks).next_multiple_of(TOKENS);
    (0..row_tasks * token_tasks).into_par_iter().with_max_len(1).for_each(|task| {
        let (i, j) = (task % row_tasks, task / row_tasks);
        let tokens = (j * tokens_each).min(n_tokens)..((j + 1) * tokens_each).min(n_tokens);
        for b in i * row_blocks / row_tasks..(i + 1) * row_blocks / row_tasks {
            f(b, tokens.clone());
        }
    });
}

/// Where results go: shared by tasks that write different rows or tokens.
struct Out {
    y: *mut f32,
    stride: usize,
    offset: usize,
    rows: usize,
    /// add to what is there
    residual: bool,
}

// SAFETY: the pointer is only written through `put`, whose contract forbids two tasks to write the same words.
unsafe impl Send for Out {}
// SAFETY: as for Send.
unsafe impl Sync for Out {}

impl Out {
    /// Writes the rows of one row block, or adds them to what is there; those past the last row are left out.
    ///
    /// # Safety
    ///
    /// The rows of this token lie within y, and no other thread accesses them meanwhile.
    #[inline]
    unsafe fn put(&self, token: usize, row_block: usize, values: &[f32; ROW_BLOCK]) {
        let row = row_block * ROW_BLOCK;
        let count = ROW_BLOCK.min(self.rows - row);
        let at = token * self.stride + self.offset + row;
        if self.residual {
            // SAFETY: the caller's promise.
            let y = unsafe { std::slice::from_raw_parts_mut(self.y.add(at), count) };
            for (y, v) in y.iter_mut().zip(values) {
                *y = elementwise::canon(*y + v);
            }
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.y.add(at), count) }
    }
}

/// A matrix with quantised weights and its activations.
struct QuantisedJob<'a> {
    level: Level,
    w: &'a [Word],
    act: &'a [ActBlock],
    k: usize,
    digits: usize,
}

impl QuantisedJob<'_> {
    /// One row block for some tokens, in the largest tiles the level has registers for.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for this row block and these tokens.
    unsafe fn run<F: Quantised>(&self, row_block: usize, tokens: Range<usize>, out: &Out) {
        let mut token = tokens.start;
        while token < tokens.end {
            let left = tokens.end - token;
            // SAFETY: the caller's promise.
            token += unsafe {
                match (self.digits, left) {
                    // no portable tile: compilers find fewer vector instructions in one
                    (1, _) if self.level == Level::Portable => self.tile::<F, 1, 1>(row_block, token, out),
                    (_, _) if self.level == Level::Portable => self.tile::<F, 1, 2>(row_block, token, out),
                    (1, 8..) if self.level == Level::Avx512 => self.tile::<F, 8, 1>(row_block, token, out),
                    (1, 4..) => self.tile::<F, 4, 1>(row_block, token, out),
                    (1, _) => self.tile::<F, 1, 1>(row_block, token, out),
                    (_, 4..) => self.tile::<F, 4, 2>(row_block, token, out),
                    (_, _) => self.tile::<F, 1, 2>(row_block, token, out),
                }
            };
        }
    }

    /// One tile; returns its tokens.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for this row block and these tokens.
    unsafe fn tile<F: Quantised, const T: usize, const D: usize>(
        &self,
        row_block: usize,
        token: usize,
        out: &Out,
    ) -> usize {
        let per_row = groups(self.k).div_ceil(F::GROUPS) * F::WORDS;
        let w = &self.w[row_block * per_row..][..per_row];
        let (groups, seg) = (groups(self.k), seg_groups(self.k));
        let act = &self.act[token * groups * D..][..T * groups * D];
        let y = match self.level {
            Level::Portable => {
                kernels::quantised::<_, F, T, D, PORTABLE_PARTS>(portable::Portable, w, act, groups, seg)
            }
            // SAFETY: `matvec` asserted that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { quantised_avx2::<F, T, D>(w, act, groups, seg) },
            // SAFETY: `matvec` asserted that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { quantised_avx512::<F, T, D>(w, act, groups, seg) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("only available levels come here"),
        };
        for (i, y) in y.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { out.put(token + i, row_block, y) };
        }
        T
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn quantised_avx2<F: Quantised, const T: usize, const D: usize>(
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let v = unsafe { avx2::Avx2::new() };
    kernels::quantised::<_, F, T, D, 4>(v, w, act, groups, seg)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantised_avx512<F: Quantised, const T: usize, const D: usize>(
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let v = unsafe { avx512::Avx512::new() };
    kernels::quantised::<_, F, T, D, 2>(v, w, act, groups, seg)
}

/// A matrix with float weights and its activations.
struct FloatsJob<'a> {
    level: Level,
    w: &'a [Word],
    x: &'a [f32],
    k: usize,
}

impl FloatsJob<'_> {
    /// One row block for some tokens.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for this row block and these tokens.
    unsafe fn run<F: Floats>(&self, row_block: usize, tokens: Range<usize>, out: &Out) {
        let mut token = tokens.start;
        while token < tokens.end {
            // SAFETY: the caller's promise.
            token += unsafe {
                match tokens.end - token {
                    4.. => self.tile::<F, 4>(row_block, token, out),
                    _ => self.tile::<F, 1>(row_block, token, out),
                }
            };
        }
    }

    /// One tile; returns its tokens.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for this row block and these tokens.
    unsafe fn tile<F: Floats, const T: usize>(&self, row_block: usize, token: usize, out: &Out) -> usize {
        let per_row = self.k.div_ceil(F::PER_WORD);
        let w = &self.w[row_block * per_row..][..per_row];
        let (k, seg) = (self.k, seg_groups(self.k));
        let x = &self.x[token * k..][..T * k];
        let y = match (self.level, T) {
            (Level::Portable, 1) => kernels::floats::<_, F, T, PORTABLE_PARTS>(portable::Portable, w, x, k, seg),
            (Level::Portable, _) => kernels::floats::<_, F, T, 1>(portable::Portable, w, x, k, seg),
            // SAFETY: `matvec` asserted that the level is available.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, 1) => unsafe { floats_avx2::<F, T, 4>(w, x, k, seg) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, _) => unsafe { floats_avx2::<F, T, 2>(w, x, k, seg) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, _) => unsafe { floats_avx512::<F, T>(w, x, k, seg) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("only available levels come here"),
        };
        for (i, y) in y.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { out.put(token + i, row_block, y) };
        }
        T
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn floats_avx2<F: Floats, const T: usize, const P: usize>(
    w: &[Word],
    x: &[f32],
    k: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let v = unsafe { avx2::Avx2::new() };
    kernels::floats::<_, F, T, P>(v, w, x, k, seg)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn floats_avx512<F: Floats, const T: usize>(w: &[Word], x: &[f32], k: usize, seg: usize) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let v = unsafe { avx512::Avx512::new() };
    kernels::floats::<_, F, T, 2>(v, w, x, k, seg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_asked_for_in_vain_gives_the_best_one_and_a_warning() {
        assert_eq!(Level::choose("portable", Level::Avx512), (Level::Portable, None));
        assert_eq!(Level::choose("AVX2", Level::Avx512), (Level::Avx2, None));
        assert_eq!(Level::choose("", Level::Avx2), (Level::Avx2, None));
        let (level, warning) = Level::choose("avx512", Level::Avx2);
        assert_eq!(level, Level::Avx2);
        assert!(warning.unwrap().contains("avx2 at most"));
        let (level, warning) = Level::choose("sse9", Level::Avx2);
        assert_eq!(level, Level::Avx2);
        assert!(warning.unwrap().contains("sse9"));
    }

    #[test]
    fn names_parse_back() {
        for level in Level::ALL {
            assert_eq!(Level::parse(level.name()), Some(level));
        }
        assert_eq!(Level::parse("neon"), None);
        assert!(Level::available().contains(&Level::Portable));
    }

    #[test]
    fn every_row_block_meets_every_token_once() {
        use std::sync::atomic::{AtomicU32, Ordering};
        for (rows, n_tokens) in [(1usize, 1usize), (33, 1), (4096, 1), (64, 100), (33, 517), (1, 5000)] {
            let met: Vec<AtomicU32> = (0..rows.div_ceil(32) * n_tokens).map(|_| AtomicU32::new(0)).collect();
            parallel(rows, 4096, n_tokens, |b, tokens| {
                for token in tokens {
                    met[b * n_tokens + token].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(met.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{rows} rows, {n_tokens} tokens");
        }
    }
}

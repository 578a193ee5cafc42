//! The linear operations per instruction set, bit-equal to the twins in `ops` at every level and thread count.
//!
//! `kernels` holds the arithmetic once, over the vector operations of `lanes`; one file per instruction set implements
//! those. A lane is a row, so a level differs from another only in how many rows it takes at once. This is the one place
//! where a level is chosen, and with file mapping the only one with unsafe code.

mod altup;
pub mod attention;
mod cache;
pub mod elementwise;
pub mod encode;
#[cfg(target_arch = "x86_64")]
mod encode_k;
mod experts;
pub mod fused;
mod kernels;
mod lanes;
mod layernormed;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod many;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128"))]
mod pair;
pub mod peak;
mod portable;
mod prefetch;
mod recurrent;
mod rows;
mod scratch;
pub mod team;
mod top_k;
mod words;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avxvnni;
#[cfg(target_arch = "aarch64")]
mod i8mm;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;

use crate::blocks::BlockType;
use crate::blocks::pack::packed_words;
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::exact::canon;
use crate::ops::linear::{ACT_BLOCK_WORDS, GROUP, LinearParams, ROW_BLOCK, act_words, groups, seg_groups};
use crate::ops::row_quantize::RowQuantizeParams;
pub use altup::{altup_correct, altup_predict, altup_rescale, gaussian_topk_row};
pub use attention::{attention, attention_head};
pub use cache::{cache_write_k, cache_write_v};
pub use elementwise::{
    combine, geglu, rms_norm_in_place, rms_norm_row, rope, sigmoid_gate, softcap, swiglu, swiglu_oai,
};
pub use experts::{expert_matvec, expert_order, router};
use kernels::{ActBlock, Floats, Matrix};
use lanes::Word;
pub use layernormed::{gelu, layer_norm_row};
pub use prefetch::{Fetch, cpu_title};
pub use recurrent::{conv_silu, delta_rule, gdn_gates, short_conv, ssm_discretize, ssm_scan};
use std::ops::Range;
use std::sync::OnceLock;
pub use top_k::top_k;
pub use words::Words;

/// Vectors of 32 rows at the portable level.
const PORTABLE_PARTS: usize = ROW_BLOCK / <portable::Portable as lanes::Lanes>::N;

/// The same for sums of integers.
const NARROW_PARTS: usize = ROW_BLOCK / <portable::Narrow as lanes::Lanes>::N;

/// The environment variable that forces the level down.
const LEVEL_VARIABLE: &str = "ISOBIT_SIMD";

/// An instruction set the kernels are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Level {
    /// plain Rust, on every CPU
    Portable,
    /// x86-64 with AVX2 and F16C
    Avx2,
    /// AVX2 with AVX-VNNI (256 bits)
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI
    Avx512,
    /// AVX-512 with AMX int8: matrices meet many tokens by tiles
    Amx,
    /// AArch64 with NEON
    Neon,
    /// NEON with the dot-product extension
    NeonDot,
    /// that with FEAT_I8MM: matrices meet many tokens by products of pairs
    NeonI8mm,
    /// WebAssembly compiled with simd128
    Simd128,
}

impl Level {
    /// Every level of every architecture; those of one from the slowest to the fastest.
    pub const ALL: [Level; 9] = [
        Level::Portable,
        Level::Avx2,
        Level::AvxVnni,
        Level::Avx512,
        Level::Amx,
        Level::Neon,
        Level::NeonDot,
        Level::NeonI8mm,
        Level::Simd128,
    ];

    /// The best level of this CPU, or the one `ISOBIT_SIMD` names when the CPU has it. What the variable asks for in vain
    /// is logged once as a warning ([`Level::asked`] is for who would rather end). The answer does not change while the
    /// process lives.
    pub fn detect() -> Level {
        static CHOSEN: OnceLock<Level> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let best = Level::available().last().copied().unwrap_or(Level::Portable);
            Level::asked().unwrap_or_else(|why| {
                log::warn!("{why}; {} is used", best.name());
                best
            })
        })
    }

    /// Whether `ISOBIT_SIMD` names a level.
    pub fn is_forced() -> bool {
        std::env::var_os(LEVEL_VARIABLE).is_some_and(|v| !v.is_empty())
    }

    /// What [`Level::detect`] gives, or why `ISOBIT_SIMD` asks for it in vain.
    pub fn asked() -> Result<Level, String> {
        let asked = std::env::var_os(LEVEL_VARIABLE).unwrap_or_default();
        Level::choose(&asked.to_string_lossy(), &Level::available())
    }

    /// What `asked` gives on a CPU that has the levels `has` (from the slowest to the fastest).
    fn choose(asked: &str, has: &[Level]) -> Result<Level, String> {
        let names = |levels: &[Level]| levels.iter().map(|l| l.name()).collect::<Vec<_>>().join(", ");
        let why = match Level::parse(asked) {
            Some(level) if has.contains(&level) => return Ok(level),
            Some(_) => format!("this CPU has {}", names(has)),
            None if asked.is_empty() => return Ok(has.last().copied().unwrap_or(Level::Portable)),
            None => format!("expected one of {}", names(&Level::ALL)),
        };
        let asked: String = asked.chars().take(60).collect();
        Err(format!("{LEVEL_VARIABLE}={asked:?}: {why}"))
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
            Level::AvxVnni => Level::Avx2.is_available() && is_x86_feature_detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Amx => Level::Avx512.is_available() && amx::is_available(),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => Level::Neon.is_available() && std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Level::NeonI8mm => Level::NeonDot.is_available() && std::arch::is_aarch64_feature_detected!("i8mm"),
            Level::Simd128 => cfg!(all(target_arch = "wasm32", target_feature = "simd128")),
            // those of other architectures
            _ => false,
        }
    }

    /// The name `ISOBIT_SIMD` takes.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::AvxVnni => "avxvnni",
            Level::Avx512 => "avx512",
            Level::Amx => "amx",
            Level::Neon => "neon",
            Level::NeonDot => "neon-dot",
            Level::NeonI8mm => "neon-i8mm",
            Level::Simd128 => "simd128",
        }
    }

    /// The level whose vectors it uses: tiles and products of pairs are for matrices alone.
    pub(crate) fn vectors(self) -> Level {
        match self {
            Level::Amx => Level::Avx512,
            Level::NeonI8mm => Level::NeonDot,
            other => other,
        }
    }

    /// Tokens from which on a row block is unpacked first: fewer meet it in registers (`QuantisedJob`). Each number of
    /// x86-64 is that of the CPU it was measured on (`docs/performance.md`, "Many texts at once"): one of AMD's, and one of
    /// Intel's with AMX. That of products of pairs is by instructions, counted (`docs/kernels.md`).
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn panel_tokens(self) -> usize {
        match self {
            Level::Amx => 5,
            Level::NeonI8mm => 6,
            _ => 4,
        }
    }

    /// Whether rows of codebooks are found without a load for each.
    pub fn finds_rows_in_registers(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.vectors() == Level::Avx512 && kernels::books::is_available();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The level of a name, in any case of letters.
    pub fn parse(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(name))
    }
}

/// What decides how the linear operations run, and no bit of what they give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// the instruction set
    pub level: Level,
    /// how weights are asked for
    pub fetch: Fetch,
}

impl From<Level> for Kernel {
    /// A level, asking as the rule for this CPU says.
    fn from(level: Level) -> Kernel {
        Kernel { level, fetch: Fetch::detect() }
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
/// level and thread count. Runs on the current team, in parallel over row blocks and, for many tokens, tokens.
///
/// `w` is packed (`blocks::pack`); `y` holds the tokens `y_stride` apart. Panics when a length does not fit, when `t` is
/// not a packed type, when `act` is of the wrong kind, or when this CPU does not have `level`.
pub fn matvec(kernel: impl Into<Kernel>, t: BlockType, p: &LinearParams, w: &[u32], act: Act, y: &mut [f32]) {
    matvec_by(kernel.into(), t, p, w, act, y);
}

/// [`matvec`], with no parameter of a type: every crate that called it would compile all kernels for itself.
#[inline(never)]
fn matvec_by(Kernel { level, fetch }: Kernel, t: BlockType, p: &LinearParams, w: &[u32], act: Act, y: &mut [f32]) {
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
    let out = Out { y: y.as_mut_ptr(), stride, offset, rows, residual: p.residual != 0 };
    let row_blocks = rows.div_ceil(ROW_BLOCK);
    let row_block_bytes = words / row_blocks * 4;
    match act {
        Act::Blocks(act) => {
            assert!(digits == 1 || digits == 2, "matvec: digits is {digits}, expected 1 or 2");
            let words = n_tokens * act_words(k, digits);
            assert!(act.len() >= words, "matvec: {} activation words, expected {words}", act.len());
            let (act, _) = act[..words].as_chunks::<ACT_BLOCK_WORDS>();
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            if digits == 1 && n_tokens >= level.panel_tokens() {
                let job =
                    many::Job { level, w, act, groups: groups(k), seg_groups: seg_groups(k), n_tokens, row_blocks };
                // SAFETY: the level is available, and rows and tokens of `out` were checked above to lie within y.
                if unsafe { kernels::with_panels!(t, F => job.run::<F>(&out)) } == Some(true) {
                    return;
                }
            }
            let job = QuantisedJob { level: level.vectors(), fetch, w, act, k, digits };
            parallel((row_blocks, row_block_bytes), (n_tokens, act_words(k, digits) * 4), |row_blocks, tokens| {
                // SAFETY: `parallel` gives every (row block, token) to one call, and the rows and tokens of `out` were
                // checked above to lie within y, tokens not overlapping.
                unsafe { kernels::with_quantised!(t, F => job.run::<F>(row_blocks, tokens, &out)) }
            });
        }
        Act::Floats(x) => {
            let words = n_tokens * k;
            assert!(x.len() >= words, "matvec: {} activations, expected {words}", x.len());
            let job = FloatsJob { level: level.vectors(), w, x, k };
            parallel((row_blocks, row_block_bytes), (n_tokens, k * 4), |row_blocks, tokens| {
                for row_block in row_blocks {
                    // SAFETY: as above.
                    unsafe { kernels::with_floats!(t, F => job.run::<F>(row_block, tokens.clone(), &out)) }
                }
            });
        }
    }
}

/// `ops::act_quantize` with the same bits, on the current team when there are many groups.
///
/// `x` `[token][k]`, `act` `[token][group][digit]` blocks of 37 words. Panics as [`matvec`] does.
pub fn act_quantize(level: Level, p: &ActQuantizeParams, x: &[f32], act: &mut [u32]) {
    /// Groups of one task, at least.
    const TASK: usize = 16;

    let (n_tokens, k, digits) = (p.n_tokens as usize, p.k as usize, p.digits as usize);
    assert!(level.is_available(), "act_quantize: this CPU does not have {}", level.name());
    assert!(digits == 1 || digits == 2, "act_quantize: digits is {digits}, expected 1 or 2");
    assert!(x.len() >= n_tokens * k, "act_quantize: {} elements, expected {}", x.len(), n_tokens * k);
    let words = n_tokens * act_words(k, digits);
    assert!(act.len() >= words, "act_quantize: room for {} words, expected {words}", act.len());
    let (blocks, _) = act[..words].as_chunks_mut::<ACT_BLOCK_WORDS>();
    let run = |first: usize, blocks: &mut [ActBlock]| match level.vectors() {
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { quantise_groups_avx2(x, k, digits, first, blocks) },
        // SAFETY: the level is available, asserted above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { quantise_groups_avx512(x, k, digits, first, blocks) },
        // the other levels' instructions are always on for their targets
        _ => quantise_groups(kernels::Halving, x, k, digits, first, blocks),
    };
    team::chunks_mut(blocks, digits, TASK, run);
}

/// The groups from `first` on, of all tokens' groups in one row.
#[inline(always)]
fn quantise_groups(by: impl lanes::Amax, x: &[f32], k: usize, digits: usize, first: usize, blocks: &mut [ActBlock]) {
    for (i, blocks) in blocks.chunks_exact_mut(digits).enumerate() {
        let (token, g) = ((first + i) / groups(k), (first + i) % groups(k));
        let x = &x[token * k..][..k][g * GROUP..];
        match x.first_chunk() {
            Some(x) => kernels::quantise_group(by, x, blocks),
            None => {
                let mut padded = [0.0; GROUP];
                padded[..x.len()].copy_from_slice(x);
                kernels::quantise_group(by, &padded, blocks);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn quantise_groups_avx2(x: &[f32], k: usize, digits: usize, first: usize, blocks: &mut [ActBlock]) {
    quantise_groups(kernels::Halving, x, k, digits, first, blocks);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantise_groups_avx512(x: &[f32], k: usize, digits: usize, first: usize, blocks: &mut [ActBlock]) {
    // SAFETY: this function's own target features.
    let v = unsafe { avx512::Avx512::new() };
    quantise_groups(v, x, k, digits, first, blocks);
}

/// `ops::row_quantize` with the same bits, on the current team, a task for each token.
///
/// `x` `[token][k]`, `act` `[token][group]` blocks of 37 words. Panics as [`matvec`] does.
pub fn row_quantize(level: Level, p: &RowQuantizeParams, x: &[f32], act: &mut [u32]) {
    let (n_tokens, k) = (p.n_tokens as usize, p.k as usize);
    assert!(level.is_available(), "row_quantize: this CPU does not have {}", level.name());
    assert!(x.len() >= n_tokens * k, "row_quantize: {} elements, expected {}", x.len(), n_tokens * k);
    let words = n_tokens * act_words(k, 1);
    assert!(act.len() >= words, "row_quantize: room for {} words, expected {words}", act.len());
    let (blocks, _) = act[..words].as_chunks_mut::<ACT_BLOCK_WORDS>();
    team::chunks_mut(blocks, groups(k), 1, |first, blocks| {
        for (i, blocks) in blocks.chunks_exact_mut(groups(k)).enumerate() {
            let x = &x[(first + i) * k..][..k];
            match level.vectors() {
                // SAFETY: the level is available, asserted above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::AvxVnni => unsafe { quantise_row_avx2(p, x, blocks) },
                // SAFETY: the level is available, asserted above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { quantise_row_avx512(p, x, blocks) },
                // the other levels' instructions are always on for their targets
                _ => kernels::quantise_row(p, x, blocks),
            }
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn quantise_row_avx2(p: &RowQuantizeParams, x: &[f32], blocks: &mut [ActBlock]) {
    kernels::quantise_row(p, x, blocks);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantise_row_avx512(p: &RowQuantizeParams, x: &[f32], blocks: &mut [ActBlock]) {
    kernels::quantise_row(p, x, blocks);
}

/// Calls `f(row block, tokens)` so that every row block meets every token once, on the current team when that pays.
/// `row_block_bytes`: weights of a row block, `token_bytes`: activations of a token.
fn parallel(
    (row_blocks, row_block_bytes): (usize, usize),
    (n_tokens, token_bytes): (usize, usize),
    f: impl Fn(Range<usize>, Range<usize>) + Sync,
) {
    /// Weights times tokens, in bytes, that one thread is done with before another could help.
    const SMALL: usize = 48 << 10;
    /// Activations that meet several row blocks before the next ones come: they stay in the second-level cache.
    const NEAR: usize = 384 << 10;
    /// Row blocks of a task with many tokens.
    const ROWS: usize = 8;
    /// The largest tile.
    const TOKENS: usize = 8;

    let threads = team::threads();
    if threads == 1 && n_tokens < TOKENS || row_blocks * row_block_bytes * n_tokens < SMALL {
        return f(0..row_blocks, 0..n_tokens);
    }
    if n_tokens < TOKENS {
        return team::ranges(row_blocks, team::items_of(row_block_bytes), |r| f(r, 0..n_tokens));
    }
    let tokens = (NEAR / token_bytes.max(1) / TOKENS).max(1) * TOKENS;
    let rows = (row_blocks / (4 * threads)).clamp(1, ROWS);
    let pieces = n_tokens.div_ceil(tokens);
    // pieces of equal length, in whole tiles
    let tokens = n_tokens.div_ceil(pieces).next_multiple_of(TOKENS);
    // a task is one row block and one piece; those of ROWS row blocks with the same piece lie side by side
    team::batches(row_blocks * pieces, rows, |tasks| {
        for task in tasks {
            let (first, at) = (task / (rows * pieces) * rows, task % (rows * pieces));
            let beside = rows.min(row_blocks - first);
            let (b, j) = (first + at % beside, at / beside);
            f(b..b + 1, (j * tokens).min(n_tokens)..((j + 1) * tokens).min(n_tokens));
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
    /// The same with a token as the first.
    fn at_token(&self, token: usize) -> Out {
        Out { y: self.y.wrapping_add(token * self.stride), ..*self }
    }

    /// Where the rows of one row block begin for a token, and the bytes to the next token's.
    #[cfg(target_arch = "x86_64")]
    fn line(&self, token: usize, row_block: usize) -> (*const u8, usize) {
        let first = self.y.wrapping_add(token * self.stride + self.offset + row_block * ROW_BLOCK);
        (first.cast(), self.stride * size_of::<f32>())
    }

    /// Writes the rows of one row block, or adds them to what is there; those past the last row are left out.
    ///
    /// # Safety
    ///
    /// The rows of this token lie within y, and no other thread accesses them meanwhile.
    #[inline(always)]
    unsafe fn put(&self, token: usize, row_block: usize, values: &[f32; ROW_BLOCK]) {
        let row = row_block * ROW_BLOCK;
        let count = ROW_BLOCK.min(self.rows - row);
        let y = self.y.wrapping_add(token * self.stride + self.offset + row);
        if count == ROW_BLOCK {
            // of a known length: vectors instead of a call for each
            // SAFETY: the caller's promise.
            let y = unsafe { &mut *y.cast::<[f32; ROW_BLOCK]>() };
            if self.residual {
                for l in 0..ROW_BLOCK {
                    y[l] = canon(y[l] + values[l]);
                }
            } else {
                *y = *values;
            }
            return;
        }
        // SAFETY: the caller's promise.
        let y = unsafe { std::slice::from_raw_parts_mut(y, count) };
        for (y, v) in y.iter_mut().zip(values) {
            *y = if self.residual { canon(*y + v) } else { *v };
        }
    }
}

/// A matrix with quantised weights and its activations.
struct QuantisedJob<'a> {
    level: Level,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "the other levels ask in one way"))]
    fetch: Fetch,
    w: &'a [Word],
    act: &'a [ActBlock],
    k: usize,
    digits: usize,
}

impl QuantisedJob<'_> {
    /// Some row blocks for some tokens.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for these row blocks and tokens.
    unsafe fn run<F: Matrix>(&self, row_blocks: Range<usize>, tokens: Range<usize>, out: &Out) {
        if tokens.len() == 1 && self.digits == 1 {
            // SAFETY: the caller's promise.
            return unsafe { self.one_token::<F>(row_blocks, tokens.start, out) };
        }
        for row_block in row_blocks {
            // SAFETY: the caller's promise.
            unsafe { self.row_block::<F>(row_block, tokens.clone(), out) };
        }
    }

    /// Row blocks one after the other for one token of one digit.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for these row blocks and this token.
    unsafe fn one_token<F: Matrix>(&self, row_blocks: Range<usize>, token: usize, out: &Out) {
        // SAFETY: the caller's promise; `matvec` asserted that the level is available.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match self.level {
                Level::Avx2 => return one_token_avx2::<F>(self, row_blocks, token, out),
                Level::AvxVnni => return one_token_avxvnni::<F>(self, row_blocks, token, out),
                Level::Avx512 if const { F::BOOK.is_none() } => {
                    return one_token_avx512::<F>(self, row_blocks, token, out);
                }
                _ => {}
            }
        }
        for row_block in row_blocks {
            // SAFETY: the caller's promise.
            unsafe { self.tile::<F, 1, 1>(row_block, token, out) };
        }
    }

    /// The words of a row block.
    fn words<F: Matrix>(&self, row_block: usize) -> &[Word] {
        let words = groups(self.k).div_ceil(F::GROUPS) * F::WORDS;
        &self.w[row_block * words..][..words]
    }

    /// One row block for some tokens, in the largest tiles the level has registers for.
    ///
    /// # Safety
    ///
    /// That of [`Out::put`], for this row block and these tokens.
    unsafe fn row_block<F: Matrix>(&self, row_block: usize, tokens: Range<usize>, out: &Out) {
        let mut token = tokens.start;
        while token < tokens.end {
            let left = tokens.end - token;
            // SAFETY: the caller's promise.
            token += unsafe {
                match (self.digits, left) {
                    // a larger tile with two digits has more sums than registers
                    (2, _) if matches!(self.level, Level::Portable | Level::Simd128) => {
                        self.tile::<F, 1, 2>(row_block, token, out)
                    }
                    (1, 8..) if const { !F::PAIRED && !F::PANELS } && matches!(self.level, Level::Avx512) => {
                        self.tile::<F, 8, 1>(row_block, token, out)
                    }
                    (1, 4..) if const { !F::PANELS } || !matches!(self.level, Level::AvxVnni | Level::Avx512) => {
                        self.tile::<F, 4, 1>(row_block, token, out)
                    }
                    // two tokens of few meet what was unpacked for one
                    #[cfg(target_arch = "x86_64")]
                    (1, 2..)
                        if const { F::BOOK.is_none() }
                            && matches!(self.level, Level::Avx2 | Level::AvxVnni | Level::Avx512) =>
                    {
                        self.tile::<F, 2, 1>(row_block, token, out)
                    }
                    (1, _) => {
                        self.one_token::<F>(row_block..row_block + 1, token, out);
                        1
                    }
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
    unsafe fn tile<F: Matrix, const T: usize, const D: usize>(
        &self,
        row_block: usize,
        token: usize,
        out: &Out,
    ) -> usize {
        let w = self.words::<F>(row_block);
        let (groups, seg) = (groups(self.k), seg_groups(self.k));
        let act = &self.act[token * groups * D..][..T * groups * D];
        // these are the largest functions there are: what `row_block` and `one_token` never ask for is not compiled
        let y = match self.level {
            Level::Portable if const { T == 1 || T * D == 4 } => {
                F::tile::<_, T, D, NARROW_PARTS>(portable::Narrow, w, act, groups, seg)
            }
            // SAFETY: `matvec` asserted that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 if const { T <= 4 && T * D > 1 } => unsafe {
                quantised_avx2::<F, T, D>(self.fetch, w, act, groups, seg)
            },
            // SAFETY: `matvec` asserted that the level is available.
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni if const { T * D > 1 && (T <= 2 || T <= 4 && (D == 2 || !F::PANELS)) } => unsafe {
                quantised_avxvnni::<F, T, D>(self.fetch, w, act, groups, seg)
            },
            // SAFETY: `matvec` asserted that the level is available, and what a codebook needs besides is asked for here.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if const { (T * D > 1 || F::BOOK.is_some()) && (T <= 2 || D == 2 || !F::PANELS) } => unsafe {
                match F::BOOK {
                    Some(book) if T == 1 && kernels::books::is_available() => {
                        let y = kernels::books::row_block::<D>(book, self.fetch.ahead, w, act, groups, seg);
                        [y; T]
                    }
                    _ => quantised_avx512::<F, T, D>(self.fetch, w, act, groups, seg),
                }
            },
            // SAFETY: `matvec` asserted that the level is available.
            #[cfg(target_arch = "aarch64")]
            Level::Neon if const { T <= 4 } => unsafe { quantised_neon::<F, T, D>(w, act, groups, seg) },
            // SAFETY: `matvec` asserted that the level is available.
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot if const { T <= 4 } => unsafe { quantised_neon_dot::<F, T, D>(w, act, groups, seg) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 if const { T == 1 } => F::tile::<_, T, D, 4>(pair::Pair(wasm::Simd128), w, act, groups, seg),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 if const { T * D == 4 } => F::tile::<_, T, D, 8>(wasm::Simd128, w, act, groups, seg),
            _ => unreachable!("only available levels come here, with the tiles of `run`"),
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
fn quantised_avx2<F: Matrix, const T: usize, const D: usize>(
    fetch: Fetch,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let (v, near) = unsafe { (avx2::Avx2::<false>::asking(fetch.ahead), avx2::Avx2::<true>::asking(fetch.ahead)) };
    match const { kernels::few::<T, D>() } && !fetch.once {
        true => F::tile::<_, T, D, 4>(near, w, act, groups, seg),
        false => F::tile::<_, T, D, 4>(v, w, act, groups, seg),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avxvnni")]
fn quantised_avxvnni<F: Matrix, const T: usize, const D: usize>(
    fetch: Fetch,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let (v, near) =
        unsafe { (avxvnni::AvxVnni::<false>::asking(fetch.ahead), avxvnni::AvxVnni::<true>::asking(fetch.ahead)) };
    if const { T == 4 && D == 1 && F::PAIRED } {
        return F::tile::<_, T, D, 2>(pair::Pair(v), w, act, groups, seg);
    }
    match const { kernels::few::<T, D>() } && !fetch.once {
        true => F::tile::<_, T, D, 4>(near, w, act, groups, seg),
        false => F::tile::<_, T, D, 4>(v, w, act, groups, seg),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantised_avx512<F: Matrix, const T: usize, const D: usize>(
    fetch: Fetch,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let (v, near) =
        unsafe { (avx512::Avx512::<false>::asking(fetch.ahead), avx512::Avx512::<true>::asking(fetch.ahead)) };
    if const { T == 1 && F::JOINED || T == 4 && D == 1 && F::PAIRED } {
        return match const { kernels::few::<T, D>() } && !fetch.once {
            true => F::tile::<_, T, D, 1>(pair::Pair(near), w, act, groups, seg),
            false => F::tile::<_, T, D, 1>(pair::Pair(v), w, act, groups, seg),
        };
    }
    match const { kernels::few::<T, D>() } && !fetch.once {
        true => F::tile::<_, T, D, 2>(near, w, act, groups, seg),
        false => F::tile::<_, T, D, 2>(v, w, act, groups, seg),
    }
}

/// Row blocks one after the other for one token of one digit, with the level's instructions around the loop. Called for
/// each row block, a kernel loses 0.2 to 0.4 µs to what lies between two of them, a tenth of a token and more where rows
/// are short (docs/performance.md, "Row blocks within one function").
macro_rules! one_token_at {
    ($name:ident, $features:literal, $lanes:ident::$level:ident) => {
        /// [`one_token`] with this level's instructions.
        ///
        /// # Safety
        ///
        /// That of [`Out::put`], for these row blocks and this token.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $name<F: Matrix>(job: &QuantisedJob, row_blocks: Range<usize>, token: usize, out: &Out) {
            let ahead = job.fetch.ahead;
            // SAFETY: this function's own target features.
            let (v, near) = unsafe { ($lanes::$level::<false>::asking(ahead), $lanes::$level::<true>::asking(ahead)) };
            // SAFETY: the caller's promise.
            unsafe {
                match job.fetch.once {
                    true => one_token::<_, F>(v, job, row_blocks, token, out),
                    false => one_token::<_, F>(near, job, row_blocks, token, out),
                }
            }
        }
    };
}

one_token_at!(one_token_avx2, "avx2,f16c", avx2::Avx2);
one_token_at!(one_token_avxvnni, "avx2,f16c,avxvnni", avxvnni::AvxVnni);
one_token_at!(one_token_avx512, "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", avx512::Avx512);

/// The loop of [`one_token_at`].
///
/// # Safety
///
/// As there.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn one_token<V: lanes::Lanes, F: Matrix>(
    v: V,
    job: &QuantisedJob,
    row_blocks: Range<usize>,
    token: usize,
    out: &Out,
) {
    let (groups, seg) = (groups(job.k), seg_groups(job.k));
    let act = &job.act[token * groups..][..groups];
    for row_block in row_blocks {
        let w = job.words::<F>(row_block);
        let [y] = match const { ROW_BLOCK / V::N } {
            2 if const { F::JOINED } => F::tile::<_, 1, 1, 1>(pair::Pair(v), w, act, groups, seg),
            2 => F::tile::<_, 1, 1, 2>(v, w, act, groups, seg),
            _ => F::tile::<_, 1, 1, 4>(v, w, act, groups, seg),
        };
        // SAFETY: the caller's promise.
        unsafe { out.put(token, row_block, &y) };
    }
}

/// As many rows at a time as leave the sums in the 32 registers there are.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn quantised_neon_any<F: Matrix, const DOT: bool, const T: usize, const D: usize>(
    v: neon::Neon<DOT>,
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    match const { T * D } {
        1 => F::tile::<_, T, D, 2>(pair::Pair(pair::Pair(v)), w, act, groups, seg),
        2..=4 => F::tile::<_, T, D, 4>(pair::Pair(v), w, act, groups, seg),
        _ => F::tile::<_, T, D, 8>(v, w, act, groups, seg),
    }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn quantised_neon<F: Matrix, const T: usize, const D: usize>(
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    quantised_neon_any::<F, false, T, D>(unsafe { neon::Neon::new() }, w, act, groups, seg)
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn quantised_neon_dot<F: Matrix, const T: usize, const D: usize>(
    w: &[Word],
    act: &[ActBlock],
    groups: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    quantised_neon_any::<F, true, T, D>(unsafe { neon::Neon::new() }, w, act, groups, seg)
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
                    // weights are widened for twice as many
                    #[cfg(target_arch = "x86_64")]
                    8.. if matches!(self.level, Level::Avx512) => self.tile::<F, 8>(row_block, token, out),
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
            (Level::Avx2 | Level::AvxVnni, 1) => unsafe { floats_avx2::<F, T, 4>(w, x, k, seg) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2 | Level::AvxVnni, _) => unsafe { floats_avx2::<F, T, 2>(w, x, k, seg) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, 1) if F::NARROW => unsafe { floats_avx2::<F, T, 4>(w, x, k, seg) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, 1) => unsafe { floats_avx512::<F, T, 2>(w, x, k, seg) },
            // a token's element is then an operand in memory of the one multiplication that it meets; SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, _) => unsafe { floats_avx512::<F, T, 1>(w, x, k, seg) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            (Level::Neon | Level::NeonDot, 1) => unsafe { floats_neon::<F, T, 8>(w, x, k, seg) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            (Level::Neon | Level::NeonDot, _) => unsafe { floats_neon::<F, T, 4>(w, x, k, seg) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            (Level::Simd128, 1) => kernels::floats::<_, F, T, 8>(wasm::Simd128, w, x, k, seg),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            (Level::Simd128, _) => kernels::floats::<_, F, T, 2>(wasm::Simd128, w, x, k, seg),
            _ => unreachable!("only available levels come here"),
        };
        for (i, y) in y.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { out.put(token + i, row_block, y) };
        }
        T
    }
}

/// How far ahead one token's kernel asks for float weights, in bytes, and as data like any other. Measured on Zen 4, two threads:
/// 30 of the 32 GB/s that plain reading gets, 29 where nothing is asked for.
#[cfg(target_arch = "x86_64")]
const FLOATS_AHEAD: usize = 4 << 10;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn floats_avx2<F: Floats, const T: usize, const P: usize>(
    w: &[Word],
    x: &[f32],
    k: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let v = unsafe { avx2::Avx2::<true>::asking(FLOATS_AHEAD) };
    kernels::floats::<_, F, T, P>(v, w, x, k, seg)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn floats_avx512<F: Floats, const T: usize, const P: usize>(
    w: &[Word],
    x: &[f32],
    k: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let v = unsafe { avx512::Avx512::<true>::asking(FLOATS_AHEAD) };
    kernels::floats::<_, F, T, P>(v, w, x, k, seg)
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn floats_neon<F: Floats, const T: usize, const P: usize>(
    w: &[Word],
    x: &[f32],
    k: usize,
    seg: usize,
) -> [[f32; ROW_BLOCK]; T] {
    // SAFETY: this function's own target features.
    let v = unsafe { neon::Neon::<false>::new() };
    kernels::floats::<_, F, T, P>(v, w, x, k, seg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_asked_for_in_vain_says_what_there_is() {
        // a CPU with AVX-512 need not have AVX-VNNI
        let (wide, narrow) = ([Level::Portable, Level::Avx2, Level::Avx512], [Level::Portable, Level::Avx2]);
        assert_eq!(Level::choose("portable", &wide), Ok(Level::Portable));
        assert_eq!(Level::choose("AVX2", &wide), Ok(Level::Avx2));
        assert_eq!(Level::choose("", &narrow), Ok(Level::Avx2));
        let why = |asked, has: &[Level]| Level::choose(asked, has).unwrap_err();
        assert!(why("avxvnni", &wide).contains("this CPU has portable, avx2, avx512"));
        assert!(why("avx512", &narrow).contains("this CPU has portable, avx2"));
        assert!(why("sse9", &narrow).contains("\"sse9\": expected one of portable"));
        assert!(why(&"x".repeat(5000), &narrow).len() < 300);
    }

    /// One row block of pseudo-random words, activations with one digit or two, and either hint: with AVX-512 alone, and for
    /// codebooks with VBMI and GFNI.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_way_with_avx512_gives_the_same_bits() {
        use crate::blocks::pack::{pack_rows, packed_type, words_per_row};
        use crate::blocks::{BlockType, NumberKind};

        fn compare<F: Matrix, const D: usize>(t: BlockType, w: &[Word], act: &[u32], k: usize) {
            let (act, _) = act.as_chunks::<ACT_BLOCK_WORDS>();
            let (groups, seg) = (groups(k), seg_groups(k));
            let mut all = Vec::new();
            for ahead in [0, 12 << 10] {
                for once in [true, false] {
                    // SAFETY: the caller looked for the level.
                    all.push(unsafe { quantised_avx512::<F, 1, D>(Fetch { once, ahead }, w, act, groups, seg) }[0]);
                }
                if let (Some(book), true) = (F::BOOK, kernels::books::is_available()) {
                    // SAFETY: the caller looked for the level, and what was asked for is there.
                    all.push(unsafe { kernels::books::row_block::<D>(book, ahead, w, act, groups, seg) });
                }
            }
            let want = all[0].map(f32::to_bits);
            assert!(want.iter().any(|&bits| bits != 0), "{} gives zeros alone", t.name());
            for (i, got) in all.iter().enumerate() {
                assert_eq!(got.map(f32::to_bits), want, "{}, {D} digits, way {i}", t.name());
            }
        }

        if !Level::Avx512.is_available() {
            eprintln!("not run: this CPU has no AVX-512");
            return;
        }
        for t in BlockType::ALL {
            let k = 9 * 256;
            if t.is_float() || packed_type(t) != t {
                continue;
            }
            let n = (ROW_BLOCK * k / t.elems() * t.bytes()) as u64;
            let mut bytes: Vec<u8> = (0..n).map(|i| crate::random::at(7, i) as u8).collect();
            for block in bytes.chunks_exact_mut(t.bytes()) {
                for n in t.format().numbers {
                    let (at, bits) = match n.kind {
                        NumberKind::E8M0 => (n.at, 0x70),
                        NumberKind::F32 => (n.at + 3, 0x30),
                        NumberKind::TopNibbles => (n.at + 7, 0x30),
                        NumberKind::F16 | NumberKind::BF16 => (n.at + 1, 0x30),
                    };
                    block[at] = bits | block[at] & 0x81;
                }
            }
            let mut w = vec![0; ROW_BLOCK * words_per_row(t, k)];
            pack_rows(t, k, ROW_BLOCK, &bytes, &mut w).unwrap();
            let (w, _) = w.as_chunks::<ROW_BLOCK>();
            let x: Vec<f32> = (0..k).map(|i| (i * 7919 % 10007) as f32 / 5003.0 - 1.0).collect();
            for digits in [1, 2] {
                if t == BlockType::W8A8 && digits == 2 {
                    // has one
                    continue;
                }
                let mut act = vec![0; act_words(k, digits)];
                let p = ActQuantizeParams { n_tokens: 1, k: k as u32, digits: digits as u32 };
                act_quantize(Level::Avx512, &p, &x, &mut act);
                match digits {
                    1 => kernels::with_quantised!(t, F => compare::<F, 1>(t, w, &act, k)),
                    _ => kernels::with_quantised!(t, F => compare::<F, 2>(t, w, &act, k)),
                }
            }
        }
    }

    #[test]
    fn names_parse_back() {
        for level in Level::ALL {
            assert_eq!(Level::parse(level.name()), Some(level));
        }
        assert_eq!(Level::parse("sse9"), None);
        assert!(Level::available().contains(&Level::Portable));
    }

    #[test]
    fn every_row_block_meets_every_token_once() {
        use std::sync::atomic::{AtomicU32, Ordering};
        for (blocks, n_tokens) in
            [(1usize, 1usize), (2, 1), (128, 1), (128, 7), (2, 100), (2, 517), (1, 5000), (100, 9)]
        {
            let met: Vec<AtomicU32> = (0..blocks * n_tokens).map(|_| AtomicU32::new(0)).collect();
            parallel((blocks, 64 << 10), (n_tokens, 5000), |row_blocks, tokens| {
                for b in row_blocks {
                    for token in tokens.clone() {
                        met[b * n_tokens + token].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            assert!(met.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{blocks} row blocks, {n_tokens} tokens");
        }
    }
}

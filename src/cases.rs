//! The case table: for every operation and type, small runs given word by word.
//!
//! Whatever checks or times an operation walks this table, so nothing is timed that is not checked. Inputs are chosen,
//! not only random: a pattern of prime period, zeros, extremes, ties, negative and subnormal scales, shapes at and
//! beside block and workgroup boundaries, what is not finite. But for the last all of them are values the engine can store
//! (`canon`), and every buffer that is written ends in guard words.
//!
//! Expected results are not here: they are what the twin makes of a case. Nothing here runs an operation on a device.

use crate::blocks::{BlockType, NumberKind, pack};
use crate::ops::act_quantize::{ActQuantizeParams, act_quantize};
use crate::ops::add::AddParams;
use crate::ops::add_bias::AddBiasParams;
use crate::ops::cache::CacheType;
use crate::ops::copy_columns::CopyColumnsParams;
use crate::ops::embed::EmbedParams;
use crate::ops::encode::{EncodeParams, unit};
use crate::ops::exact::{SCALE_MIN, canon};
use crate::ops::float_probe::{self, FloatProbeParams};
use crate::ops::gate_up;
use crate::ops::geglu::GegluParams;
use crate::ops::linear::{LinearParams, act_words};
use crate::ops::matvec_pair::PAIRS;
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::rope::RopeParams;
use crate::ops::row_quantize::{RowQuantizeParams, row_quantize};
use crate::ops::scale::ScaleParams;
use crate::ops::select_rows::SelectRowsParams;
use crate::ops::softcap::{self, SoftcapParams};
use crate::ops::swiglu::SwigluParams;
use crate::random;
use crate::record::{Args, BufDecl, BufId, Command, Op, Plan, Recording, Role, Rows, Step, WeightSource};
use std::ops::Range;

mod altup;
mod attention;
mod channels;
mod experts;
mod fused;
mod layernormed;
mod recurrent;
mod scattered;
mod top_k;

/// Words after the live part of every written buffer; they hold [`SENTINEL`] before and after.
pub const GUARD_WORDS: usize = 16;

/// What written buffers hold before: a finite f32 and an unlikely result.
pub const SENTINEL: u32 = 0xdead_beef;

/// What cache positions hold that no query may see: NaN as f32 and as f16.
const UNSEEN: u32 = 0x7fc0_7e00;

/// What a buffer is to the operation of its case.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// given with the step, as token ids and the RoPE table are
    Input,
    /// only read
    Read,
    /// written in these ranges of words and nowhere else
    Write(Vec<Range<usize>>),
}

/// One buffer of a case.
#[derive(Clone, Debug)]
pub struct CaseBuffer {
    /// as the shader calls it
    pub name: &'static str,
    /// what it holds before
    pub words: Vec<u32>,
    /// what the operation does with it
    pub access: Access,
}

/// One operation over given words.
#[derive(Clone, Debug)]
pub struct Case {
    /// operation, shape, inputs, and the seed where there is one
    pub name: String,
    /// what runs
    pub op: Op,
    /// its static parameters
    pub args: Args,
    /// number of tokens, position, selected rows; its `inputs` are empty ([`Batch::step`] fills them)
    pub step: Step,
    /// what its row count follows
    pub rows: Rows,
    /// buffers in the order of the shader's bindings 1, 2, …
    pub buffers: Vec<CaseBuffer>,
}

/// Every operation and type the engine has.
pub fn ops() -> Vec<Op> {
    let mut list: Vec<Op> = BlockType::with_kernels().map(Op::Embed).collect();
    list.extend(BlockType::with_kernels().map(Op::Matvec));
    list.extend([Op::RmsNorm, Op::HeadNorms, Op::ActQuantize, Op::RowQuantize, Op::Rope]);
    list.extend(CacheType::ALL.map(Op::CacheWriteK));
    list.extend(CacheType::ALL.map(Op::CacheWriteV));
    // every key type and every value type, alone, with the common one, and together; all pairs cost a pipeline each
    let pairs = CacheType::ALL.iter().flat_map(|&k| CacheType::ALL.map(|v| (k, v)));
    let pairs: Vec<_> = pairs.filter(|&(k, v)| k == v || k == CacheType::F16 || v == CacheType::F16).collect();
    list.extend(pairs.iter().map(|&(k, v)| Op::Attention(k, v)));
    // the same shader text but for its tail: enough that each type of values is met
    list.extend(pairs.iter().filter(|(k, v)| k == v).map(|&(k, v)| Op::AttentionQuantize(k, v)));
    list.extend([
        Op::Swiglu,
        Op::Geglu,
        Op::AttentionSinks,
        Op::Gelu,
        Op::LayerNorm,
        Op::Scale,
        Op::Softcap,
        Op::Add,
        Op::AddBias,
        Op::ChannelQuantize,
        Op::ChannelScale,
        Op::CopyColumns,
        Op::SelectRows,
        Op::TopK,
        Op::FloatProbe,
        Op::NormQuantize,
        Op::SwigluQuantize,
    ]);
    list.extend(CacheType::ALL.map(|t| Op::RopeCacheWrite(t, t)));
    list.extend([
        Op::RopeCacheWrite(CacheType::F16, CacheType::Q8_0),
        Op::RopeCacheWrite(CacheType::Q4_0R, CacheType::TQ3_1),
    ]);
    list.extend(
        [(CacheType::C8, CacheType::C8), (CacheType::C8, CacheType::F16), (CacheType::Q8_0R, CacheType::C8)]
            .map(|(k, v)| Op::RopeChannelCacheWrite(k, v)),
    );
    list.extend(PAIRS.map(|(a, b, _)| Op::MatvecPair(a, b)));
    list.extend(gate_up::types().map(Op::GateUp));
    list.extend([Op::Router, Op::ExpertOrder, Op::ExpertBias, Op::ExpertScale, Op::ExpertCombine]);
    list.extend([Op::SigmoidGate, Op::SwigluOai]);
    list.extend([Op::ConvSilu, Op::GdnGates, Op::DeltaRule, Op::ShortConv, Op::SsmDiscretize, Op::SsmScan]);
    list.extend([Op::AltupRescale, Op::AltupPredict, Op::AltupCorrect, Op::AltupAdd, Op::GaussianTopk]);
    list.extend(BlockType::with_kernels().map(Op::ExpertMatvec));
    list.extend(BlockType::ALL.into_iter().filter(|t| unit(*t).is_some()).map(Op::Encode));
    list
}

/// Those, and what CPUs alone have kernels for: codes in the place of rows of a codebook.
pub fn ops_of_cpus() -> Vec<Op> {
    let mut list = ops();
    for t in BlockType::WIDE {
        list.extend([Op::Embed(t), Op::Matvec(t), Op::GateUp(t), Op::ExpertMatvec(t)]);
    }
    list
}

/// The cases of one operation.
pub fn of(op: Op) -> Vec<Case> {
    match op {
        Op::Embed(t) => embed(t),
        Op::Matvec(t) => matvec(t),
        Op::RmsNorm => rms_norm(),
        Op::HeadNorms => fused::head_norms(),
        Op::ActQuantize => quantise(),
        Op::RowQuantize => quantise_rows(),
        Op::Rope => rope(),
        Op::Encode(t) => encode(t),
        Op::CacheWriteK(t) | Op::CacheWriteV(t) => attention::cache_write(op, t),
        Op::Attention(k, v) => attention::attention(k, v),
        Op::AttentionQuantize(k, v) => attention::attention_quantize(k, v),
        Op::Swiglu => glu(Op::Swiglu),
        Op::Geglu => glu(Op::Geglu),
        Op::AttentionSinks => attention::attention_sinks(),
        Op::Gelu => layernormed::gelu(),
        Op::LayerNorm => layernormed::layer_norm(),
        Op::Scale => scale(),
        Op::Softcap => softcap(),
        Op::Add => add(),
        Op::AddBias => add_bias(),
        Op::ChannelQuantize => channels::channel_quantize(),
        Op::ChannelScale => channels::channel_scale(),
        Op::CopyColumns => copy_columns(),
        Op::SelectRows => select_rows(),
        Op::TopK => top_k::top_k(),
        Op::FloatProbe => probe(),
        Op::NormQuantize => fused::norm_quantize(),
        Op::SwigluQuantize => fused::swiglu_quantize(),
        Op::RopeCacheWrite(k, v) => fused::rope_cache_write(k, v),
        Op::RopeChannelCacheWrite(k, v) => fused::rope_channel_cache_write(k, v),
        Op::MatvecPair(a, b) => fused::matvec_pair(a, b),
        Op::GateUp(t) => fused::gate_up(t),
        Op::Router => experts::router(),
        Op::ExpertOrder => experts::expert_order(),
        Op::ExpertMatvec(t) => experts::expert_matvec(t),
        Op::ExpertBias => experts::expert_bias(),
        Op::ExpertScale => experts::expert_scale(),
        Op::ExpertCombine => experts::expert_combine(),
        Op::SigmoidGate => experts::sigmoid_gate(),
        Op::SwigluOai => experts::swiglu_oai(),
        Op::ConvSilu => recurrent::conv_silu(),
        Op::GdnGates => recurrent::gdn_gates(),
        Op::DeltaRule => recurrent::delta_rule(),
        Op::ShortConv => recurrent::short_conv(),
        Op::SsmDiscretize => recurrent::ssm_discretize(),
        Op::SsmScan => recurrent::ssm_scan(),
        Op::AltupRescale => altup::altup_rescale(),
        Op::AltupPredict => altup::altup_predict(),
        Op::AltupCorrect => altup::altup_correct(),
        Op::AltupAdd => altup::altup_add(),
        Op::GaussianTopk => altup::gaussian_topk(),
    }
}

/// Cases of one plan, so that a device compiles each operation once.
pub struct Batch<'a> {
    cases: &'a [Case],
    /// first buffer of each case
    first: Vec<BufId>,
    /// what buffers are loaded with
    given: Vec<&'a [u32]>,
}

impl<'a> Batch<'a> {
    /// The plan of some cases, and the source of their words.
    pub fn new(cases: &'a [Case]) -> (Plan, Batch<'a>) {
        let most = |f: fn(&Step) -> usize| cases.iter().map(|c| f(&c.step)).max().unwrap_or(0);
        let (max_tokens, max_out) = (most(|s| s.n_tokens), most(|s| s.n_out));
        let (mut buffers, mut commands, mut given) = (vec![], vec![], vec![]);
        let mut first = Vec::with_capacity(cases.len());
        for case in cases {
            let at = buffers.len();
            first.push(at);
            for buffer in &case.buffers {
                let role = match buffer.access {
                    Access::Input => Role::Input,
                    // everything else has words to begin with
                    _ => {
                        given.push(&buffer.words[..]);
                        Role::Given(given.len() - 1)
                    }
                };
                buffers.push(BufDecl {
                    name: format!("{}: {}", case.name, buffer.name),
                    words: buffer.words.len(),
                    role,
                });
            }
            commands.push(Command {
                op: case.op,
                args: case.args,
                binds: (at..buffers.len()).collect(),
                rows: case.rows,
                layer: None,
                label: "case".into(),
            });
        }
        let plan = Plan { buffers, recording: Recording { commands }, max_tokens, max_out, ..Plan::default() };
        (plan, Batch { cases, first, given })
    }

    /// Buffer `b` of case `i`.
    pub fn buffer(&self, i: usize, b: usize) -> BufId {
        self.first[i] + b
    }

    /// The step of case `i`, which is command `i`, with its inputs.
    pub fn step(&self, i: usize) -> Step {
        let case = &self.cases[i];
        let mut step = case.step.clone();
        for (b, buffer) in case.buffers.iter().enumerate() {
            if buffer.access == Access::Input {
                step.inputs.push((self.buffer(i, b), buffer.words.clone()));
            }
        }
        step
    }
}

impl WeightSource for Batch<'_> {
    fn fill(&mut self, buffer: &BufDecl, out: &mut [u32]) -> anyhow::Result<()> {
        let Role::Given(at) = buffer.role else { anyhow::bail!("buffer {} is not one of a case", buffer.name) };
        out.copy_from_slice(self.given[at]);
        Ok(())
    }
}

// ---- inputs ----

/// Its state is the seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        random::next(&mut self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// sign and significand random, exponent 2^-8 .. 2^8
    fn float(&mut self) -> f32 {
        let r = self.next();
        f32::from_bits((r as u32 & 0x8000_0000) | (119 + (r >> 32) as u32 % 17) << 23 | (r as u32 & 0x7f_ffff))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// How f32 inputs are made.
#[derive(Clone, Copy, Debug)]
enum Fill {
    /// repeats after 251 elements
    Prime,
    /// a seed
    Random(u64),
    Zeros,
    /// the largest code everywhere
    Ones,
    /// the largest magnitude everywhere, signs by sevens
    Full,
    /// from the smallest storable to 10^9, both signs
    Extremes,
    /// around the smallest scale that counts
    Tiny,
    /// halves between codes, for one digit or two
    Ties(u32),
    /// halves between the codes of q4_0
    NibbleTies,
    /// halfway between neighbouring f16, normal and subnormal, and at the largest
    HalfTies,
    /// small values and one outlier in 100
    Outliers,
    /// -100 to 100
    Sweep,
    /// what is no number, of both signs, and the largest numbers, here and there; not canonicalised
    Wild,
    /// the same as it is stored
    Poison,
    /// weights of norms and biases may be any finite numbers; not canonicalised
    Huge,
    /// one number in the first element of every so many
    First(usize, f32),
    /// in the first element of every so many the number of 64 such rows before it
    Rising(usize),
    /// numbers of rows of so many, none but zeros after the first 64 rows
    Early(usize),
    /// around the smallest magnitude that can be stored
    Faint,
    /// just below the largest magnitude that can be stored, whose products and sums of squares overflow
    Large,
}

impl Fill {
    fn name(self) -> String {
        match self {
            Fill::Random(seed) => format!("seed {seed:#x}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    fn make(self, n: usize) -> Vec<f32> {
        const EXTREMES: [f32; 13] = [
            8.881_784e-16, // 2^-50
            1.0e9,
            -8.881_784e-16,
            65504.0,
            -0.1,
            -1.0e9,
            1.0,
            0.0,
            -65519.9,
            16777215.0,
            3.0e-8,
            -127.5,
            0.333_333_34,
        ];
        let mut rng = Rng(if let Fill::Random(seed) = self { seed } else { 7 });
        let one = |i: usize| match self {
            Fill::Prime => ((i * 37 % 251) as f32 - 125.0) * 0.013,
            Fill::Random(_) => rng.float(),
            Fill::Zeros => 0.0,
            Fill::Ones => 1.0,
            Fill::Full => {
                if (i / 7).is_multiple_of(2) {
                    1.0
                } else {
                    -1.0
                }
            }
            Fill::Extremes => EXTREMES[i % 13],
            Fill::Tiny => {
                // the first group's scale is the smallest that counts, the second's is just below, the third's far below
                let top = match i / 128 % 3 {
                    0 => 127.0 * SCALE_MIN,
                    1 => f32::from_bits((127.0 * SCALE_MIN).to_bits() - 2),
                    _ => 2.0 * SCALE_MIN,
                };
                [top, -0.5 * top, 0.25 * top, 0.0, -0.003 * top][i % 5]
            }
            Fill::Ties(digits) => {
                let limit = if digits == 1 { 127 } else { 16256 };
                if i.is_multiple_of(32) {
                    -(limit as f32)
                } else {
                    ((i * 8191) % (2 * limit)) as f32 - limit as f32 + 0.5
                }
            }
            Fill::NibbleTies => {
                let sign = if (i / 32).is_multiple_of(2) { 1.0 } else { -1.0 };
                sign * if i.is_multiple_of(32) { -8.0 } else { (i * 5 % 16) as f32 - 7.5 }
            }
            Fill::HalfTies => match i % 4 {
                // f16 has 11 bits, and steps of 2^-24 at the small end
                0 => (1.0 + (2 * (i % 1021) + 1) as f32 / 2048.0) * if i.is_multiple_of(8) { 1.0 } else { -1024.0 },
                1 => (2 * (i % 1021) + 1) as f32 / 33_554_432.0,
                2 => [65519.996, 65520.0, -65520.0, 65536.0][i / 4 % 4],
                _ => -((i % 13) as f32) / 67_108_864.0,
            },
            Fill::Outliers => {
                if i % 100 == 3 {
                    -3.0e4
                } else {
                    rng.float() * 0.01
                }
            }
            Fill::Sweep => (i * 89 % 2003) as f32 * 0.1 - 100.1,
            Fill::Wild | Fill::Poison => {
                const WILD: [f32; 8] =
                    [f32::INFINITY, f32::NAN, -3.0e38, f32::NEG_INFINITY, -f32::NAN, 3.0e38, f32::MIN, f32::MAX];
                // one in 211, so that some rows of a head and some groups have one and others none
                if i % 211 == 5 { WILD[i / 211 % 8] } else { ((i * 37 % 251) as f32 - 125.0) * 0.013 }
            }
            Fill::Huge => [3.0e38, -3.0e38, 1.5, 2.0e19, -0.25, 0.0, 1.0][i % 7],
            Fill::First(n, x) => {
                if i.is_multiple_of(n) {
                    x
                } else {
                    0.0
                }
            }
            Fill::Rising(n) => {
                if i.is_multiple_of(n) {
                    (i / n / 64) as f32
                } else {
                    0.0
                }
            }
            Fill::Early(n) => {
                if i / n < 64 {
                    ((i * 37 % 251) as f32 - 125.0) * 0.013
                } else {
                    0.0
                }
            }
            Fill::Faint => (1.0 + (i % 97) as f32 / 97.0) * [8.9e-16, -8.9e-16, 1.8e-15, 7.2e-15][i % 4],
            Fill::Large => [1.8e19, -1.8e19, 1.0e10, 0.25, 1.7e19][i % 5],
        };
        let stored = |x: f32| if matches!(self, Fill::Wild | Fill::Huge) { x } else { canon(x) };
        (0..n).map(one).map(stored).collect()
    }
}

/// How weights are made.
#[derive(Clone, Copy, Debug)]
enum Weights {
    /// these values, encoded
    Encoded(Fill),
    /// any codes, any finite scales; a seed
    Raw(u64),
    /// every byte this one, scales of both signs
    Byte(u8),
    /// through Q8_K blocks, which are packed as Q8K128
    Q8K,
    /// of types that hold them: the largest numbers, of both signs, among others
    Huge,
}

impl Weights {
    fn name(self) -> String {
        match self {
            Weights::Encoded(fill) => fill.name(),
            Weights::Raw(seed) => format!("raw seed {seed:#x}"),
            Weights::Byte(b) => format!("bytes {b:02x}"),
            Weights::Q8K => "Q8_K".into(),
            Weights::Huge => "huge".into(),
        }
    }

    /// `rows` packed rows of `k` elements.
    fn make(self, t: BlockType, rows: usize, k: usize) -> Vec<u32> {
        let packed = t;
        let t = match t {
            _ if matches!(self, Weights::Q8K) => BlockType::Q8_K,
            // one of those that are packed so
            BlockType::Wide1 => BlockType::IQ1_M,
            BlockType::Wide2 => BlockType::IQ2_S,
            BlockType::Wide3 => BlockType::IQ3_XXS,
            BlockType::Wide3S => BlockType::IQ3_S,
            t => t,
        };
        let mut bytes = vec![0u8; rows * t.row_bytes(k).expect("cases have whole blocks")];
        match self {
            Weights::Encoded(fill) => {
                // within what an f16 can hold
                let values: Vec<f32> = fill.make(rows * k).iter().map(|v| v.clamp(-65504.0, 65504.0)).collect();
                t.encode_row(&values, &mut bytes);
            }
            Weights::Q8K => t.encode_row(&Fill::Prime.make(rows * k), &mut bytes),
            Weights::Huge => {
                let values =
                    |i: usize| if i % 67 == 3 { [3.0e38, -3.0e38, 2.0e19][i / 67 % 3] } else { (i % 7) as f32 };
                t.encode_row(&(0..rows * k).map(values).collect::<Vec<f32>>(), &mut bytes);
            }
            Weights::Raw(seed) => {
                let mut rng = Rng(seed);
                bytes.iter_mut().for_each(|b| *b = rng.next() as u8);
                for block in bytes.chunks_exact_mut(t.bytes()) {
                    finite_scales(t, block, &mut rng);
                }
            }
            Weights::Byte(byte) => {
                let mut rng = Rng(u64::from(byte));
                bytes.fill(byte);
                for block in bytes.chunks_exact_mut(t.bytes()) {
                    finite_scales(t, block, &mut rng);
                    // an offset at the other end than the codes
                    if matches!(t, BlockType::W8A16 | BlockType::W4A16) {
                        block[4] = !byte;
                    }
                }
            }
        }
        let mut words = vec![0; pack::packed_words(packed, rows, k)];
        pack::pack_rows_as(t, packed, k, rows, &bytes, &mut words).expect("every scale is finite");
        words
    }
}

/// Overwrites the scales of a block (or the element of a float format).
fn finite_scales(t: BlockType, block: &mut [u8], rng: &mut Rng) {
    let half = |rng: &mut Rng| -> u16 {
        // 1, -1, the subnormals at both ends, ±65504, ±0, the smallest normal, 0.1
        const CHOSEN: [u16; 11] =
            [0x3c00, 0xbc00, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x0000, 0x8000, 0x0400, 0x8400, 0x2e66];
        match rng.below(3) {
            0 => rng.pick(&CHOSEN),
            _ => (rng.next() as u16 & 0x83ff) | (5 + rng.below(14) as u16) << 10,
        }
    };
    for n in t.format().numbers {
        let block = &mut block[n.at..];
        match n.kind {
            NumberKind::F16 => block[..2].copy_from_slice(&half(rng).to_le_bytes()),
            NumberKind::BF16 => block[..2].copy_from_slice(&rng.float().to_le_bytes()[2..]),
            // also, of a scale, what packing makes 0: 2^-60
            NumberKind::F32 if !t.is_float() && rng.below(6) == 0 => {
                block[..4].copy_from_slice(&8.673_617e-19f32.to_le_bytes());
            }
            NumberKind::F32 => block[..4].copy_from_slice(&rng.float().to_le_bytes()),
            // also both sides of 2^-50, below which a scale counts as 0, as large as the largest f16, and larger than what can be stored
            NumberKind::E8M0 if rng.below(3) == 0 => block[0] = rng.pick(&[0, 1, 77, 78, 144, 252]),
            NumberKind::E8M0 => block[0] = 110 + rng.below(30) as u8,
            NumberKind::TopNibbles => {
                let d = half(rng);
                for (i, b) in block[..8].as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    b[1] = (b[1] & 15) | ((d >> (4 * i)) as u8) << 4;
                }
            }
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// The one range of the first `n` words.
fn all(n: usize) -> Vec<Range<usize>> {
    std::iter::once(0..n).collect()
}

fn input(name: &'static str, words: Vec<u32>) -> CaseBuffer {
    CaseBuffer { name, words, access: Access::Input }
}

fn read(name: &'static str, words: Vec<u32>) -> CaseBuffer {
    CaseBuffer { name, words, access: Access::Read }
}

/// `live` sentinels and the guard.
fn written(name: &'static str, live: usize, ranges: Vec<Range<usize>>) -> CaseBuffer {
    CaseBuffer { name, words: vec![SENTINEL; live + GUARD_WORDS], access: Access::Write(ranges) }
}

/// Values that the operation replaces, and the guard.
fn replaced(name: &'static str, mut words: Vec<u32>, ranges: Vec<Range<usize>>) -> CaseBuffer {
    words.resize(words.len() + GUARD_WORDS, SENTINEL);
    CaseBuffer { name, words, access: Access::Write(ranges) }
}

/// `n` rows of activations for weights of W8A8, of every other kind with a fixed scale; its codes reach -128.
fn act_rows(x: Fill, n: usize, k: usize) -> Vec<u32> {
    let fixed = matches!(x, Fill::Full | Fill::Extremes | Fill::Ones | Fill::Ties(_) | Fill::Prime | Fill::Poison);
    let (limit, scale, offset) = if fixed { (0, 0.007, -5.0) } else { (127, 0.0, 0.0) };
    let mut act = vec![0; n * act_words(k, 1)];
    let p = RowQuantizeParams { n_tokens: n as u32, k: k as u32, limit, scale, offset };
    row_quantize(&p, &x.make(n * k), &mut act);
    act
}

/// Quantised activations of `n` tokens.
fn act_blocks(x: Fill, n: usize, k: usize, digits: u32) -> Vec<u32> {
    let mut blocks = vec![0; n * act_words(k, digits as usize)];
    act_quantize(&ActQuantizeParams { n_tokens: n as u32, k: k as u32, digits }, &x.make(n * k), &mut blocks);
    blocks
}

/// Cosines and sines, quarter turns among the angles: exact 0 and ±1.
fn rope_table(angles: usize) -> Vec<u32> {
    let one = |i: usize| match i % 5 {
        0 => [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][i / 5 % 4],
        _ => (libm::cos(i as f64 * 0.37) as f32, libm::sin(i as f64 * 0.37) as f32),
    };
    (0..angles).map(one).flat_map(|(c, s)| [c.to_bits(), s.to_bits()]).collect()
}

/// What earlier pages left: maxima above, near and far below this page's.
fn states(seed: u64, rows: usize, hd: usize) -> Vec<f32> {
    let mut rng = Rng(seed);
    let mut state = Vec::new();
    for row in 0..rows {
        state.push([3.0, -200.0, 0.25, 400.0, -1.5][row % 5]);
        state.push(1.0 + rng.below(63) as f32 * 0.9);
        state.extend((0..hd).map(|_| rng.float()));
    }
    state
}

fn tokens(n_tokens: usize) -> Step {
    Step { n_tokens, ..Step::default() }
}

fn case(name: String, op: Op, args: Args, step: Step, buffers: Vec<CaseBuffer>) -> Case {
    Case { name: format!("{} {name}", op.title()), op, args, step, rows: Rows::Tokens, buffers }
}

// ---- operations ----

/// Types whose shaders are one text but for how codes are unpacked: fewer cases of each.
fn has_few(t: BlockType) -> bool {
    use BlockType::*;
    let iq = matches!(t, IQ4_NL | IQ4_XS | IQ3_S | IQ3_XXS | IQ2_S | IQ2_XS | IQ2_XXS | IQ1_S | IQ1_M);
    iq || matches!(t, Q2_K | Q3_K | TQ2_0 | MXFP4 | NVFP4 | Q1_0 | Q2_0)
}

fn embed(t: BlockType) -> Vec<Case> {
    let dims: &[usize] = match t.elems() {
        32 if has_few(t) => &[32, 288],
        64 => &[64, 320],
        128 if has_few(t) => &[384],
        _ if has_few(t) => &[512],
        1 => &[1, 31, 255, 256, 257],
        32 => &[32, 96, 128, 160, 288],
        128 => &[128, 384],
        _ => &[256, 512, 768],
    };
    let mut list = Vec::new();
    let mut one = |dim: usize, row0: u32, rows: u32, ids: &[u32], w: Weights| {
        let p = EmbedParams { n_tokens: 0, dim: dim as u32, row0, rows };
        let ranges =
            (0..ids.len()).filter(|&i| (row0..row0 + rows).contains(&ids[i])).map(|i| i * dim..(i + 1) * dim).collect();
        list.push(case(
            format!("dim={dim} rows={row0}..{} ids={ids:?} w={}", row0 + rows, w.name()),
            Op::Embed(t),
            Args::Embed(p),
            tokens(ids.len()),
            vec![
                input("ids", ids.to_vec()),
                read("w", w.make(t, rows as usize, dim)),
                written("x", ids.len() * dim, ranges),
            ],
        ));
    };
    for &dim in dims {
        one(dim, 0, 33, &[0, 32, 31], Weights::Raw(dim as u64));
    }
    let dim = dims[dims.len() - 1];
    one(dim, 0, 1, &[0], Weights::Encoded(Fill::Prime));
    // ids below, first, last, beyond, and far beyond the part
    one(dim, 100, 70, &[99, 100, 169, 170, u32::MAX], Weights::Raw(0xe1));
    one(dim, 100, 70, &[0, 170], Weights::Encoded(Fill::Random(0xe2)));
    let filled = [
        Weights::Byte(0xff),
        Weights::Encoded(Fill::Tiny),
        Weights::Encoded(Fill::Zeros),
        Weights::Encoded(Fill::Outliers),
        Weights::Byte(0x80),
        Weights::Byte(0x7f),
    ];
    for w in &filled[..if has_few(t) { 2 } else { 6 }] {
        one(dim, 0, 32, &[5, 5, 31], *w);
    }
    if t == BlockType::Q8K128 {
        one(512, 0, 33, &[32, 1], Weights::Q8K);
    }
    if matches!(t, BlockType::F32 | BlockType::BF16) {
        one(dim, 0, 32, &[0, 1, 31], Weights::Huge);
    }
    list
}

/// Where a linear's rows go.
#[derive(Clone, Copy)]
enum Y {
    /// nothing else is in y
    Whole,
    /// other rows lie before and after
    Part,
    /// added to what is there
    Added,
    /// both
    PartAdded,
}

impl Y {
    fn name(self) -> &'static str {
        match self {
            Y::Whole => "",
            Y::Part => " part",
            Y::Added => " residual",
            Y::PartAdded => " part residual",
        }
    }
}

fn matvec(t: BlockType) -> Vec<Case> {
    let float = t.elems() == 1;
    // one group, a tail, at most 8 groups, 9 groups (segments of two), 18 groups (segments of three, two empty), 66 groups
    // (segments of nine, the last of three: three rounds of `parallel`)
    let few = has_few(t);
    let ks: &[usize] = match t.elems() {
        32 if few => &[32, 96, 1056],
        64 => &[64, 192, 1088],
        128 if few => &[384, 1152],
        _ if few => &[256, 1280],
        1 => &[1, 31, 127, 128, 129, 301, 1024, 1025, 2304],
        32 => &[32, 96, 128, 160, 256, 1024, 1056, 2304, 8448],
        128 => &[128, 384, 1024, 1152, 2304, 8448],
        _ => &[256, 512, 1024, 1280, 2304, 8448],
    };
    let k = if float { 301 } else { 512 };
    let mut list = Vec::new();
    for digits in if float || t.meets_rows() { 1..=1 } else { 1..=2 } {
        // y of a split part: other rows before and after it
        let mut one = |rows: usize, k: usize, n: usize, how: Y, w: Weights, x: Fill| {
            let split = matches!(how, Y::Part | Y::PartAdded);
            let residual = matches!(how, Y::Added | Y::PartAdded);
            let (stride, offset) = if split { (rows + 12, 5) } else { (rows, 0) };
            let p = LinearParams {
                n_tokens: 0,
                k: k as u32,
                rows: rows as u32,
                digits,
                y_stride: stride as u32,
                y_offset: offset as u32,
                residual: residual.into(),
            };
            let act = match t {
                _ if float => bits(&x.make(n * k)),
                _ if t.meets_rows() => act_rows(x, n, k),
                _ => act_blocks(x, n, k, digits),
            };
            let ranges = (0..n).map(|i| i * stride + offset..i * stride + offset + rows).collect();
            let part = how.name();
            let before = if matches!(x, Fill::Wild) { Fill::Poison } else { Fill::Random(k as u64) };
            let y = if residual {
                replaced("y", bits(&before.make(n * stride)), ranges)
            } else {
                written("y", n * stride, ranges)
            };
            list.push(case(
                format!("rows={rows}{part} k={k} tokens={n} digits={digits} w={} x={}", w.name(), x.name()),
                Op::Matvec(t),
                Args::Linear(p),
                tokens(n),
                vec![read("w", w.make(t, rows, k)), read(if float { "x" } else { "act" }, act), y],
            ));
        };
        for &k in ks {
            one(33, k, 2, Y::Whole, Weights::Raw(k as u64), Fill::Random(k as u64 + 1));
        }
        let heights: &[usize] = if few { &[1, 70] } else { &[1, 31, 32, 33, 70] };
        for &rows in heights {
            one(rows, k, 1, Y::Whole, Weights::Encoded(Fill::Prime), Fill::Random(rows as u64));
        }
        // more tokens than a workgroup of the tiled kernels takes
        one(33, k, 35, Y::Part, Weights::Raw(0x59), Fill::Random(0x5a));
        one(33, k, 5, Y::PartAdded, Weights::Raw(0x57), Fill::Random(0x58));
        // the largest sums: all codes at an end, all activations at an end
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            one(32, k, 2, Y::Whole, Weights::Byte(byte), Fill::Ones);
            if t.meets_rows() {
                // codes of -128 on both sides
                one(33, k, 6, Y::Whole, Weights::Byte(byte), Fill::Full);
            }
        }
        let inputs = [Fill::Full, Fill::Tiny, Fill::Zeros, Fill::Extremes, Fill::Ties(digits)];
        for &x in &inputs[..if few { 2 } else { 5 }] {
            one(32, k, 2, Y::Whole, Weights::Raw(0x54), x);
        }
        if few {
            one(33, k, 35, Y::Added, Weights::Raw(0x5b), Fill::Poison);
            one(1 + digits as usize * 50, 3 * t.elems(), 3, Y::Whole, Weights::Raw(0x1001), Fill::Random(0x1002));
            continue;
        }
        one(70, k, 5, Y::Whole, Weights::Encoded(Fill::Random(0x51)), Fill::Prime);
        one(33, k, 5, Y::Part, Weights::Encoded(Fill::Random(0x52)), Fill::Outliers);
        one(1, k, 2, Y::Part, Weights::Raw(0x53), Fill::Prime);
        one(70, k, 1, Y::Added, Weights::Encoded(Fill::Prime), Fill::Random(0x56));
        for x in [Fill::Wild, Fill::Poison, Fill::Large] {
            one(40, k, 3, Y::Whole, Weights::Encoded(Fill::Prime), x);
            one(40, k, 1, Y::Added, Weights::Encoded(Fill::Prime), x);
            // in every frame, of many tokens too
            one(33, k, 35, Y::Added, Weights::Raw(0x5b), x);
        }
        if matches!(t, BlockType::F32 | BlockType::BF16) {
            one(33, k, 2, Y::Whole, Weights::Huge, Fill::Prime);
            one(33, k, 18, Y::Added, Weights::Huge, Fill::Large);
        }
        for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny] {
            one(31, k, 2, Y::Whole, Weights::Encoded(fill), Fill::Random(0x55));
        }
        if t == BlockType::Q8K128 {
            one(33, 512, 2, Y::Whole, Weights::Q8K, Fill::Prime);
        }
        for seed in [0x1001, 0x1002, 0x1003] {
            let mut rng = Rng(seed);
            let (rows, n) = (1 + rng.below(99), 1 + rng.below(4));
            let k = t.elems() * (1 + rng.below(if float { 1500 } else { 1500 / t.elems() }));
            one(
                rows,
                k,
                n,
                if rng.below(2) == 1 { Y::Part } else { Y::Whole },
                Weights::Raw(seed),
                Fill::Random(seed + 1),
            );
        }
    }
    list
}

fn rms_norm() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, eps: f32, x: Fill, w: Fill| {
        let p = RmsNormParams { n_tokens: 0, dim: dim as u32, inv_n: (1.0 / dim as f64) as f32, eps };
        list.push(case(
            format!("dim={dim} tokens={n} eps={eps:e} x={} w={}", x.name(), w.name()),
            Op::RmsNorm,
            Args::RmsNorm(p),
            tokens(n),
            vec![read("x", bits(&x.make(n * dim))), read("w", bits(&w.make(dim))), written("y", n * dim, all(n * dim))],
        ));
    };
    for dim in [1, 2, 64, 255, 256, 257, 511, 513, 2048] {
        one(dim, 1, 1e-5, Fill::Prime, Fill::Random(dim as u64));
        one(dim, 3, 1e-6, Fill::Random(dim as u64 + 1), Fill::Prime);
    }
    for fill in [Fill::Zeros, Fill::Full, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Sweep] {
        one(300, 2, 1e-5, fill, Fill::Prime);
        one(300, 2, 1e-6, Fill::Prime, fill);
    }
    for fill in [Fill::Wild, Fill::Poison, Fill::Large] {
        one(300, 3, 1e-5, fill, Fill::Prime);
    }
    // weights are finite, of any magnitude
    one(300, 2, 1e-5, Fill::Prime, Fill::Large);
    one(300, 2, 1e-5, Fill::Prime, Fill::Huge);
    one(300, 2, 0.0, Fill::Zeros, Fill::Prime);
    list
}

fn quantise() -> Vec<Case> {
    let mut list = Vec::new();
    for digits in [1, 2] {
        let mut one = |k: usize, n: usize, x: &str, values: Vec<f32>| {
            let live = n * act_words(k, digits as usize);
            list.push(case(
                format!("k={k} tokens={n} digits={digits} x={x}"),
                Op::ActQuantize,
                Args::ActQuantize(ActQuantizeParams { n_tokens: 0, k: k as u32, digits }),
                tokens(n),
                vec![read("x", bits(&values)), written("act", live, all(live))],
            ));
        };
        for k in [1, 4, 31, 127, 128, 129, 300] {
            for (n, fill) in [(1, Fill::Prime), (3, Fill::Random(k as u64))] {
                one(k, n, &fill.name(), fill.make(n * k));
            }
        }
        for fill in [
            Fill::Zeros,
            Fill::Full,
            Fill::Extremes,
            Fill::Tiny,
            Fill::Ties(1),
            Fill::Ties(2),
            Fill::Outliers,
            Fill::Sweep,
            Fill::Wild,
            Fill::Poison,
            Fill::Large,
        ] {
            one(384, 2, &fill.name(), fill.make(768));
        }
        for top in [f32::MAX, 1.0e38, -3.0e38, SCALE_MIN, 16256.0 * SCALE_MIN] {
            let mut values = Fill::Prime.make(130);
            values[128..].fill(canon(top * 0.5));
            values[77] = top;
            one(130, 1, &format!("one element {top:e}"), values);
        }
    }
    list
}

fn quantise_rows() -> Vec<Case> {
    let mut list = Vec::new();
    for (limit, scale, offset) in
        [(127, 0.0, 0.0), (7, 0.0, 0.0), (0, 0.013, -3.0), (0, SCALE_MIN, 0.5), (0, 1.0e9, 32768.0)]
    {
        let mut one = |k: usize, n: usize, x: &str, values: Vec<f32>| {
            let live = n * act_words(k, 1);
            list.push(case(
                format!("k={k} tokens={n} limit={limit} scale={scale:e} offset={offset} x={x}"),
                Op::RowQuantize,
                Args::RowQuantize(RowQuantizeParams { n_tokens: 0, k: k as u32, limit, scale, offset }),
                tokens(n),
                vec![read("x", bits(&values)), written("act", live, all(live))],
            ));
        };
        for k in [1, 4, 31, 128, 129, 1000, 1024, 1100] {
            for (n, fill) in [(1, Fill::Prime), (3, Fill::Random(k as u64))] {
                one(k, n, &fill.name(), fill.make(n * k));
            }
        }
        for fill in [
            Fill::Zeros,
            Fill::Full,
            Fill::Extremes,
            Fill::Tiny,
            Fill::Ties(1),
            Fill::Outliers,
            Fill::Sweep,
            Fill::Wild,
            Fill::Poison,
            Fill::Large,
        ] {
            one(384, 2, &fill.name(), fill.make(768));
        }
        for top in [f32::MAX, -3.0e38, SCALE_MIN, 127.0 * SCALE_MIN, 6.4999995, -6.5] {
            let mut values = Fill::Prime.make(260);
            values[77] = top;
            one(130, 2, &format!("one element {top:e}"), values);
        }
    }
    list
}

fn encode(t: BlockType) -> Vec<Case> {
    let Some((elems, words)) = unit(t) else { return vec![] };
    let mut list = Vec::new();
    let mut one = |n: usize, x: &str, values: Vec<f32>| {
        list.push(case(
            format!("units={n} x={x}"),
            Op::Encode(t),
            Args::Encode(EncodeParams { n_tokens: 0 }),
            tokens(n),
            vec![read("x", bits(&values)), written("blocks", n * words, all(n * words))],
        ));
    };
    for (n, fill) in [(1, Fill::Prime), (63, Fill::Random(1)), (64, Fill::Random(2)), (65, Fill::Random(3))] {
        one(n, &fill.name(), fill.make(n * elems));
    }
    for fill in [Fill::Zeros, Fill::Full, Fill::Extremes, Fill::Tiny, Fill::Ties(1), Fill::Outliers, Fill::Sweep] {
        one(9, &fill.name(), fill.make(9 * elems));
    }
    // around the magnitudes that are flagged, the sign of the peak, and equal magnitudes of both signs
    for top in [7.0e-31f32, 8.0e-31, -2.6e5, 2.7e5, -1.0, 127.0] {
        let mut values = Fill::Prime.make(2 * elems);
        let scale = top.abs() / values.iter().fold(0f32, |m, v| m.max(v.abs()));
        values.iter_mut().for_each(|v| *v *= scale);
        (values[5], values[29]) = (top, -top);
        one(2, &format!("peak {top:e}"), values);
    }
    list
}

fn rope() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |heads: usize, hd: usize, n_rot: usize, half_split: u32, n: usize, x: Fill| {
        let p = RopeParams { n_tokens: 0, heads: heads as u32, head_dim: hd as u32, n_rot: n_rot as u32, half_split };
        let ranges = (0..n * heads).map(|r| r * hd..r * hd + n_rot).collect();
        list.push(case(
            format!("heads={heads} head_dim={hd} n_rot={n_rot} half_split={half_split} tokens={n} x={}", x.name()),
            Op::Rope,
            Args::Rope(p),
            tokens(n),
            vec![input("table", rope_table(n * n_rot / 2)), replaced("x", bits(&x.make(n * heads * hd)), ranges)],
        ));
    };
    for half_split in [0, 1] {
        for (heads, hd, n_rot) in
            [(1, 2, 2), (3, 40, 40), (4, 64, 64), (2, 64, 32), (5, 96, 24), (1, 256, 256), (3, 128, 126)]
        {
            one(heads, hd, n_rot, half_split, 1, Fill::Prime);
            one(heads, hd, n_rot, half_split, 3, Fill::Random((heads * hd) as u64));
        }
        for x in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Wild, Fill::Poison, Fill::Large] {
            one(3, 64, 48, half_split, 2, x);
        }
    }
    list
}

/// `swiglu` and `geglu`.
fn glu(op: Op) -> Vec<Case> {
    [0, 1].into_iter().filter(|erf| *erf == 0 || op == Op::Geglu).flat_map(|erf| glu_of(op, erf)).collect()
}

fn glu_of(op: Op, erf: u32) -> Vec<Case> {
    let form = if erf == 1 { " erf" } else { "" };
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, gate: Fill, up: Fill| {
        let args = match op {
            Op::Geglu => Args::Geglu(GegluParams { n_tokens: 0, dim: dim as u32, erf }),
            _ => Args::Swiglu(SwigluParams { n_tokens: 0, dim: dim as u32 }),
        };
        list.push(case(
            format!("dim={dim} tokens={n}{form} gate={} up={}", gate.name(), up.name()),
            op,
            args,
            tokens(n),
            vec![
                read("gate", bits(&gate.make(n * dim))),
                read("up", bits(&up.make(n * dim))),
                written("y", n * dim, all(n * dim)),
            ],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, Fill::Sweep, Fill::Prime);
        one(dim, 3, Fill::Random(dim as u64), Fill::Random(dim as u64 + 1));
    }
    one(2003, 1, Fill::Sweep, Fill::Full);
    one(2003, 1, Fill::Sweep, Fill::Large);
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Wild, Fill::Poison, Fill::Large] {
        one(300, 2, fill, Fill::Prime);
        one(300, 2, Fill::Prime, fill);
    }
    list
}

fn softcap() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, cap: f32, x: Fill| {
        let args = SoftcapParams { n_tokens: 0, dim: dim as u32, cap, inv_cap: softcap::inverse(cap) };
        list.push(case(
            format!("dim={dim} tokens={n} cap={cap:e} x={}", x.name()),
            Op::Softcap,
            Args::Softcap(args),
            tokens(n),
            vec![replaced("x", bits(&x.make(n * dim)), all(n * dim))],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, 30.0, Fill::Prime);
        one(dim, 3, 50.0, Fill::Random(dim as u64));
    }
    one(2003, 1, 30.0, Fill::Sweep);
    one(2003, 1, 1.0, Fill::Sweep);
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Wild, Fill::Poison, Fill::Large] {
        for cap in [1e-6, 0.7, 30.0, 1e6] {
            one(300, 2, cap, fill);
        }
    }
    list
}

fn scale() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, scale: f32, x: Fill| {
        list.push(case(
            format!("dim={dim} tokens={n} scale={scale:e} x={}", x.name()),
            Op::Scale,
            Args::Scale(ScaleParams { n_tokens: 0, dim: dim as u32, scale }),
            tokens(n),
            vec![replaced("x", bits(&x.make(n * dim)), all(n * dim))],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, 50.596443, Fill::Prime);
        one(dim, 3, 0.22, Fill::Random(dim as u64));
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Wild, Fill::Poison, Fill::Large] {
        for scale in [1e-6, -0.7, 1.0, 1e6] {
            one(300, 2, scale, fill);
        }
    }
    list
}

fn add() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, y: &str, x: Fill, f: &dyn Fn(usize, f32) -> f32| {
        let x_values = x.make(n * dim);
        let y_values: Vec<f32> = x_values.iter().enumerate().map(|(i, &x)| canon(f(i, x))).collect();
        list.push(case(
            format!("dim={dim} tokens={n} y={y} x={}", x.name()),
            Op::Add,
            Args::Add(AddParams { n_tokens: 0, dim: dim as u32 }),
            tokens(n),
            vec![read("y", bits(&y_values)), replaced("x", bits(&x_values), all(n * dim))],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, "prime", Fill::Random(dim as u64), &|i, _| Fill::Prime.make(251)[i % 251]);
        one(dim, 3, "-1.5x", Fill::Prime, &|_, x| -1.5 * x);
    }
    for fill in [Fill::Random(9), Fill::Extremes, Fill::Tiny, Fill::Zeros, Fill::Wild, Fill::Poison, Fill::Large] {
        one(300, 2, "-x", fill, &|_, x| -x);
        // sums of one unit in the last place: many are below what can be stored
        one(300, 2, "-x and a unit", fill, &|_, x| if x == 0.0 { x } else { -f32::from_bits(x.to_bits() + 1) });
    }
    list
}

fn add_bias() -> Vec<Case> {
    let mut list = Vec::new();
    let mut one = |dim: usize, n: usize, bias: Fill, y: Fill| {
        list.push(case(
            format!("dim={dim} tokens={n} b={} y={}", bias.name(), y.name()),
            Op::AddBias,
            Args::AddBias(AddBiasParams { n_tokens: 0, dim: dim as u32 }),
            tokens(n),
            vec![read("b", bits(&bias.make(dim))), replaced("y", bits(&y.make(n * dim)), all(n * dim))],
        ));
    };
    for dim in [1, 255, 256, 257, 1000] {
        one(dim, 1, Fill::Prime, Fill::Random(dim as u64));
        one(dim, 3, Fill::Random(dim as u64 + 1), Fill::Prime);
    }
    for fill in [Fill::Zeros, Fill::Extremes, Fill::Tiny, Fill::Outliers, Fill::Sweep, Fill::Huge] {
        one(300, 2, fill, Fill::Prime);
        one(300, 2, Fill::Prime, if matches!(fill, Fill::Huge) { Fill::Wild } else { fill });
    }
    one(300, 2, Fill::Huge, Fill::Large);
    one(300, 2, Fill::Prime, Fill::Poison);
    list
}

fn copy_columns() -> Vec<Case> {
    let mut list = Vec::new();
    // (columns, stride and first column of x, of y, rows): parts of heads, whole rows, over the ends of workgroups
    for (n, [x_stride, x_offset], [y_stride, y_offset], rows) in [
        (1, [1, 0], [1, 0], 1),
        (63, [64, 1], [63, 0], 3),
        (64, [192, 128], [576, 0], 5),
        (128, [192, 0], [128, 0], 17),
        (512, [512, 0], [576, 64], 3),
        (512, [576, 64], [512, 0], 4),
        (65, [70, 5], [200, 130], 70),
        (1, [9, 8], [3, 2], 300),
    ] {
        let p = CopyColumnsParams { n_tokens: 0, n, x_stride, x_offset, y_stride, y_offset };
        let [n, x_width, y_width, first] = [n, x_stride, y_stride, y_offset].map(|v| v as usize);
        let live = (0..rows).map(|row| row * y_width + first..row * y_width + first + n).collect();
        list.push(case(
            format!("n={n} x={x_stride}+{x_offset} y={y_stride}+{y_offset} rows={rows}"),
            Op::CopyColumns,
            Args::CopyColumns(p),
            tokens(rows),
            vec![read("x", bits(&Fill::Random(n as u64).make(rows * x_width))), written("y", rows * y_width, live)],
        ));
    }
    list
}

fn select_rows() -> Vec<Case> {
    let mut list = Vec::new();
    for (dim, n_tokens, out_first, n_out) in
        [(1, 1, 0, 1), (255, 5, 4, 1), (256, 5, 0, 5), (257, 5, 1, 3), (1000, 2, 1, 1), (64, 3, 0, 0)]
    {
        let mut c = case(
            format!("dim={dim} tokens={n_tokens} rows={out_first}..{}", out_first + n_out),
            Op::SelectRows,
            Args::SelectRows(SelectRowsParams { n_tokens: 0, dim: dim as u32, first: 0 }),
            Step { out_first, n_out, ..tokens(n_tokens) },
            vec![
                read("x", bits(&Fill::Random(dim as u64).make(n_tokens * dim))),
                written("y", n_out * dim, if n_out == 0 { vec![] } else { all(n_out * dim) }),
            ],
        );
        c.rows = Rows::Outputs;
        list.push(c);
    }
    list
}

fn probe() -> Vec<Case> {
    let one = |rows: usize| {
        let live = rows * float_probe::WORDS;
        case(
            format!("rows={rows}"),
            Op::FloatProbe,
            Args::FloatProbe(FloatProbeParams { n_tokens: 0 }),
            tokens(rows),
            vec![read("x", bits(&float_probe::inputs(rows))), written("out", live, all(live))],
        )
    };
    [1, 63, 64, 65, 1024].map(one).into()
}

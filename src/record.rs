//! A model's work as data: buffers, commands, and the trait of a device that runs them.
//!
//! Nothing here computes, reads files or knows a GPU interface. A [`Plan`] is made once by `models`, loaded once by a
//! device, and then run step by step; what changes between steps is the [`Step`] alone.

use crate::blocks::wide::{Packing, Wide};
use crate::blocks::{BlockType, pack};
use crate::ops::act_quantize::ActQuantizeParams;
use crate::ops::add::AddParams;
use crate::ops::add_bias::AddBiasParams;
use crate::ops::altup_add::AltupAddParams;
use crate::ops::altup_correct::AltupCorrectParams;
use crate::ops::altup_predict::AltupPredictParams;
use crate::ops::altup_rescale::AltupRescaleParams;
use crate::ops::attention::{AttentionParams, SCOPE_OWN};
use crate::ops::attention_quantize::AttentionQuantizeParams;
use crate::ops::attention_sinks::AttentionSinksParams;
use crate::ops::cache::{CacheType, CacheWriteParams};
use crate::ops::channel_quantize::ChannelQuantizeParams;
use crate::ops::channel_scale::ChannelScaleParams;
use crate::ops::conv_silu::ConvSiluParams;
use crate::ops::copy_columns::CopyColumnsParams;
use crate::ops::delta_rule::DeltaRuleParams;
use crate::ops::embed::EmbedParams;
use crate::ops::encode::{self, EncodeParams};
use crate::ops::expert_bias::ExpertBiasParams;
use crate::ops::expert_combine::ExpertCombineParams;
use crate::ops::expert_linear::ExpertLinearParams;
use crate::ops::expert_order::ExpertOrderParams;
use crate::ops::expert_scale::ExpertScaleParams;
use crate::ops::float_probe::FloatProbeParams;
use crate::ops::gate_up::{self, GateUpParams};
use crate::ops::gaussian_topk::GaussianTopkParams;
use crate::ops::gdn_gates::GdnGatesParams;
use crate::ops::geglu::GegluParams;
use crate::ops::gelu::GeluParams;
use crate::ops::head_norms::HeadNormsParams;
use crate::ops::layer_norm::LayerNormParams;
use crate::ops::linear::LinearParams;
use crate::ops::matvec_pair::{self, LinearPairParams};
use crate::ops::norm_quantize::NormQuantizeParams;
use crate::ops::params::{At, Fields, Params};
use crate::ops::places::{self, TABLES, TOKEN, Touches};
use crate::ops::rms_norm::RmsNormParams;
use crate::ops::rope::RopeParams;
use crate::ops::rope_cache_write::RopeCacheWriteParams;
use crate::ops::router::RouterParams;
use crate::ops::row_quantize::RowQuantizeParams;
use crate::ops::scale::ScaleParams;
use crate::ops::select_rows::SelectRowsParams;
use crate::ops::short_conv::ShortConvParams;
use crate::ops::sigmoid_gate::SigmoidGateParams;
use crate::ops::softcap::SoftcapParams;
use crate::ops::ssm_discretize::SsmDiscretizeParams;
use crate::ops::ssm_scan::SsmScanParams;
use crate::ops::swiglu::SwigluParams;
use crate::ops::swiglu_oai::SwigluOaiParams;
use crate::ops::swiglu_quantize::SwigluQuantizeParams;
use crate::ops::top_k::{ABSENT, K_MAX, PAIR, TopKParams};
use crate::ops::types::twins;
use crate::stop::Stop;
use futures::future::LocalBoxFuture;
use std::ops::Range;

/// Index of a buffer in a plan.
pub type BufId = usize;

/// What is loaded of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// index of the tensor in its container
    pub tensor: usize,
    /// what of it
    pub part: Part,
}

/// Elements of a vector, or rows of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// as f32
    Vector {
        /// first element
        first: usize,
        /// elements
        len: usize,
        /// what becomes of each
        change: Change,
    },
    /// packed
    Rows {
        /// their type in the file
        t: BlockType,
        /// the type they are packed as
        packed: BlockType,
        /// elements of a row
        k: usize,
        /// first row
        row0: usize,
        /// number of rows
        rows: usize,
    },
}

/// What becomes of the elements of a vector as it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// they stay
    None,
    /// 1 is added: norms of which a file keeps what they differ from 1 by
    PlusOne,
    /// -e^x: of what fades a file keeps the logarithm
    Fading,
}

impl Part {
    /// Words in all, and words that stay together: those of a block of 32 rows, or of the part of a vector.
    pub fn words(&self) -> (usize, usize) {
        match *self {
            Part::Vector { len, .. } => (len, len),
            Part::Rows { packed, k, rows, .. } => {
                let block = pack::words_per_row(packed, k) * pack::ROW_BLOCK;
                (rows.div_ceil(pack::ROW_BLOCK) * block, block)
            }
        }
    }
}

/// Where a buffer's words come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Loaded once: packed rows of tensors of one row length, or vectors, one after the other; every piece of rows but the
    /// last has whole blocks of 32. More than one are made by `fuse`.
    Weight(Vec<Piece>),
    /// Loaded once: this number everywhere.
    Constant(f32),
    /// Loaded once: 0, 1, … up to one less than this number, and so on again.
    Counting(u32),
    /// Loaded once: words of whoever loads the plan, under a number of its own.
    Given(usize),
    /// Written by the host before each step (token ids, RoPE table).
    Input,
    /// Keys and values; lives as long as the session.
    Cache,
    /// An f16 copy of the keys or values of recent positions; lives as long as the session.
    Recent,
    /// What a recurrent layer remembers of each sequence, in slots (`ops::strands`); lives as long as the session.
    State,
    /// Intermediate results.
    Scratch,
}

impl Role {
    /// Whether a [`WeightSource`] fills the buffer.
    pub fn is_loaded(&self) -> bool {
        matches!(self, Role::Weight(_) | Role::Constant(_) | Role::Counting(_) | Role::Given(_))
    }

    /// What a buffer of weights holds; nothing for any other.
    pub fn pieces(&self) -> &[Piece] {
        match self {
            Role::Weight(pieces) => pieces,
            _ => &[],
        }
    }

    /// Rows of the matrices in a buffer of weights, all together.
    pub fn rows(&self) -> usize {
        let of = |p: &Piece| if let Part::Rows { rows, .. } = p.part { rows } else { 0 };
        self.pieces().iter().map(of).sum()
    }
}

/// One buffer of 32-bit words.
#[derive(Clone, Debug, PartialEq)]
pub struct BufDecl {
    /// for messages
    pub name: String,
    /// length in words
    pub words: usize,
    /// where its words come from
    pub role: Role,
}

/// A type that an operation is made for.
trait TypeArgument: Copy {
    /// what the shader's `override` constant holds; `None` where the type has shaders of its own
    fn constant(self) -> Option<f64>;
    /// its name where titles show it
    fn shown(self) -> Option<&'static str>;
}

impl TypeArgument for BlockType {
    fn constant(self) -> Option<f64> {
        None
    }

    fn shown(self) -> Option<&'static str> {
        None
    }
}

impl TypeArgument for CacheType {
    fn constant(self) -> Option<f64> {
        Some(self as u32 as f64)
    }

    fn shown(self) -> Option<&'static str> {
        Some(self.name())
    }
}

/// Declares [`Op`] and [`Job`]: of each operation its types, its parameters ([`Args`]) and the stem of its shader and twin. A
/// cache type named `k` is the shader's `override k_type`.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $(($($t:ident: $type:ty),*))? => $args:ident($params:ident), $stem:expr;)*) => {
        /// An operation: which shader, which twin.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Op {
            $($(#[$doc])* $variant $(($($type),*))?,)*
        }

        impl Op {
            /// The stem of its shader and twin.
            ///
            /// # Panics
            /// When there is no kernel of these types.
            #[allow(unused_variables, reason = "not every stem depends on the operation's types")]
            pub fn stem(self) -> &'static str {
                match self {
                    $(Op::$variant $(($($t),*))? => $stem,)*
                }
            }

            /// The operation with its parameters; `None` where they are another's.
            pub fn with(self, args: &Args) -> Option<Job<'_>> {
                match (self, args) {
                    $((Op::$variant $(($($t),*))?, Args::$args(p)) => Some(Job::$variant($($($t,)*)? p)),)*
                    _ => None,
                }
            }

            /// The `override` constant and the shown name of each of its types.
            fn types(self) -> Vec<(&'static str, Option<f64>, Option<&'static str>)> {
                match self {
                    $(Op::$variant $(($($t),*))? => {
                        vec![$($((concat!(stringify!($t), "_type"), $t.constant(), $t.shown())),*)?]
                    })*
                }
            }
        }

        /// An operation with its parameters, for whoever runs it.
        #[derive(Clone, Copy, Debug)]
        pub enum Job<'a> {
            $($(#[$doc])* $variant($($($type,)*)? &'a $params),)*
        }
    };
}

operations! {
    /// embedding lookup
    Embed(t: BlockType) => Embed(EmbedParams), twins(t).stems.embed;
    /// quantised or float linear
    Matvec(t: BlockType) => Linear(LinearParams), twins(t).stems.matvec;
    /// RMS norm
    RmsNorm => RmsNorm(RmsNormParams), "rms_norm";
    /// `rms_norm` of the heads of queries and keys that lie before the values of their token
    HeadNorms => HeadNorms(HeadNormsParams), "head_norms";
    /// activations to Q8K128 blocks
    ActQuantize => ActQuantize(ActQuantizeParams), "act_quantize";
    /// activations to blocks with one scale a row
    RowQuantize => RowQuantize(RowQuantizeParams), "row_quantize";
    /// rotary embedding
    Rope => Rope(RopeParams), "rope";
    /// keys into the cache
    CacheWriteK(cache: CacheType) => CacheWrite(CacheWriteParams), "cache_write_k";
    /// values into the cache
    CacheWriteV(cache: CacheType) => CacheWrite(CacheWriteParams), "cache_write_v";
    /// attention over one cache page (key type, value type)
    Attention(k: CacheType, v: CacheType) => Attention(AttentionParams), "attention";
    /// `attention`, then `act_quantize`
    AttentionQuantize(k: CacheType, v: CacheType) => AttentionQuantize(AttentionQuantizeParams), "attention_quantize";
    /// what attention starts from in a layer with sinks
    AttentionSinks => AttentionSinks(AttentionSinksParams), "attention_sinks";
    /// silu(gate) · up
    Swiglu => Swiglu(SwigluParams), "swiglu";
    /// gelu(gate) · up
    Geglu => Geglu(GegluParams), "geglu";
    /// gelu of what has no gate
    Gelu => Gelu(GeluParams), "gelu";
    /// layer norm
    LayerNorm => LayerNorm(LayerNormParams), "layer_norm";
    /// every element times one number
    Scale => Scale(ScaleParams), "scale";
    /// softcap of every element
    Softcap => Softcap(SoftcapParams), "softcap";
    /// residual add
    Add => Add(AddParams), "add";
    /// bias of a linear
    AddBias => AddBias(AddBiasParams), "add_bias";
    /// keys or values to the integers of a c8 cache
    ChannelQuantize => ChannelQuantize(ChannelQuantizeParams), "channel_quantize";
    /// queries of a c8 cache, or what attention makes of its values, times its scales
    ChannelScale => ChannelScale(ChannelScaleParams), "channel_scale";
    /// columns of rows to those of others
    CopyColumns => CopyColumns(CopyColumnsParams), "copy_columns";
    /// rows whose logits are wanted
    SelectRows => SelectRows(SelectRowsParams), "select_rows";
    /// the best logits of each row
    TopK => TopK(TopKParams), "top_k";
    /// f32 rows to blocks
    Encode(t: BlockType) => Encode(EncodeParams), encode::stem(t).unwrap_or_else(|| panic!("{} has no encoder", t.name()));
    /// the shapes a device must get right to be called exact
    FloatProbe => FloatProbe(FloatProbeParams), "float_probe";
    /// `rms_norm`, then `act_quantize`
    NormQuantize => NormQuantize(NormQuantizeParams), "norm_quantize";
    /// `swiglu`, then `act_quantize`
    SwigluQuantize => SwigluQuantize(SwigluQuantizeParams), "swiglu_quantize";
    /// `rope` of queries and keys, then `cache_write_k` and `cache_write_v` (key type, value type)
    RopeCacheWrite(k: CacheType, v: CacheType) => RopeCacheWrite(RopeCacheWriteParams), "rope_cache_write";
    /// the same with `channel_quantize` and `channel_scale` between (key type, value type, of which one or both are c8)
    RopeChannelCacheWrite(k: CacheType, v: CacheType) => RopeCacheWrite(RopeCacheWriteParams), "rope_channel_cache_write";
    /// two `matvec` with the same activations: rows of the first type, then rows of the second
    MatvecPair(a: BlockType, b: BlockType) => LinearPair(LinearPairParams), matvec_pair::stem(a, b)
        .unwrap_or_else(|| panic!("there is no kernel for rows of {} and {}", a.name(), b.name()));
    /// `matvec` of gate and up rows, then `swiglu_quantize`
    GateUp(t: BlockType) => GateUp(GateUpParams), gate_up::stem(t).unwrap_or_else(|| panic!("{} has no gate_up kernel", t.name()));
    /// experts of each token, and their weights
    Router => Router(RouterParams), "router";
    /// (token, slot) pairs by their experts
    ExpertOrder => ExpertOrder(ExpertOrderParams), "expert_order";
    /// `matvec` with the matrix of the expert that a slot has chosen
    ExpertMatvec(t: BlockType) => ExpertLinear(ExpertLinearParams), twins(t).stems.expert;
    /// bias of such a linear
    ExpertBias => ExpertBias(ExpertBiasParams), "expert_bias";
    /// scale of the matrix of such a linear
    ExpertScale => ExpertScale(ExpertScaleParams), "expert_scale";
    /// the experts' results times their weights, added up
    ExpertCombine => ExpertCombine(ExpertCombineParams), "expert_combine";
    /// y · sigmoid(gate)
    SigmoidGate => SigmoidGate(SigmoidGateParams), "sigmoid_gate";
    /// clamped gate · sigmoid(1.702 gate) · (up + 1)
    SwigluOai => SwigluOai(SwigluOaiParams), "swiglu_oai";
    /// causal convolution of each channel over a sequence, then silu
    ConvSilu => ConvSilu(ConvSiluParams), "conv_silu";
    /// what a gated delta net takes, and what it keeps
    GdnGates => GdnGates(GdnGatesParams), "gdn_gates";
    /// the gated delta rule
    DeltaRule => DeltaRule(DeltaRuleParams), "delta_rule";
    /// causal convolution of each channel over a sequence between two gates
    ShortConv => ShortConv(ShortConvParams), "short_conv";
    /// step sizes of a state space layer, and what it keeps over them
    SsmDiscretize => SsmDiscretize(SsmDiscretizeParams), "ssm_discretize";
    /// the recurrence of a state space layer
    SsmScan => SsmScan(SsmScanParams), "ssm_scan";
    /// streams as large as the one that layers work on
    AltupRescale => AltupRescale(AltupRescaleParams), "altup_rescale";
    /// streams before a layer
    AltupPredict => AltupPredict(AltupPredictParams), "altup_predict";
    /// streams after a layer
    AltupCorrect => AltupCorrect(AltupCorrectParams), "altup_correct";
    /// a row added to each of the streams that no layer works on
    AltupAdd => AltupAdd(AltupAddParams), "altup_add";
    /// what is left of a row above a bound of its own
    GaussianTopk => GaussianTopk(GaussianTopkParams), "gaussian_topk";
}

impl Op {
    /// Values of the shader's `override` constants that its types have.
    pub fn constants(self) -> Vec<(&'static str, f64)> {
        self.types().into_iter().filter_map(|(name, value, _)| Some((name, value?))).collect()
    }

    /// Operation and types, for messages and labels: `attention[f16,q8_0]`.
    pub fn title(self) -> String {
        let shown: Vec<&str> = self.types().into_iter().filter_map(|(_, _, shown)| shown).collect();
        if shown.is_empty() { self.stem().to_string() } else { format!("{}[{}]", self.stem(), shown.join(",")) }
    }
}

/// Declares [`Args`] and what is asked of every kind of parameters, which the operations say beside their twins
/// ([`Params`]).
macro_rules! args {
    ($($(#[$doc:meta])* $variant:ident($params:ident),)*) => {
        /// The parameters of one command; the variant belongs to the operation.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Args {
            $($(#[$doc])* $variant($params),)*
        }

        impl Args {
            /// The parameters for a step; `None` where the command has nothing to do in it.
            fn at(self, step: &At<'_>) -> Option<Args> {
                match self {
                    $(Args::$variant(p) => p.at(step).map(Args::$variant),)*
                }
            }

            /// Workgroups of the dispatch; z is always 1 (the barrier's zero comes from it).
            pub fn groups(&self) -> [u32; 3] {
                let [x, y] = match self {
                    $(Args::$variant(p) => p.groups(),)*
                };
                [x, y, 1]
            }

            /// Writes the parameters as the shader's uniform struct (std140-like layout by `encase`); returns the bytes
            /// written.
            pub fn encode(&self, out: &mut [u8]) -> usize {
                fn put<T: Params>(p: &T, out: &mut [u8]) -> usize {
                    let mut buffer = encase::UniformBuffer::new(out);
                    buffer.write(p).expect("the arena slot holds the largest parameter struct");
                    p.size().get() as usize
                }
                match self {
                    $(Args::$variant(p) => put(p, out),)*
                }
            }

            /// Names and WGSL types of the fields, in order.
            pub fn fields(&self) -> &'static [(&'static str, &'static str)] {
                match self {
                    $(Args::$variant(_) => $params::FIELDS,)*
                }
            }

            /// Parameters of the same kind whose fields have these bits.
            pub fn with_words(&self, words: &[u32]) -> Args {
                match self {
                    $(Args::$variant(_) => Args::$variant($params::from_words(words)),)*
                }
            }

            /// Buffers the command writes: so many of its last bindings.
            fn n_outputs(&self) -> usize {
                match self {
                    $(Args::$variant(_) => $params::OUTPUTS,)*
                }
            }

            /// Which output holds f32 results, and how far apart they are; `None` where there are none.
            fn floats(&self) -> Option<(usize, usize)> {
                match self {
                    $(Args::$variant(_) => $params::FLOAT_STRIDE.map(|stride| ($params::FLOAT_OUTPUT, stride)),)*
                }
            }

            /// Whether the operation writes all of an output and reads none of it.
            fn replaces(&self, output: usize) -> bool {
                match self {
                    $(Args::$variant(p) => p.replaces(output),)*
                }
            }
        }
    };
}

args! {
    /// of `embed_*`
    Embed(EmbedParams),
    /// of `*_matvec`
    Linear(LinearParams),
    /// of `rms_norm`
    RmsNorm(RmsNormParams),
    /// of `head_norms`
    HeadNorms(HeadNormsParams),
    /// of `act_quantize`
    ActQuantize(ActQuantizeParams),
    /// of `rope`
    Rope(RopeParams),
    /// of `cache_write_*`
    CacheWrite(CacheWriteParams),
    /// of `attention`
    Attention(AttentionParams),
    /// of `attention_quantize`
    AttentionQuantize(AttentionQuantizeParams),
    /// of `attention_sinks`
    AttentionSinks(AttentionSinksParams),
    /// of `swiglu`
    Swiglu(SwigluParams),
    /// of `geglu`
    Geglu(GegluParams),
    /// of `gelu`
    Gelu(GeluParams),
    /// of `layer_norm`
    LayerNorm(LayerNormParams),
    /// of `scale`
    Scale(ScaleParams),
    /// of `softcap`
    Softcap(SoftcapParams),
    /// of `add`
    Add(AddParams),
    /// of `add_bias`
    AddBias(AddBiasParams),
    /// of `channel_quantize`
    ChannelQuantize(ChannelQuantizeParams),
    /// of `channel_scale`
    ChannelScale(ChannelScaleParams),
    /// of `row_quantize`
    RowQuantize(RowQuantizeParams),
    /// of `copy_columns`
    CopyColumns(CopyColumnsParams),
    /// of `select_rows`
    SelectRows(SelectRowsParams),
    /// of `top_k`
    TopK(TopKParams),
    /// of `*_encode`
    Encode(EncodeParams),
    /// of `float_probe`
    FloatProbe(FloatProbeParams),
    /// of `norm_quantize`
    NormQuantize(NormQuantizeParams),
    /// of `swiglu_quantize`
    SwigluQuantize(SwigluQuantizeParams),
    /// of `rope_cache_write`
    RopeCacheWrite(RopeCacheWriteParams),
    /// of `*_*_matvec`
    LinearPair(LinearPairParams),
    /// of `*_gate_up`
    GateUp(GateUpParams),
    /// of `router`
    Router(RouterParams),
    /// of `expert_order`
    ExpertOrder(ExpertOrderParams),
    /// of `*_expert`
    ExpertLinear(ExpertLinearParams),
    /// of `expert_bias`
    ExpertBias(ExpertBiasParams),
    /// of `expert_scale`
    ExpertScale(ExpertScaleParams),
    /// of `expert_combine`
    ExpertCombine(ExpertCombineParams),
    /// of `sigmoid_gate`
    SigmoidGate(SigmoidGateParams),
    /// of `swiglu_oai`
    SwigluOai(SwigluOaiParams),
    /// of `conv_silu`
    ConvSilu(ConvSiluParams),
    /// of `gdn_gates`
    GdnGates(GdnGatesParams),
    /// of `delta_rule`
    DeltaRule(DeltaRuleParams),
    /// of `short_conv`
    ShortConv(ShortConvParams),
    /// of `ssm_discretize`
    SsmDiscretize(SsmDiscretizeParams),
    /// of `ssm_scan`
    SsmScan(SsmScanParams),
    /// of `altup_rescale`
    AltupRescale(AltupRescaleParams),
    /// of `altup_predict`
    AltupPredict(AltupPredictParams),
    /// of `altup_correct`
    AltupCorrect(AltupCorrectParams),
    /// of `altup_add`
    AltupAdd(AltupAddParams),
    /// of `gaussian_topk`
    GaussianTopk(GaussianTopkParams),
}

/// What a command's number of rows follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// every token of the step
    Tokens,
    /// this many heads of every token of the step
    Heads(u32),
    /// every token of a step of at most this many; nothing in a longer one
    TokensUpTo(usize),
    /// every token of a step of more than this many; nothing in a shorter one
    TokensAbove(usize),
    /// the tokens whose logits are wanted
    Outputs,
    /// this many heads of every token whose logits are wanted
    OutputHeads(u32),
}

impl Rows {
    /// Whether they are of the tokens whose logits are wanted, and of no other.
    pub fn are_outputs(self) -> bool {
        matches!(self, Rows::Outputs | Rows::OutputHeads(_))
    }

    /// So many rows in the place of each of these.
    pub fn heads(self, n: usize) -> Rows {
        if self.are_outputs() { Rows::OutputHeads(n as u32) } else { Rows::Heads(n as u32) }
    }
}

/// One operation over named buffers.
#[derive(Clone, Debug)]
pub struct Command {
    /// what to do
    pub op: Op,
    /// its parameters; the fields that follow the step are set by [`Command::args_for`]
    pub args: Args,
    /// buffers in the order of the shader's bindings 1, 2, …
    pub binds: Vec<BufId>,
    /// what its row count follows
    pub rows: Rows,
    /// layer, or `None` outside the layers
    pub layer: Option<usize>,
    /// what it makes: `q`, `ffn_down`, …
    pub label: String,
}

/// Where the tokens of a step lie that are of many sequences, or of one whose chunks do not lie in their own order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scattered {
    /// what the plan's [`Placing`] buffer gets (`ops::places`)
    pub words: Vec<u32>,
    /// position after the greatest of the tokens
    pub end: usize,
    /// what the step touches of the pool
    pub touches: [Touches; TABLES],
    /// sequences that the tokens are of
    pub strands: usize,
}

/// What changes from step to step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// tokens fed
    pub n_tokens: usize,
    /// position of the first of them; the least position, where they are scattered
    pub pos: usize,
    /// where they lie; `None`: tokens of one sequence, one after the other, whose chunks lie in their own order
    pub scattered: Option<Scattered>,
    /// first token (within the step) whose logits are wanted
    pub out_first: usize,
    /// number of tokens whose logits are wanted; 0 skips the output commands
    pub n_out: usize,
    /// how many of the best logits are wanted instead of all: a power of two, at most [`SELECT_MAX`], and `n_out` is
    /// 1; 0: all logits
    pub select: usize,
    /// the input buffer whose first word is not the one given, but the best id of the step before this one
    pub follow: Option<BufId>,
    /// words for the Input buffers
    pub inputs: Vec<(BufId, Vec<u32>)>,
}

/// Logits a step may select, at most.
pub const SELECT_MAX: usize = K_MAX as usize;

/// A logit and whose it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// logit
    pub logit: f32,
    /// token id
    pub id: u32,
}

impl Best {
    /// Words of an entry of a list.
    pub const WORDS: usize = PAIR;

    /// What the words of a list stand for, as `top_k` leaves them.
    pub fn read(words: &[u32]) -> impl Iterator<Item = Best> + '_ {
        let entries = words.as_chunks::<PAIR>().0.iter().filter(|[_, id]| *id != ABSENT);
        entries.map(|&[bits, id]| Best { logit: f32::from_bits(bits), id })
    }
}

impl Command {
    /// The parameters for a step, or `None` when the command has nothing to do in it.
    pub fn args_for(&self, step: &Step) -> Option<Args> {
        let n = match self.rows {
            Rows::Tokens => step.n_tokens,
            Rows::Heads(heads) => step.n_tokens * heads as usize,
            Rows::TokensUpTo(most) if step.n_tokens > most => 0,
            Rows::TokensAbove(few) if step.n_tokens <= few => 0,
            Rows::TokensUpTo(_) | Rows::TokensAbove(_) => step.n_tokens,
            Rows::Outputs => step.n_out,
            Rows::OutputHeads(heads) => step.n_out * heads as usize,
        };
        if n == 0 {
            return None;
        }
        let scattered = step.scattered.as_ref();
        self.args.at(&At {
            n: n as u32,
            pos: step.pos as u32,
            end: scattered.map_or(step.pos + step.n_tokens, |s| s.end) as u32,
            touches: scattered.map(|s| &s.touches),
            strands: scattered.map_or(1, |s| s.strands) as u32,
            out_first: step.out_first as u32,
            select: step.select as u32,
        })
    }

    /// The buffers the command writes, the last of its bindings.
    pub fn outputs(&self) -> &[BufId] {
        &self.binds[self.binds.len() - self.args.n_outputs()..]
    }

    /// The buffers the command only reads.
    pub fn inputs(&self) -> &[BufId] {
        &self.binds[..self.binds.len() - self.outputs().len()]
    }

    /// Whether what the command leaves in a buffer depends on what that buffer held before: by reading it, or by writing
    /// only a part of it.
    pub fn reads(&self, id: BufId) -> bool {
        let written = self.outputs().iter().position(|&output| output == id);
        self.inputs().contains(&id) || written.is_some_and(|output| !self.args.replaces(output))
    }

    /// How far apart the f32 words of a buffer are that the command writes: all of them (1), or the scale in front of each
    /// block of activations. `None`: the buffer is not written, or holds a cache, ids, or what attention carries.
    pub fn float_stride(&self, output: BufId) -> Option<usize> {
        let (at, stride) = self.args.floats()?;
        (self.outputs()[at] == output).then_some(stride)
    }

    /// `layer 3 q q4k_matvec`, for messages.
    pub fn title(&self) -> String {
        match self.layer {
            Some(l) => format!("layer {l} {} {}", self.label, self.op.title()),
            None => format!("{} {}", self.label, self.op.title()),
        }
    }
}

/// The `override` constants that parameters ask for, each with its one value other than the shader's own: attention that
/// caps its scores, and activations of two digits.
pub const ASKED: [(&str, f64); 2] = [("capped", 1.0), ("act_digits", 2.0)];

impl Args {
    /// Values of `override` constants that parameters ask for beside those of the types ([`ASKED`]). What a kernel does not do
    /// is no part of it then.
    pub fn constants(&self) -> Vec<(&'static str, f64)> {
        let softcap = match self {
            Args::Attention(p) => p.softcap,
            Args::AttentionQuantize(p) => p.softcap,
            _ => 0.0,
        };
        let digits = match self {
            Args::Linear(p) => p.digits,
            Args::LinearPair(p) => p.digits,
            Args::GateUp(p) => p.digits,
            Args::ExpertLinear(p) => p.digits,
            Args::ActQuantize(p) => p.digits,
            Args::NormQuantize(p) => p.digits,
            Args::SwigluQuantize(p) => p.digits,
            Args::AttentionQuantize(p) => p.digits,
            _ => 1,
        };
        let asked = [softcap != 0.0, digits == 2];
        ASKED.iter().zip(asked).filter(|(_, asked)| *asked).map(|(constant, _)| *constant).collect()
    }

    /// First position of the cache page that attention reads; `None` for other operations and for the f16 copy.
    pub fn page_first(&self) -> Option<u32> {
        let p = match self {
            Args::Attention(p) => *p,
            Args::AttentionQuantize(p) => p.attention(),
            _ => return None,
        };
        (p.scope != SCOPE_OWN).then_some(p.page_first)
    }
}

/// Commands in order.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// the commands
    pub commands: Vec<Command>,
}

/// The input that says where tokens and chunks lie (`ops::places`). A device fills it itself in a step that is not scattered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// the buffer
    pub buffer: BufId,
    /// chunks of the ring of recent positions; 0 where there is none
    pub ring: usize,
    /// the same of the tokens whose logits are wanted alone, where some layers compute no others
    pub outputs: Option<BufId>,
}

impl Placing {
    /// Writes what the buffer of the tokens whose logits are wanted holds in a step: their words in front, and the tables where
    /// they lie in the other.
    pub fn put_outputs(&self, step: &Step, words: &mut [u32]) {
        self.put(step, words);
        let wanted = step.out_first..step.out_first + step.n_out;
        words.copy_within(wanted.start * TOKEN..wanted.end * TOKEN, 0);
    }

    /// Writes what it holds in a step, to where there is room for all its words.
    pub fn put(&self, step: &Step, words: &mut [u32]) {
        match &step.scattered {
            Some(s) => words[..s.words.len()].copy_from_slice(&s.words),
            None => {
                let n = places::in_order_words(step.pos, step.n_tokens);
                places::put_in_order(step.pos, step.n_tokens, self.ring, &mut words[..n]);
            }
        }
    }
}

/// Everything a device needs to know before the first step.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// every buffer
    pub buffers: Vec<BufDecl>,
    /// the one recording; it serves any number of tokens up to `max_tokens`
    pub recording: Recording,
    /// where tokens and chunks lie; `None`: nothing is cached
    pub placing: Option<Placing>,
    /// the input that says which tokens are of one sequence, and where its states are (`ops::strands`); `None`: there are none
    pub strands: Option<BufId>,
    /// buffer of rows of logits, or of what else the plan gives, `[row][width]`; `None`: steps may not ask for any
    pub logits: Option<BufId>,
    /// buffer of the best logits of one row and their ids, `[k][2]`; `None`: steps may not ask for a selection
    pub selected: Option<BufId>,
    /// words in one of these rows
    pub width: usize,
    /// tokens a step may hold
    pub max_tokens: usize,
    /// rows a step may ask for
    pub max_out: usize,
}

/// Gives the packed words of weight buffers while a plan is loaded. Called for each weight buffer once, in order: whole,
/// or piece after piece.
pub trait WeightSource: Send {
    /// Fills `out` (exactly the buffer's words).
    fn fill(&mut self, buffer: &BufDecl, out: &mut [u32]) -> anyhow::Result<()>;

    /// The lengths, in words, of the pieces a buffer can be filled in, so that few have more than `most`: what cannot be cut
    /// is whole.
    fn pieces(&self, buffer: &BufDecl, _most: usize) -> Vec<usize> {
        vec![buffer.words]
    }

    /// Fills one of the [`WeightSource::pieces`], which are asked for in order; it begins at word `first` of the buffer.
    fn fill_piece(&mut self, buffer: &BufDecl, first: usize, out: &mut [u32]) -> anyhow::Result<()> {
        assert!(first == 0 && out.len() == buffer.words, "{} is filled whole", buffer.name);
        self.fill(buffer, out)
    }
}

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// `llvmpipe (LLVM 15.0.6, 256 bits) [Vulkan]`, `CPU (avx512, 2 threads)`
    pub name: String,
    /// largest binding in words; weights and cache pages are split to fit
    pub max_binding_words: usize,
}

/// Counters of the steps run since a plan was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// steps
    pub steps: u64,
    /// commands run; on a GPU dispatches, of which a split attention takes two
    pub commands: u64,
    /// bytes the steps handed back
    pub read_back: u64,
    /// steps whose commands had been encoded while the step before was under way
    pub encoded_ahead: u64,
    /// time the host spent on steps while the device had nothing to do for them; zero where host and device are one
    pub host: std::time::Duration,
}

/// Runs a loaded plan. Steps are asynchronous so that the same code runs in a browser.
pub trait Device {
    /// Name and limits.
    fn info(&self) -> DeviceInfo;

    /// Gives the flag that ends loading and steps early. Where it is up they end with [`Interrupted`](crate::stop::Interrupted),
    /// soon and wherever they are: what the plan's buffers then hold is nothing to go on from, and the plan must be loaded
    /// again. A device that does not take one works to the end.
    fn set_stop(&mut self, _: Stop) {}

    /// The flag it was given.
    fn stop(&self) -> Stop {
        Stop::default()
    }

    /// How it would have the matrices of a plan whose types with codebooks are these packed: changes no bit, but takes more
    /// of its memory where they are packed as codes. A device has kernels for what it asks for.
    fn packing(&mut self, _: Wide) -> Packing {
        Packing::default()
    }

    /// Whether the memory that it knows of holds the plan.
    fn has_room(&self, _: &Plan) -> bool {
        true
    }

    /// Allocates every buffer and uploads the weights. A plan loaded before is dropped.
    fn load<'a>(&'a mut self, plan: Plan, weights: &'a mut dyn WeightSource) -> LocalBoxFuture<'a, anyhow::Result<()>>;

    /// Runs the recording for one step and returns the wanted rows, `[n_out][width]`.
    fn run<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<Vec<f32>>>;

    /// As [`Device::run`], into a vector that is cleared first and may be used again for every step.
    fn run_into<'a>(&'a mut self, step: &'a Step, logits: &'a mut Vec<f32>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            *logits = self.run(step).await?;
            Ok(())
        })
    }

    /// Whether [`Device::start`] returns before the step is done.
    fn overlaps(&self) -> bool {
        false
    }

    /// Runs a step that asks for no rows, and may return before it is done: what is asked of the device next waits for it,
    /// and hears of its errors.
    fn start<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move { self.run(step).await.map(drop) })
    }

    /// How many steps that select ([`Step::select`]) may be under way at once; 0: the device does not select.
    fn ahead(&self) -> usize {
        0
    }

    /// Starts a step that selects and may return before it is done. Not for more steps than [`Device::ahead`] at once.
    fn submit<'a>(&'a mut self, _: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async { anyhow::bail!("{} does not select", self.info().name) })
    }

    /// Waits for the step submitted first among those not collected yet. `best` is cleared and gets what it selected, the
    /// greatest logit first and of equals the lowest id; where a logit is not finite, the first of those is in front.
    ///
    /// Errors: those of the step, or of one submitted after it; no step is under way.
    fn collect<'a>(&'a mut self, _: &'a mut Vec<Best>) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async { anyhow::bail!("{} does not select", self.info().name) })
    }

    /// Begins a step that is run command by command (for `verify`, tests and measurements): its parameters and inputs are
    /// written, and nothing runs.
    fn begin<'a>(&'a mut self, step: &'a Step) -> LocalBoxFuture<'a, anyhow::Result<()>>;

    /// Runs one command of the recording for the step that was begun last; any command, in any order, as often as wanted.
    fn run_one(&mut self, command: usize) -> LocalBoxFuture<'_, anyhow::Result<()>>;

    /// Runs commands of the recording one after the other for the step that was begun last, and may return before they are
    /// done: what is asked of the device next waits for them.
    fn run_range(&mut self, commands: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            for command in commands {
                self.run_one(command).await?;
            }
            Ok(())
        })
    }

    /// As [`Device::run_range`], of commands in the order of a list, each as often as it stands there (for measurements).
    fn run_list<'a>(&'a mut self, commands: &'a [usize]) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            for &command in commands {
                self.run_one(command).await?;
            }
            Ok(())
        })
    }

    /// All words of a buffer (for `verify` and tests).
    fn read(&mut self, buffer: BufId) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>>;

    /// Words of a part of a buffer.
    fn read_part(&mut self, buffer: BufId, part: Range<usize>) -> LocalBoxFuture<'_, anyhow::Result<Vec<u32>>> {
        Box::pin(async move { Ok(self.read(buffer).await?.drain(part).collect()) })
    }

    /// As [`Device::read_part`], of several buffers at once, in order: what is far away is waited for once.
    fn read_parts<'a>(
        &'a mut self,
        parts: &'a [(BufId, Range<usize>)],
    ) -> LocalBoxFuture<'a, anyhow::Result<Vec<Vec<u32>>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(parts.len());
            for (buffer, part) in parts {
                all.push(self.read_part(*buffer, part.clone()).await?);
            }
            Ok(all)
        })
    }

    /// What the steps since loading (or the last call) cost; all zero where the device does not count.
    fn take_stats(&mut self) -> Stats {
        Stats::default()
    }

    /// The kernels that steps have run since the plan was loaded, as `--variant` names them (`q4k_matvec=matmul`), in order
    /// of their names; empty where the device has one for each operation.
    fn kernels(&self) -> Vec<String> {
        Vec::new()
    }

    /// Overwrites a buffer (for tests and fault injection).
    fn write<'a>(&'a mut self, buffer: BufId, words: &'a [u32]) -> LocalBoxFuture<'a, anyhow::Result<()>>;

    /// Overwrites the words of a buffer from `first` on, and may return before that is done: what is asked of the device next
    /// waits for it.
    fn write_part<'a>(
        &'a mut self,
        buffer: BufId,
        first: usize,
        words: &'a [u32],
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let mut all = self.read(buffer).await?;
            all[first..first + words.len()].copy_from_slice(words);
            self.write(buffer, &all).await
        })
    }
}

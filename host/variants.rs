//! Variants of an operation: shaders with the same bindings, parameters and bits, of which one is the fastest on a
//! device and for a shape. Here is the table of them, what a device starts with, and what a user forces.
//!
//! Nothing here runs anything: `tune` measures, `program` compiles.

use super::capabilities::{Capabilities, Needs, Optional, Registers};
use super::shaders;
use crate::blocks::BlockType;
use crate::ops::attention::{AttentionParams, CHUNK, SCOPE_ALL, SCOPE_OWN, unit_heads};
use crate::ops::cache::CacheType;
use crate::record::{ASKED, Args, Command, Op, Plan, Rows};

/// One shader of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// what `--variant` calls it
    pub name: &'static str,
    /// how its shader's stem ends
    suffix: &'static str,
    /// blocks of 32 rows a workgroup makes
    blocks: u32,
    /// tokens a workgroup makes; 0: as many as make 32 rows with the heads of a unit
    tokens: u32,
    /// whether the tuner measures it in a class of steps, because it may be the fastest there; `split` has depths instead
    candidate: [bool; CLASSES.len()],
    /// a pass that goes before it
    before: Option<Before>,
    /// what its shader needs
    needs: Needs,
    /// whether it is attention of heads over [`HEAD`], and of these alone
    large: bool,
}

/// Elements of a head that attention has in the arrays of its usual shaders.
const HEAD: u32 = 256;

/// A pass before a variant's own, whose results lie in a buffer of the device's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// every chunk of 64 positions by itself, for the variant to join
    Chunks,
    /// the queries in digits, for keys of codes
    Digits,
    /// [`Before::Chunks`] of heads over 256
    LargeChunks,
    /// [`Before::Digits`] of heads over 256
    LargeDigits,
}

impl Before {
    /// The stem of the pass's shader.
    pub fn stem(self) -> &'static str {
        match self {
            Before::Chunks => "attention_chunks",
            Before::Digits => "attention_digits",
            Before::LargeChunks => "attention_chunks_large",
            Before::LargeDigits => "attention_digits_large",
        }
    }

    /// The same of heads over 256.
    const fn large(self) -> Before {
        match self {
            Before::Chunks | Before::LargeChunks => Before::LargeChunks,
            Before::Digits | Before::LargeDigits => Before::LargeDigits,
        }
    }
}

const fn variant(name: &'static str, suffix: &'static str, tokens: u32, candidate: [u8; CLASSES.len()]) -> Variant {
    let candidate = [candidate[0] == 1, candidate[1] == 1, candidate[2] == 1];
    Variant { name, suffix, blocks: 1, tokens, candidate, before: None, needs: Needs::Nothing, large: false }
}

/// Attention: a unit of heads of one token a workgroup; the same with a workgroup for each chunk of 64 positions, whose
/// parts are joined in a second pass; and a tile of 32 (head, token) rows, for heads of up to 128 elements and for wider
/// ones. `digits`: the tiles' queries are brought into digits before.
const fn attention(suffixes: [&'static str; 4], digits: Option<Before>) -> [Variant; 4] {
    let [plain, split, tile, wide] = suffixes;
    [
        variant("plain", plain, 1, [1; 3]),
        Variant { before: Some(Before::Chunks), ..variant("split", split, 1, [0; 3]) },
        Variant { before: digits, ..variant("tile", tile, 0, [0, 0, 1]) },
        Variant { before: digits, ..variant("wide", wide, 0, [0, 0, 1]) },
    ]
}

/// The same, and behind them those of heads over 256, whose tile has 16 rows.
const fn attention_of_all(digits: Option<Before>) -> [Variant; 7] {
    let [plain, split, tile, wide] = attention(PLAIN, digits);
    let large = match digits {
        Some(digits) => Some(digits.large()),
        None => None,
    };
    [
        plain,
        split,
        tile,
        wide,
        Variant { large: true, ..variant("plain", "attention_large", 1, [1; 3]) },
        Variant {
            large: true,
            before: Some(Before::LargeChunks),
            ..variant("split", "attention_join_large", 1, [0; 3])
        },
        Variant { large: true, before: large, ..variant("wide", "attention_tile_large", 0, [0, 0, 1]) },
    ]
}

/// Tiles of 64 rows by 32 tokens on matrix units.
const fn coop(name: &'static str, place: usize) -> Variant {
    Variant { blocks: 2, needs: Needs::Matrices(place), ..variant(name, name, 32, [0, 0, 1]) }
}

/// The linear operations: a lane for a row and a segment, four rows a lane, tiles of 32 rows by 32 and by 8 tokens, four
/// rows a lane that reads codes where it meets them, four rows of a group a lane, a tile of 16 tokens, the tile of 32 with
/// codes and activations in workgroup memory, and those on matrix units.
const LINEAR: &[Variant] = &[
    variant("matvec", "matvec", 1, [1, 0, 0]),
    variant("matvec4", "matvec4", 1, [1, 1, 0]),
    variant("matmul", "matmul", 32, [0, 1, 1]),
    variant("matmul8", "matmul8", 8, [0, 1, 1]),
    variant("lean", "lean", 1, [1, 1, 0]),
    variant("parallel", "parallel", 1, [1, 0, 0]),
    variant("matmul16", "matmul16", 16, [0, 0, 1]),
    variant("staged", "staged", 32, [0, 0, 1]),
    coop("coop8", 0),
    coop("coop16", 1),
];

/// Those of floats, which have no codes to unpack and no groups, and behind them a lane for a row and a segment that has 64
/// elements of its row under way.
const FLOAT: &[Variant] =
    &[LINEAR[0], LINEAR[1], LINEAR[2], LINEAR[3], LINEAR[4], variant("ahead", "ahead", 1, [1, 0, 0])];

/// Those of the types that are 32 words of codes with integer scales to a group, of which small tiles and `lean` are left
/// out: a pipeline each of sixteen types. The last needs workgroup memory that a codebook of 4096 bytes leaves no room for.
const SCALED: &[Variant] = &[LINEAR[0], LINEAR[1], LINEAR[2], LINEAR[7]];

/// Gate and up rows with what follows them, for short steps; of the types of [`SCALED`] the first two.
const GATE_UP: &[Variant] = &[
    variant("matvec", "gate_up", 1, [1; 3]),
    variant("matvec4", "gate_up4", 1, [1; 3]),
    variant("lean", "gate_up_lean", 1, [1; 3]),
];

/// Linears by experts: a workgroup for 32 rows of a slot, or of an expert and all its slots. Not measured: what the tuner
/// could feed them says nothing of which experts tokens choose.
const EXPERT: &[Variant] = &[variant(SLOTS, "expert", 1, [1, 1, 0]), variant(GROUPED, "expert_grouped", 1, [0, 0, 1])];

/// The names of the variants of [`EXPERT`].
const SLOTS: &str = "slots";
const GROUPED: &str = "grouped";

const PLAIN: [&str; 4] = ["attention", "attention_join", "attention_tile", "attention_tile_wide"];
const QUANTIZED: [&str; 4] =
    ["attention_quantize", "attention_quantize_join", "attention_quantize_tile", "attention_quantize_tile_wide"];

const ATTENTION: &[Variant] = &attention_of_all(None);
const ATTENTION_DIGITS: &[Variant] = &attention_of_all(Some(Before::Digits));
/// Attention that ends in activation blocks.
const ATTENTION_QUANTIZE: &[Variant] = &attention(QUANTIZED, None);
const ATTENTION_QUANTIZE_DIGITS: &[Variant] = &attention(QUANTIZED, Some(Before::Digits));

/// Activations to blocks, as they are or behind a norm or a SwiGLU: the greatest of a group by a tree in workgroup memory,
/// or by subgroups.
const QUANTIZE: &[Variant] = &[
    variant("plain", "quantize", 1, [1; 3]),
    Variant { needs: Needs::Subgroups, ..variant("subgroup", "quantize_subgroup", 1, [1; 3]) },
];

/// Tokens up to which attention is split: more of them fill a device by themselves.
const SPLIT_TOKENS: u32 = 4;

/// Positions seen of a page from which splitting it is worth a second dispatch, until the tuner has measured it; a guess.
pub(super) const SPLIT_POSITIONS: usize = 256;

/// Everything else: the shader of the operation's own name.
const ONLY: &[Variant] = &[variant("", "", 1, [1; 3])];

/// The variants of an operation, at least one; the first is the shader of the operation's own name.
pub fn of(op: Op) -> &'static [Variant] {
    match op {
        Op::Matvec(t) if t.is_float() => FLOAT,
        // two types to unpack, and no groups
        Op::MatvecPair(..) => &LINEAR[..7],
        Op::Matvec(t) if t.meets_rows() => &LINEAR[..5],
        Op::Matvec(BlockType::Q4_K | BlockType::Q6_K | BlockType::Q8_0 | BlockType::Q8K128) => LINEAR,
        Op::Matvec(BlockType::IQ1_S | BlockType::IQ1_M) => &SCALED[..3],
        Op::Matvec(t) if is_scaled(t) => SCALED,
        // nobody has put their codes into matrices
        Op::Matvec(_) => &LINEAR[..8],
        Op::GateUp(t) if is_scaled(t) => &GATE_UP[..2],
        Op::GateUp(_) => GATE_UP,
        // its sums over all of k have no frame for many tokens
        Op::ExpertMatvec(t) if t.meets_rows() => &EXPERT[..1],
        Op::ExpertMatvec(_) => EXPERT,
        Op::Attention(CacheType::F32 | CacheType::F16, _) => ATTENTION,
        Op::Attention(..) => ATTENTION_DIGITS,
        Op::AttentionQuantize(CacheType::F32 | CacheType::F16, _) => ATTENTION_QUANTIZE,
        Op::AttentionQuantize(..) => ATTENTION_QUANTIZE_DIGITS,
        Op::ActQuantize | Op::NormQuantize | Op::SwigluQuantize => QUANTIZE,
        _ => ONLY,
    }
}

/// Whether a type's shaders are those of `shared/types/scaled.wgsl`.
const fn is_scaled(t: BlockType) -> bool {
    matches!(
        t,
        BlockType::Q2_K
            | BlockType::Q3_K
            | BlockType::IQ4_NL
            | BlockType::IQ4_XS
            | BlockType::IQ3_S
            | BlockType::IQ3_XXS
            | BlockType::IQ2_S
            | BlockType::IQ2_XS
            | BlockType::IQ2_XXS
            | BlockType::IQ1_S
            | BlockType::IQ1_M
            | BlockType::TQ2_0
            | BlockType::MXFP4
            | BlockType::NVFP4
            | BlockType::Q1_0
            | BlockType::Q2_0
    )
}

/// Values of a shader's overrides, by name; empty for one without overrides.
pub type Overrides = Vec<(&'static str, f64)>;

/// Every set of override values that the shader of a stem is compiled with, at least one.
pub fn override_sets(stem: &str) -> Vec<Overrides> {
    let mut ops: Vec<Op> = CacheType::ALL.iter().flat_map(|&t| [Op::CacheWriteK(t), Op::CacheWriteV(t)]).collect();
    for (k, v) in CacheType::ALL.iter().flat_map(|&k| CacheType::ALL.map(|v| (k, v))) {
        ops.extend([Op::Attention(k, v), Op::AttentionQuantize(k, v), Op::RopeCacheWrite(k, v)]);
        ops.extend([k, v].contains(&CacheType::C8).then_some(Op::RopeChannelCacheWrite(k, v)));
    }
    let mut sets: Vec<Overrides> = Vec::new();
    for op in ops {
        let serves = |v: &Variant| v.stem(op) == stem || v.before.is_some_and(|b| b.stem() == stem);
        let set = op.constants();
        if of(op).iter().any(serves) && !sets.contains(&set) {
            sets.push(set);
        }
    }
    if sets.is_empty() {
        sets.push(Vec::new());
    }
    // what parameters ask for besides
    let declared = shaders::find(stem).map_or(&[][..], |s| s.overrides);
    for constant in ASKED.into_iter().filter(|(name, _)| declared.contains(name)) {
        let with = |set: &Overrides| [&set[..], &[constant]].concat();
        sets.extend(sets.iter().map(with).collect::<Vec<_>>());
    }
    sets
}

/// A few of the sets in which every value of every override occurs, those first that give all overrides the same value:
/// what a type of keys asks of a shader and what a type of values does lie in branches of their own.
pub fn cover(mut sets: Vec<Overrides>) -> Vec<Overrides> {
    sets.sort_by_key(|set| set.windows(2).any(|w| w[0].1 != w[1].1));
    let mut covered: Overrides = Vec::new();
    sets.retain(|set| {
        let new: Overrides = set.iter().filter(|pair| !covered.contains(pair)).copied().collect();
        let keep = set.is_empty() || !new.is_empty();
        covered.extend(new);
        keep
    });
    sets
}

impl Variant {
    /// The stem of the variant's shader.
    pub fn stem(&self, op: Op) -> String {
        let kind = op.stem().strip_suffix(of(op)[0].suffix).expect("the first variant is the operation's own shader");
        format!("{kind}{}", self.suffix)
    }

    /// Whether a device with what is optional can run it.
    pub(super) fn runs(&self, optional: Optional) -> bool {
        optional.has(self.needs)
    }

    /// Whether the tuner measures the variant for a class of steps, on a device that has what is optional.
    pub(super) fn is_candidate(&self, class: usize, optional: Optional) -> bool {
        self.candidate[class] && self.runs(optional)
    }

    /// The pass before, where there is one.
    pub fn before(&self) -> Option<Before> {
        self.before
    }

    /// Whether the variant is attention by chunks, which [`splits`] decides for each step.
    pub(super) fn is_split(&self) -> bool {
        matches!(self.before, Some(Before::Chunks | Before::LargeChunks))
    }

    /// Whether the variant is a linear by experts that takes one slot after the other, and so needs no order of them.
    pub(super) fn goes_by_slots(&self) -> bool {
        self.name == SLOTS
    }

    /// Workgroups of the pass before: (unit of heads, token, and chunk with [`Before::Chunks`]).
    pub(super) fn groups_before(&self, args: &Args) -> [u32; 3] {
        let [x, y, z] = args.groups();
        let chunks = |p: AttentionParams| p.chunks;
        [x, y * if self.is_split() { attention_of(args).map_or(0, chunks) } else { 1 }, z]
    }

    /// Words that the pass before leaves, at most.
    pub(super) fn words_before(&self, args: &Args, room: Room) -> usize {
        let Some(p) = attention_of(args) else { return 0 };
        let (heads, hd) = (p.heads as usize, p.head_dim as usize);
        match self.before {
            None => 0,
            // m, l and o of every chunk
            Some(Before::Chunks | Before::LargeChunks) => {
                SPLIT_TOKENS as usize * heads * (p.page_len as usize / CHUNK) * (hd + 2)
            }
            // two digits, and a vector with the scale
            Some(Before::Digits | Before::LargeDigits) => room.max_tokens * heads * (hd / 2 + 4),
        }
    }

    /// Workgroups of the dispatch.
    pub(super) fn groups(&self, args: &Args) -> [u32; 3] {
        let [x, y, z] = args.groups();
        if let (GROUPED, Args::ExpertLinear(p)) = (self.name, args) {
            return [p.rows.div_ceil(32), p.held, z];
        }
        let tokens = match (self.tokens, attention_of(args)) {
            (0, Some(p)) => tile_tokens(p.head_dim),
            (n, _) => n,
        };
        [x.div_ceil(self.blocks), y.div_ceil(tokens), z]
    }

    /// Whether the variant can run a command on a device; the one that [`first`] gives can run it on all.
    pub(super) fn serves(&self, args: &Args, room: Room) -> bool {
        let chunks = |p: AttentionParams| SPLIT_TOKENS * (p.page_len / CHUNK as u32);
        let shape = match (self.name, attention_of(args)) {
            (_, Some(p)) if self.large != (p.head_dim > HEAD) => false,
            ("split", Some(p)) => p.scope != SCOPE_OWN && chunks(p) <= 65535,
            ("tile", Some(p)) => p.head_dim <= 128 && p.head_dim.is_multiple_of(4),
            ("wide", Some(p)) => p.head_dim > 128 && p.head_dim.is_multiple_of(4),
            _ => match (self.needs, args) {
                // two digits would take every sum twice
                (Needs::Matrices(_), Args::Linear(p)) => p.digits == 1,
                _ => true,
            },
        };
        self.runs(room.capabilities.optional) && shape && 4 * self.words_before(args, room) as u64 <= room.max_binding
    }
}

/// What a plan's steps and a device's bindings leave room for.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub capabilities: Capabilities,
    pub max_tokens: usize,
    /// bytes
    pub max_binding: u64,
}

pub(super) fn attention_of(args: &Args) -> Option<AttentionParams> {
    match args {
        Args::Attention(p) => Some(*p),
        Args::AttentionQuantize(p) => Some(p.attention()),
        _ => None,
    }
}

/// Whether a step's attention is split: few tokens, and enough positions seen of the page.
pub(super) fn splits(args: &Args, least: usize) -> bool {
    // sequences that lie anywhere may have more chunks before a page than it holds, for which there is no room
    let room = |p: AttentionParams| p.chunks <= p.page_len / CHUNK as u32;
    let enough =
        |p: AttentionParams| p.n_tokens <= SPLIT_TOKENS && p.chunks as usize >= least.div_ceil(CHUNK) && room(p);
    attention_of(args).is_some_and(enough)
}

/// Tokens of a tile of attention: with the heads of a unit, at most 32 rows, of heads over [`HEAD`] 16.
fn tile_tokens(head_dim: u32) -> u32 {
    if head_dim > HEAD { 16 } else { 32 / unit_heads(head_dim).next_power_of_two() }
}

/// The place in [`of`] of the variant that can run a command on every device.
pub(super) fn first(op: Op, args: &Args) -> usize {
    let large = attention_of(args).is_some_and(|p| p.head_dim > HEAD);
    of(op).iter().position(|v| v.large == large).unwrap_or(0)
}

/// Numbers of tokens that are told apart: one, a few, many. The tuner measures each at the number given, and many at
/// [`MANY`] where the device is not software: of 64 tokens a large GPU has not enough to do, and what is fastest then is not
/// what is fastest for a prompt (on an H200 `staged` took 1.7 times as long as `matmul` at 512 tokens of Q6_K).
pub(super) const CLASSES: [usize; 3] = [1, 6, 64];
pub(super) const MANY: usize = 256;

/// The class of a step.
pub(super) fn class(n_tokens: u32) -> usize {
    match n_tokens {
        0..=1 => 0,
        2..=15 => 1,
        _ => 2,
    }
}

/// The number of tokens a class is measured at for a command: that of [`CLASSES`], of the last one `many`, or the nearest that
/// a step of the plan gives the command. `None`: no step gives it so many.
pub(super) fn tokens_in(class: usize, many: usize, c: &Command, plan: &Plan) -> Option<usize> {
    let (least, most) = match c.rows {
        Rows::Outputs | Rows::OutputHeads(_) => (1, plan.max_out.min(plan.max_tokens)),
        Rows::TokensUpTo(most) => (1, plan.max_tokens.min(most)),
        Rows::TokensAbove(few) => (few + 1, plan.max_tokens),
        Rows::Tokens | Rows::Heads(_) => (1, plan.max_tokens),
    };
    let n = [CLASSES[0], CLASSES[1], many][class].min(most).max(least);
    (n <= most && self::class(n as u32) == class).then_some(n)
}

/// A variant for each class, by its place in [`of`].
pub(super) type Choice = [usize; CLASSES.len()];

/// Superblocks whose sub-blocks have scales of their own beside the sums of each token.
const fn is_k(t: BlockType) -> bool {
    matches!(t, BlockType::Q4_K | BlockType::Q5_K | BlockType::Q6_K)
}

/// Whether codes of a type are fetched ahead for one token: where memory is waited for and there are registers for them.
fn fetches_ahead(t: BlockType, room: Room) -> bool {
    let four_blocks = !t.is_float() && t.elems() == 32;
    room.capabilities.hardware && !(four_blocks && room.capabilities.registers == Registers::Few)
}

/// Before anything is measured: four rows a lane for one token (see [`fetches_ahead`]), small tiles for a few and tiles for
/// many, of types that have no small tiles a token at a time for a few; of attention tiles for many, and split for few where the device has more cores than a token has heads (see
/// [`splits`] for the depth).
fn untuned(op: Op, args: &Args, room: Room) -> Choice {
    let one_row = usize::from(room.capabilities.registers != Registers::Few);
    // sums of four tokens and their sub-blocks are more than some lanes hold
    let tile = |t: BlockType| if room.capabilities.registers == Registers::Half && is_k(t) { 6 } else { 2 };
    match op {
        // the words of a group are more than few registers hold
        Op::Matvec(t) if is_scaled(t) => [one_row, one_row, 2],
        Op::GateUp(t) if is_scaled(t) => [one_row; CLASSES.len()],
        Op::Matvec(t) => [if fetches_ahead(t, room) { 1 } else { 4 }, 3, tile(t)],
        Op::MatvecPair(t, _) => [if room.capabilities.hardware { 1 } else { 4 }, 3, tile(t)],
        Op::GateUp(t) => [if fetches_ahead(t, room) { 1 } else { 2 }; CLASSES.len()],
        Op::ExpertMatvec(t) => [0, 0, usize::from(!t.meets_rows())],
        _ => {
            let place = |name| of(op).iter().position(|v| v.name == name && v.serves(args, room));
            let first = first(op, args);
            let few = if room.capabilities.hardware { place("split").unwrap_or(first) } else { first };
            [few, few, place("tile").or_else(|| place("wide")).unwrap_or(first)]
        }
    }
}

/// What a command starts with: what is forced and can run it (the first variant where none can), or the untuned choice.
pub(super) fn initial(list: &[Forced], op: Op, args: &Args, room: Room) -> Choice {
    let Some(last) = forced(list, op) else { return untuned(op, args, room) };
    let mut places = list.iter().rev().flat_map(|f| f.places(op));
    let able = places.find(|&v| of(op)[v].serves(args, room));
    // what the device cannot run at all is said once, when it is opened
    if able.is_none() && of(op)[last].runs(room.capabilities.optional) {
        log::warn!("{}: the variant {} cannot run this shape, {} does", op.title(), of(op)[last].name, of(op)[0].name);
    }
    [able.unwrap_or_else(|| first(op, args)); CLASSES.len()]
}

/// The depth from which an operation's attention is split before it is measured: at once where a variant is forced.
pub(super) fn split_from(list: &[Forced], op: Op) -> usize {
    if forced(list, op).is_some() { 1 } else { SPLIT_POSITIONS }
}

/// The place of the variant that a step's command runs with: by the number of tokens, and, where it may be split, of positions.
pub(super) fn taken(op: Op, args: &Args, choice: &Choice, split_from: usize) -> usize {
    let variant = choice[class(args.groups()[1])];
    if of(op)[variant].is_split() && !splits(args, split_from) { first(op, args) } else { variant }
}

/// One dispatch of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// stem of its shader
    pub shader: String,
    /// workgroups
    pub groups: [u32; 3],
}

/// The dispatches of a command in a step, on a GPU that has measured nothing and of which nothing is forced; `args` are those
/// of the step, which holds `max_tokens` at most.
pub fn unmeasured(op: Op, args: &Args, max_tokens: usize) -> Vec<Pass> {
    let choice = untuned(op, args, unknown(true, Registers::Many, max_tokens));
    let v = &of(op)[taken(op, args, &choice, SPLIT_POSITIONS)];
    let before = v.before().map(|b| Pass { shader: b.stem().into(), groups: v.groups_before(args) });
    before.into_iter().chain([Pass { shader: v.stem(op), groups: v.groups(args) }]).collect()
}

/// Stems of the shaders with which some device starts an operation, for heads of any width, before it has measured anything;
/// none of what no step of a model runs.
pub fn defaults(op: Op) -> Vec<String> {
    if matches!(op, Op::Encode(_) | Op::FloatProbe) {
        return Vec::new();
    }
    let mut stems = Vec::new();
    let devices = [(true, Registers::Many), (true, Registers::Half), (true, Registers::Few), (false, Registers::Many)];
    for ((hardware, registers), head_dim) in devices.into_iter().flat_map(|d| [(d, 128), (d, 256), (d, 576)]) {
        // of operations but attention the choice asks no parameters
        let args = Args::Attention(AttentionParams {
            n_tokens: 1,
            chunk0: 0,
            chunks: 0,
            heads: 1,
            kv_heads: 1,
            head_dim,
            page_first: 0,
            page_len: CHUNK as u32,
            scale: 1.0,
            scope: SCOPE_ALL,
            window: 0,
            table: 0,
            softcap: 0.0,
            inv_softcap: 0.0,
            sinks: 0,
        });
        for place in untuned(op, &args, unknown(hardware, registers, 1)) {
            let v = &of(op)[place];
            stems.extend(v.before().map(|b| b.stem().to_string()));
            stems.push(v.stem(op));
            // where there are too few positions to split
            stems.extend(v.is_split().then(|| of(op)[0].stem(op)));
        }
    }
    stems
}

/// What a device is taken for of which nothing is known but whether it is more than a rasteriser, and how much lanes hold.
fn unknown(hardware: bool, registers: Registers, max_tokens: usize) -> Room {
    let (loops, halves) = Default::default();
    let optional = Optional { subgroups: true, ..Optional::default() };
    let capabilities = Capabilities { in_place: false, parallel: true, hardware, registers, optional, loops, halves };
    Room { capabilities, max_tokens, max_binding: u64::MAX }
}

/// What `--variant` asks for: a variant for one operation, or for all that have one of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// stem of the operation; `None`: all
    op: Option<String>,
    name: String,
}

impl Forced {
    /// `matmul`, or `q4k_matvec=matmul`. Errors: no operation has a variant of that name; one line with the names.
    pub fn parse(word: &str) -> Result<Forced, String> {
        let (op, name) = match word.split_once('=') {
            Some((op, name)) => (Some(op), name),
            None => (None, word),
        };
        let lists = [LINEAR, GATE_UP, EXPERT, ATTENTION, ATTENTION_QUANTIZE, QUANTIZE];
        let known: Vec<&str> = match op {
            None => {
                // those of large heads have the names of the others
                let attention = ATTENTION.iter().filter(|v| !v.large);
                LINEAR
                    .iter()
                    .chain(&FLOAT[5..])
                    .chain(EXPERT)
                    .chain(attention)
                    .chain(&QUANTIZE[1..])
                    .map(|v| v.name)
                    .collect()
            }
            Some(op) => {
                let list = lists.into_iter().find(|list| op.ends_with(list[0].suffix));
                let float = ["f32_matvec", "f16_matvec", "bf16_matvec"].contains(&op);
                let list = if float { Some(FLOAT) } else { list };
                let list = list.filter(|_| super::shaders::SHADERS.iter().any(|s| s.name == op));
                let no_such = || format!("no operation {op} has variants; name one as q4k_matvec");
                list.ok_or_else(no_such)?.iter().filter(|v| !v.large).map(|v| v.name).collect()
            }
        };
        if !known.contains(&name) {
            return Err(format!("no variant {name}; there are {}", known.join(", ")));
        }
        Ok(Forced { op: op.map(Into::into), name: name.into() })
    }

    /// What the variant it asks for needs of a device, and whether the device has it.
    pub(super) fn lacks(&self, optional: Optional) -> Option<Lacks> {
        let asked = LINEAR.iter().chain(QUANTIZE).find(|v| v.name == self.name)?;
        let (what, instead) = match asked.needs {
            Needs::Nothing => return None,
            Needs::Subgroups => ("subgroups", "plain"),
            Needs::Matrices(_) => ("such matrices that are exact", "another"),
        };
        (!optional.has(asked.needs)).then_some(Lacks { what, variant: asked.name, instead })
    }

    /// The places of the variants of the name in [`of`], if it is meant for this operation.
    fn places(&self, op: Op) -> impl Iterator<Item = usize> {
        let meant = self.op.as_deref().is_none_or(|stem| stem == op.stem());
        let list = of(op).iter().enumerate();
        list.filter(move |(_, v)| meant && v.name == self.name).map(|(place, _)| place)
    }
}

/// What a device has not for a variant that is forced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lacks {
    what: &'static str,
    variant: &'static str,
    instead: &'static str,
}

impl std::fmt::Display for Lacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Lacks { what, variant, instead } = self;
        write!(f, "has no {what}: the variant {variant} is not used on it, {instead} is")
    }
}

/// The variant that is forced for an operation; of several words the last holds.
pub(super) fn forced(list: &[Forced], op: Op) -> Option<usize> {
    list.iter().rev().find_map(|f| f.places(op).next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::linear::LinearParams;
    use crate::ops::norm_quantize::NormQuantizeParams;

    fn room(hardware: bool, subgroups: bool) -> Room {
        let (loops, halves) = Default::default();
        let optional = Optional { subgroups, ..Optional::default() };
        let capabilities = Capabilities {
            in_place: false,
            parallel: true,
            hardware,
            registers: Registers::Many,
            optional,
            loops,
            halves,
        };
        Room { capabilities, max_tokens: 100, max_binding: 1 << 27 }
    }

    #[test]
    fn a_variant_with_subgroups_is_run_where_it_is_asked_for_and_the_device_has_them() {
        let args = Args::NormQuantize(NormQuantizeParams { n_tokens: 1, dim: 256, inv_n: 0.0, eps: 0.0, digits: 1 });
        let start = |list: &[Forced], has| initial(list, Op::NormQuantize, &args, room(true, has));
        for word in ["subgroup", "norm_quantize=subgroup"] {
            let asked = [Forced::parse(word).unwrap()];
            let has = |subgroups| Optional { subgroups, ..Optional::default() };
            assert!(asked[0].lacks(has(true)).is_none());
            let said = asked[0].lacks(has(false)).unwrap().to_string();
            assert_eq!(said, "has no subgroups: the variant subgroup is not used on it, plain is");
            assert_eq!((start(&asked, true), start(&asked, false)), ([1; 3], [0; 3]), "{word}");
        }
        assert_eq!((start(&[], true), start(&[], false)), ([0; 3], [0; 3]));
        let (none, has) = (Optional::default(), Optional { subgroups: true, ..Optional::default() });
        assert!(QUANTIZE[1].is_candidate(0, has) && !QUANTIZE[1].is_candidate(0, none));
        assert!(QUANTIZE[0].is_candidate(0, none));
        assert!(Forced::parse("norm_quantize=plain").unwrap().lacks(none).is_none());
        assert!(Forced::parse("rms_norm=subgroup").unwrap_err().contains("no operation rms_norm has variants"));
    }

    #[test]
    fn matrices_are_used_where_the_probe_found_their_size_exact_and_for_one_digit() {
        let op = Op::Matvec(BlockType::Q4_K);
        let p = LinearParams { n_tokens: 40, k: 512, rows: 96, digits: 1, y_stride: 96, y_offset: 0, residual: 0 };
        let start = |word: &str, matrices, digits| {
            let mut room = room(true, true);
            room.capabilities.optional.matrices = matrices;
            let args = Args::Linear(LinearParams { digits, ..p });
            initial(&[Forced::parse(word).unwrap()], op, &args, room)
        };
        for (word, place, other) in [("coop8", 8, "coop16"), ("q4k_matvec=coop16", 9, "coop8")] {
            let has = [place == 8, place == 9];
            assert_eq!((start(word, has, 1), start(word, has, 2)), ([place; 3], [0; 3]), "{word}");
            assert_eq!((start(word, [false; 2], 1), start(other, has, 1)), ([0; 3], [0; 3]), "{word}");
            let optional = Optional { matrices: has, ..Optional::default() };
            assert!(LINEAR[place].is_candidate(2, optional) && !LINEAR[place].is_candidate(1, optional));
            assert!(!LINEAR[place].is_candidate(2, Optional::default()));
            assert!(Forced::parse(word).unwrap().lacks(optional).is_none());
            let said = Forced::parse(other).unwrap().lacks(optional).unwrap().to_string();
            assert!(said.starts_with("has no such matrices that are exact: the variant coop"), "{said}");
        }
        // 64 rows and 32 tokens a workgroup
        let args = Args::Linear(p);
        assert_eq!(([9, 2, 6].map(|place| LINEAR[place].groups(&args))), [[2, 2, 1], [3, 2, 1], [3, 3, 1]]);
        assert_eq!(of(Op::Matvec(BlockType::Q5_K)).len(), 8);
        let few = [BlockType::IQ4_XS, BlockType::IQ1_M].map(|t| of(Op::Matvec(t)).last().map(|v| v.name));
        assert_eq!(few, [Some("staged"), Some("matmul")]);
    }

    #[test]
    fn a_forced_variant_is_found_by_name_and_by_operation() {
        let (q4k, q6k) = (Op::Matvec(BlockType::Q4_K), Op::Matvec(BlockType::Q6_K));
        let all = Forced::parse("matmul").unwrap();
        let one = Forced::parse("q4k_matvec=matvec").unwrap();
        assert_eq!(forced(&[all.clone(), one.clone()], q4k), Some(0));
        assert_eq!(forced(&[all.clone(), one.clone()], q6k), Some(2));
        assert_eq!(forced(&[one, all], q4k), Some(2));
        assert_eq!(forced(&[], q4k), None);
        assert_eq!(forced(&[Forced::parse("matvec4").unwrap()], Op::Add), None);
        for word in ["ahead", "f32_matvec=ahead"] {
            let asked = [Forced::parse(word).unwrap()];
            assert_eq!((forced(&asked, Op::Matvec(BlockType::F32)), forced(&asked, q4k)), (Some(5), None));
        }
        // a kernel for short steps has no tiles
        assert_eq!(forced(&[Forced::parse("matmul").unwrap()], Op::GateUp(BlockType::Q4_K)), None);
        assert_eq!(forced(&[Forced::parse("q4k_gate_up=matvec").unwrap()], Op::GateUp(BlockType::Q4_K)), Some(0));
        assert!(Forced::parse("matvec5").unwrap_err().contains(
            "matvec, matvec4, matmul, matmul8, lean, parallel, matmul16, staged, coop8, coop16, ahead, slots, grouped, plain, split, tile, wide, subgroup"
        ));
        assert!(Forced::parse("add=matmul").unwrap_err().contains("q4k_matvec"));
        // a variant of other operations would be forced on nothing
        for word in
            ["q4k_gate_up=matmul", "q4k_matvec=tile", "q4k_matvec=ahead", "f32_matvec=staged", "attention=matmul"]
        {
            assert!(Forced::parse(word).unwrap_err().starts_with("no variant"), "{word}");
        }
    }

    #[test]
    fn one_token_starts_with_codes_fetched_ahead_on_hardware_alone() {
        let args = Args::NormQuantize(NormQuantizeParams { n_tokens: 1, dim: 256, inv_n: 0.0, eps: 0.0, digits: 1 });
        let names = |op, hardware| untuned(op, &args, room(hardware, false)).map(|place| of(op)[place].name);
        for op in [Op::Matvec(BlockType::Q4_K), Op::Matvec(BlockType::F32)] {
            assert_eq!(names(op, true), ["matvec4", "matmul8", "matmul"]);
            assert_eq!(names(op, false), ["lean", "matmul8", "matmul"]);
        }
        // of types with few variants, on software too
        for (t, hardware) in [(BlockType::Q3_K, true), (BlockType::MXFP4, false), (BlockType::IQ1_S, false)] {
            assert_eq!(names(Op::Matvec(t), hardware), ["matvec4", "matvec4", "matmul"]);
            assert_eq!(names(Op::GateUp(t), hardware), ["matvec4"; 3]);
        }
        assert_eq!(names(Op::GateUp(BlockType::Q4_K), true), ["matvec4"; 3]);
        assert_eq!(names(Op::GateUp(BlockType::Q4_K), false), ["lean"; 3]);
        // four blocks of 32 are more than few registers hold
        let mut few = room(true, false);
        few.capabilities.registers = Registers::Few;
        let first = |op| of(op)[untuned(op, &args, few)[0]].name;
        for (t, name) in [(BlockType::Q8_0, "lean"), (BlockType::Q4_K, "matvec4"), (BlockType::F16, "matvec4")] {
            assert_eq!(first(Op::Matvec(t)), name, "{t:?}");
        }
        assert_eq!([BlockType::Q3_K, BlockType::IQ1_S].map(|t| first(Op::Matvec(t))), ["matvec"; 2]);
        assert_eq!([BlockType::Q4_1, BlockType::Q6_K].map(|t| first(Op::GateUp(t))), ["lean", "matvec4"]);
        // sums of four tokens of superblocks are more than half as many hold
        let mut half = room(true, false);
        half.capabilities.registers = Registers::Half;
        let many = |op| untuned(op, &args, half).map(|place| of(op)[place].name);
        let pair = Op::MatvecPair(BlockType::Q4_K, BlockType::Q6_K);
        for op in [Op::Matvec(BlockType::Q4_K), Op::Matvec(BlockType::Q6_K), pair] {
            assert_eq!(many(op), ["matvec4", "matmul8", "matmul16"], "{op:?}");
        }
        assert_eq!(many(Op::Matvec(BlockType::Q8_0))[2], "matmul");
        assert_eq!(many(Op::Matvec(BlockType::F32))[2], "matmul");
    }

    #[test]
    fn attention_is_tiled_for_many_tokens_where_the_tile_serves_the_command() {
        let p = AttentionParams {
            n_tokens: 70,
            chunk0: 0,
            chunks: 2,
            heads: 8,
            kv_heads: 2,
            head_dim: 64,
            page_first: 0,
            page_len: 128,
            scale: 0.125,
            scope: SCOPE_ALL,
            window: 0,
            table: 0,
            softcap: 0.0,
            inv_softcap: 0.0,
            sinks: 0,
        };
        let (f16, codes) = (CacheType::F16, CacheType::Q8_0);
        let tile = [Forced::parse("attention=tile").unwrap()];
        let start = |list: &[Forced], k, head_dim| {
            let op = Op::Attention(k, f16);
            initial(list, op, &Args::Attention(AttentionParams { head_dim, ..p }), room(false, false))
        };
        assert_eq!(
            (start(&[], f16, 64), start(&[], codes, 64), start(&[], f16, 256)),
            ([0, 0, 2], [0, 0, 2], [0, 0, 3])
        );
        assert_eq!((start(&tile, f16, 64), start(&tile, codes, 64)), ([2; 3], [2; 3]));
        assert_eq!((start(&tile, f16, 256), start(&tile, f16, 2), start(&[], f16, 2)), ([0; 3], [0; 3], [0; 3]));
        let both = [tile[0].clone(), Forced::parse("wide").unwrap()];
        assert_eq!((start(&both, f16, 64), start(&both, f16, 256)), ([2; 3], [3; 3]));
        // those of large heads have the names of the others
        assert_eq!(
            (start(&[], f16, 576), start(&[], codes, 512), start(&[], f16, 258)),
            ([4, 4, 6], [4, 4, 6], [4; 3])
        );
        assert_eq!((start(&tile, f16, 576), start(&both, f16, 576)), ([4; 3], [6; 3]));
        assert_eq!(start(&[Forced::parse("split").unwrap()], f16, 576), [5; 3]);
        assert_eq!([2, 32, 40, 64, 128].map(tile_tokens), [8, 8, 8, 16, 32]);
        let groups = |v: &Variant| (v.groups(&Args::Attention(p)), v.groups_before(&Args::Attention(p)));
        assert_eq!(groups(&ATTENTION_DIGITS[2]), ([4, 5, 1], [4, 70, 1]));
        // digits that would not fit a binding are not made
        let small = Room { max_binding: 4 * 100 * 8 * 36 - 1, ..room(false, false) };
        let first = |k, room| initial(&[], Op::Attention(k, f16), &Args::Attention(p), room);
        assert_eq!(ATTENTION_DIGITS[2].words_before(&Args::Attention(p), room(false, false)), 100 * 8 * 36);
        assert_eq!((first(codes, small), first(f16, small)), ([0; 3], [0, 0, 2]));
    }

    #[test]
    fn attention_of_few_tokens_is_split_where_there_are_enough_positions_and_cores() {
        let p = AttentionParams {
            n_tokens: 1,
            chunk0: 0,
            chunks: 18,
            heads: 8,
            kv_heads: 2,
            head_dim: 64,
            page_first: 0,
            page_len: 4096,
            scale: 0.125,
            scope: SCOPE_ALL,
            window: 0,
            table: 0,
            softcap: 0.0,
            inv_softcap: 0.0,
            sinks: 0,
        };
        let op = Op::Attention(CacheType::Q8_0, CacheType::Q8_0);
        let start = |list: &[Forced], p, hardware| initial(list, op, &Args::Attention(p), room(hardware, true));
        let asked = [Forced::parse("attention=split").unwrap()];
        assert_eq!(
            (start(&[], p, true), start(&[], p, false), start(&asked, p, false)),
            ([1, 1, 2], [0, 0, 2], [1; 3])
        );
        // a ring is one chunk
        assert_eq!(start(&asked, AttentionParams { scope: SCOPE_OWN, ..p }, true), [0; 3]);
        let splits = |p, least| splits(&Args::Attention(p), least);
        let at = |pos: u32, n_tokens: u32| AttentionParams {
            chunks: (pos + n_tokens).div_ceil(CHUNK as u32),
            n_tokens,
            ..p
        };
        assert!(splits(at(1100, 1), 1024) && splits(at(1100, 4), 1024) && splits(at(0, 1), 1));
        assert!(!splits(at(900, 1), 1024) && !splits(at(1100, 5), 1024) && !splits(at(1100, 5), 1));
        assert!(!splits(at(4095, 1), usize::MAX));
        // a window leaves few of the positions, and they are the last
        let windowed = AttentionParams { window: 100, chunk0: 15, chunks: 3, ..at(1100, 2) };
        assert!(!splits(windowed, 1024) && splits(windowed, 129));
        // more than the page has room for
        assert!(!splits(AttentionParams { chunks: 65, ..windowed }, 1));
        assert_eq!(ATTENTION[1].groups_before(&Args::Attention(windowed)), [4, 6, 1]);
        assert_eq!(ATTENTION[1].groups(&Args::Attention(windowed)), [4, 2, 1]);
        assert_eq!(ATTENTION[1].words_before(&Args::Attention(p), room(false, false)), 4 * 8 * 64 * 66);
    }

    #[test]
    fn every_variant_has_a_shader_with_the_bindings_and_parameters_of_the_first() {
        for op in crate::cases::ops() {
            let first = super::super::shaders::find(op.stem()).expect("each operation has a shader");
            for v in of(op) {
                let stem = v.stem(op);
                let shader = super::super::shaders::find(&stem).unwrap_or_else(|| panic!("{stem} has no shader"));
                assert_eq!((shader.bindings, shader.params), (first.bindings, first.params), "{stem}");
                let needs = match (shader.matrices, shader.subgroups) {
                    (false, false) => Needs::Nothing,
                    (false, true) => Needs::Subgroups,
                    (true, _) => Needs::Matrices(usize::from(stem.ends_with("16"))),
                };
                assert_eq!(needs, v.needs, "{stem}");
                // the pass before reads as many of the parameters as it has
                if let Some(stem) = v.before().map(Before::stem) {
                    let shader = super::super::shaders::find(stem).unwrap_or_else(|| panic!("{stem} has no shader"));
                    assert_eq!(shader.bindings, first.bindings, "{stem}");
                    assert!(first.params.starts_with(shader.params), "{stem}");
                }
            }
        }
    }
}

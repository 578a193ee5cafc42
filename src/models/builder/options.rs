//! What is asked of a plan, and what comes with one.

use crate::blocks::wide::Packing;
use crate::ops::attention::CHUNK;
use crate::ops::cache::CacheType;
use crate::ops::places::TABLES;
use crate::record::{BufId, Plan};

/// Choices that shape a plan. By default a context of 512, one row of logits a step, activations of 8 bits and an f16 cache,
/// on a device that binds buffers of any size.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// positions a sequence may have
    pub n_ctx: usize,
    /// sequences that a step may have tokens of
    pub sequences: usize,
    /// positions the cache has for all sequences together; `None`: `n_ctx`
    pub pool: Option<usize>,
    /// states of recurrent layers that may be kept besides those that steps read and write, as far as a buffer of a layer
    /// holds them
    pub checkpoints: usize,
    /// tokens in a step, at most
    pub ubatch: usize,
    /// rows that a step gives, at most
    pub max_out: usize,
    /// digits of the activations: 1 (8 bits) or 2 (16)
    pub digits: usize,
    /// type of cached keys
    pub k_type: CacheType,
    /// type of cached values
    pub v_type: CacheType,
    /// whether a query reads its own chunk from an f16 copy
    pub recent: Recent,
    /// what a step gives for a token
    pub head: Head,
    /// largest buffer the device can bind, in words
    pub max_binding_words: usize,
    /// how matrices are packed; a session packs as its device would have it
    pub packing: Packing,
}

/// What a step gives for a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Head {
    /// logits, `[vocab]`
    #[default]
    Logits,
    /// what the output matrix would be multiplied with, the norm of what the last layer leaves: `[dim]`
    Hidden,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            n_ctx: 512,
            sequences: 1,
            pool: None,
            checkpoints: 0,
            ubatch: 512,
            max_out: 1,
            digits: 1,
            k_type: CacheType::F16,
            v_type: CacheType::F16,
            recent: Recent::Auto,
            head: Head::Logits,
            // in bytes it is still a number of a usize
            max_binding_words: usize::MAX / 8,
            packing: Packing::default(),
        }
    }
}

/// Whether a query reads the keys and values of its own chunk of 64 positions from an f16 copy rather than from the cache
/// (`docs/exactness.md` section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recent {
    /// where keys or values are tq3_1, and neither are c8
    #[default]
    Auto,
    /// always
    On,
    /// never
    Off,
}

impl Recent {
    /// By its command-line name.
    pub fn parse(name: &str) -> Option<Recent> {
        [("auto", Recent::Auto), ("on", Recent::On), ("off", Recent::Off)]
            .into_iter()
            .find(|r| r.0 == name)
            .map(|r| r.1)
    }

    /// Whether a cache of these types has the copy.
    pub fn applies(self, k: CacheType, v: CacheType) -> bool {
        match self {
            Recent::Auto => [k, v].contains(&CacheType::TQ3_1) && ![k, v].contains(&CacheType::C8),
            on => on == Recent::On,
        }
    }

    /// What a word like `tq3_1/f16+r64` asks for: types of keys and values (`f16` is `f16/f16`), and whether with the copy.
    /// Errors: a type that is none, in one line.
    pub fn parse_types(word: &str) -> Result<(CacheType, CacheType, Recent), String> {
        let known = || CacheType::ALL.map(CacheType::name).join(", ");
        let one = |name: &str| CacheType::parse(name).ok_or_else(|| format!("{name} is none of {}", known()));
        let (types, recent) = word.strip_suffix("+r64").map_or((word, Recent::Off), |types| (types, Recent::On));
        let (k, v) = types.split_once('/').unwrap_or((types, types));
        Ok((one(k)?, one(v)?, recent))
    }

    /// The types for messages: `tq3_1/tq3_1`, with `+r64` where a cache of them has the copy.
    pub fn title(self, k: CacheType, v: CacheType) -> String {
        format!("{}/{}{}", k.name(), v.name(), if self.applies(k, v) { "+r64" } else { "" })
    }
}

/// Positions of a chunk: a sequence may be taken up again where one begins without what came before in the f16 copy.
pub const RECENT_CHUNK: usize = CHUNK;

/// Positions in the f16 copy's ring: the chunks that a step of `ubatch` tokens may touch, and one for each sequence besides
/// the first, whose last chunk stays there between steps.
pub fn recent_positions(ubatch: usize, sequences: usize) -> usize {
    (CHUNK - 1 + ubatch).next_multiple_of(CHUNK) + (sequences - 1) * CHUNK
}

/// A plan and the buffers the host writes.
#[derive(Clone, Debug)]
pub struct Built {
    /// the plan
    pub plan: Plan,
    /// token ids `[token]`
    pub ids: BufId,
    /// RoPE table `[token][n_rot/2][cos, sin]`; where positions are learned, their rows `[token][dim]`
    pub rope: BufId,
    /// the same by another table, where some layers are rotated by one
    pub local_rope: Option<BufId>,
    /// of an encoder, what attention goes by in the place of the plan's `placing`: the same words (`ops::places`), every token
    /// being at the last position of its text, so that it sees all of it
    pub seen: Option<BufId>,
    /// of an encoder with windows, the same for the layers that have one (`ops::places::see_span`), and how many positions a
    /// token sees there on either side of its own
    pub span: Option<(BufId, u32)>,
    /// of a model with recurrent layers, the words of the step's strands (`ops::strands`)
    pub strands: Option<BufId>,
    /// sequences that a step may have tokens of
    pub sequences: usize,
    /// slots that a recurrent layer has for states, those for checkpoints among them; 0: there are none
    pub slots: usize,
    /// states that may be kept
    pub checkpoints: usize,
    /// positions a sequence may have: [`positions`] of what was asked for
    pub n_ctx: usize,
    /// by table (`ops::places`), the chunks of each page of the pool of the layers that go by it; none where no layer does
    pub pages: [Vec<usize>; TABLES],
    /// positions that queries of layers of the second table see; 0: there are none
    pub window: usize,
    /// by layer, where its cache lies
    pub layers: Vec<LayerCache>,
    /// words of all cache pages together
    pub cache_words: usize,
    /// words of all f16 copies of recent positions together, the same for every context; 0 where there are none
    pub recent_words: usize,
}

/// Where the cache of a layer lies.
#[derive(Clone, Debug, Default)]
pub struct LayerCache {
    /// the table it goes by
    pub table: usize,
    /// key-value heads
    pub heads: usize,
    /// by page, the buffers of keys and of values: `[head][position][word]`, of keys with 32 positions side by side
    pub pages: [Vec<BufId>; 2],
    /// words of a key and of a value of one head
    pub words: [usize; 2],
}

/// Positions a session asked for `n_ctx` has: whole chunks of 64. A window limits what a query sees of them, not how many
/// there are: the cache keeps them all.
pub fn positions(n_ctx: usize) -> usize {
    n_ctx.next_multiple_of(CHUNK)
}

//! `attention_quantize`: attention over one cache page, then its outputs to Q8K128 blocks, for heads that 128 outputs
//! hold whole or that hold 128 outputs whole.

use crate::ops::act_quantize::{ActQuantizeParams, act_quantize};
use crate::ops::attention::{AttentionParams, SCOPE_OLDER, attention, unit_heads};
use crate::ops::cache::CacheType;
use crate::ops::linear::{ACT_BLOCK_WORDS, act_words};
use crate::ops::params::{At, Params, params};
use crate::ops::places::Places;
use std::ops::Range;

params! {
    /// Parameters of `attention_quantize`: those of `attention`, then the digits of `act_quantize`.
    pub struct AttentionQuantizeParams {
        /// query rows
        pub n_tokens: u32,
        /// the first chunk that any of them sees
        pub chunk0: u32,
        /// how many there are from it on
        pub chunks: u32,
        /// query heads
        pub heads: u32,
        /// key-value heads
        pub kv_heads: u32,
        /// elements in a head: 32, 64, 128 or 256
        pub head_dim: u32,
        /// first position of this page
        pub page_first: u32,
        /// positions in this page, a multiple of 64
        pub page_len: u32,
        /// f32(1 / sqrt(head_dim))
        pub scale: f32,
        /// which positions a query sees, never `SCOPE_OLDER`
        pub scope: u32,
        /// how many positions a query sees at most; 0: no limit
        pub window: u32,
        /// which table of its sequence says where chunks lie
        pub table: u32,
        /// cap of scores; 0: none
        pub softcap: f32,
        /// f32(1 / softcap), or 0
        pub inv_softcap: f32,
        /// 1: the state holds the query heads' sinks; 0: there are none
        pub sinks: u32,
        /// digits of one activation: 1 (codes of 8 bits) or 2 (15 bits)
        pub digits: u32,
    }
}

impl Params for AttentionQuantizeParams {
    /// as of attention
    const OUTPUTS: usize = 2;
    const FLOAT_STRIDE: Option<usize> = Some(ACT_BLOCK_WORDS);

    fn at(self, step: &At) -> Option<Self> {
        let AttentionParams { n_tokens, chunk0, chunks, .. } = self.attention().at(step)?;
        Some(Self { n_tokens, chunk0, chunks, ..self })
    }

    fn groups(&self) -> [u32; 2] {
        [self.heads.div_ceil(unit_heads(self.head_dim)), self.n_tokens]
    }

    fn replaces(&self, output: usize) -> bool {
        output == 1
    }
}

impl AttentionQuantizeParams {
    /// Both operations in one, or `None` where blocks of 128 would cross the units of heads that a workgroup has,
    /// and where nothing is finished.
    pub fn new(p: &AttentionParams, digits: u32) -> Option<AttentionQuantizeParams> {
        let (heads, hd) = (p.heads, p.head_dim);
        let whole = matches!(hd, 128 | 256) || (matches!(hd, 32 | 64) && (heads * hd).is_multiple_of(128));
        let &AttentionParams { n_tokens, chunk0, chunks, heads, kv_heads, head_dim, page_first, page_len, .. } = p;
        let &AttentionParams { scale, scope, window, table, softcap, inv_softcap, sinks, .. } = p;
        (whole && scope != SCOPE_OLDER).then_some(AttentionQuantizeParams {
            n_tokens,
            chunk0,
            chunks,
            heads,
            kv_heads,
            head_dim,
            page_first,
            page_len,
            scale,
            scope,
            window,
            table,
            softcap,
            inv_softcap,
            sinks,
            digits,
        })
    }

    /// The first of the two operations.
    pub fn attention(&self) -> AttentionParams {
        let &AttentionQuantizeParams { n_tokens, chunk0, chunks, heads, kv_heads, head_dim, page_first, .. } = self;
        let &AttentionQuantizeParams { page_len, scale, scope, window, table, .. } = self;
        let &AttentionQuantizeParams { softcap, inv_softcap, sinks, .. } = self;
        AttentionParams {
            n_tokens,
            chunk0,
            chunks,
            heads,
            kv_heads,
            head_dim,
            page_first,
            page_len,
            scale,
            scope,
            window,
            table,
            softcap,
            inv_softcap,
            sinks,
        }
    }

    /// The second operation, of some neighbouring rows, with their first word in the blocks: of those whose position lies in
    /// this page, which are finished, and quantised, by it.
    pub fn quantize(&self, rows: &Range<usize>) -> (ActQuantizeParams, usize) {
        let k = self.heads * self.head_dim;
        let first = rows.start * act_words(k as usize, self.digits as usize);
        (ActQuantizeParams { n_tokens: rows.len() as u32, k, digits: self.digits }, first)
    }
}

/// `q`, `k`, `v` and `state` as in `attention`; `blocks` `[token][group][digit]` blocks of 37 words, written by the page
/// that holds the query's position.
pub fn attention_quantize(
    types: (CacheType, CacheType),
    p: &AttentionQuantizeParams,
    q: &[f32],
    k: &[u32],
    v: &[u32],
    places: Places,
    state: &mut [f32],
    blocks: &mut [u32],
) {
    let (row, n) = ((p.heads * p.head_dim) as usize, p.n_tokens as usize);
    let (of, page) = (p.attention(), p.attention().page());
    let mut out = vec![0f32; n * row];
    attention(types, &of, q, k, v, places, state, &mut out);
    let mut rows = page.run(&places, 0, n);
    while !rows.is_empty() {
        let (quantize, first) = p.quantize(&rows);
        act_quantize(&quantize, &out[rows.start * row..], &mut blocks[first..]);
        rows = page.run(&places, rows.end, n);
    }
}

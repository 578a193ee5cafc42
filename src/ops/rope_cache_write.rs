//! `rope_cache_write`: of rows that hold queries, keys and values, the queries rotated by position into a buffer of
//! their own, the keys rotated into the cache, the values into the cache.

use crate::ops::cache::{CacheType, CacheWriteParams, cache_write_k, cache_write_v};
use crate::ops::params::{At, Params, params};
use crate::ops::places::Places;
use crate::ops::rope::{RopeParams, rope};

params! {
    /// Parameters of `rope_cache_write`, in the order of the shader's uniform struct.
    pub struct RopeCacheWriteParams {
        /// rows
        pub n_tokens: u32,
        /// query heads in a row
        pub heads: u32,
        /// key heads after them, and as many value heads after those
        pub kv_heads: u32,
        /// elements in a head
        pub head_dim: u32,
        /// rotated elements at the start of each head (even)
        pub n_rot: u32,
        /// 0: pairs (2i, 2i+1); 1: pairs (i, i + n_rot/2)
        pub half_split: u32,
        /// first position of this page in the pool
        pub page_first: u32,
        /// positions in this page; rows outside it are left alone, their queries too
        pub page_len: u32,
        /// 1: the page is the ring as in `cache_write`; every row is written, and queries are left alone
        pub ring: u32,
        /// which table of its sequence says where a row lies
        pub table: u32,
    }
}

impl Params for RopeCacheWriteParams {
    /// queries, keys, values
    const OUTPUTS: usize = 3;
    const FLOAT_OUTPUT: usize = 0;

    fn at(self, step: &At) -> Option<Self> {
        let p = Self { n_tokens: step.n, ..self };
        p.write(1).is_written(step).then_some(p)
    }

    fn groups(&self) -> [u32; 2] {
        [2 * self.kv_heads + if self.ring == 1 { 0 } else { self.heads }, self.n_tokens]
    }
}

impl RopeCacheWriteParams {
    /// Words of a row of queries, and of a row of keys or of values.
    pub fn widths(&self) -> (usize, usize) {
        ((self.heads * self.head_dim) as usize, (self.kv_heads * self.head_dim) as usize)
    }

    /// `rope` of one row of `heads` heads.
    pub fn rope(&self, heads: u32) -> RopeParams {
        let p = self;
        RopeParams { n_tokens: 1, heads, head_dim: p.head_dim, n_rot: p.n_rot, half_split: p.half_split }
    }

    /// `cache_write` of so many rows.
    pub fn write(&self, n_tokens: usize) -> CacheWriteParams {
        CacheWriteParams {
            n_tokens: n_tokens as u32,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            page_first: self.page_first,
            page_len: self.page_len,
            ring: self.ring,
            table: self.table,
        }
    }
}

/// `table` `[token][n_rot/2][cos, sin]`; `qkv` `[token][heads + 2 kv_heads][head_dim]`; `q` `[token][heads][head_dim]`;
/// `keys`, `values`: one page each.
pub fn rope_cache_write(
    (kt, vt): (CacheType, CacheType),
    p: &RopeCacheWriteParams,
    table: &[f32],
    qkv: &[f32],
    places: Places,
    q: &mut [f32],
    keys: &mut [u32],
    values: &mut [u32],
) {
    let (width, kv_width) = p.widths();
    let mut key = vec![0f32; kv_width];
    let rows = 0..p.n_tokens as usize;
    for t in rows.filter(|&t| p.write(1).page().own(&places, t).is_some()) {
        let row = &qkv[t * (width + 2 * kv_width)..][..width + 2 * kv_width];
        let table = &table[t * p.n_rot as usize..][..p.n_rot as usize];
        if p.ring == 0 {
            let q = &mut q[t * width..][..width];
            q.copy_from_slice(&row[..width]);
            rope(&p.rope(p.heads), table, q);
        }
        key.copy_from_slice(&row[width..width + kv_width]);
        rope(&p.rope(p.kv_heads), table, &mut key);
        let values_row = &row[width + kv_width..];
        cache_write_k(kt, &p.write(1), places.from(t), &key, values_row, keys);
        cache_write_v(vt, &p.write(1), places.from(t), values_row, values);
    }
}

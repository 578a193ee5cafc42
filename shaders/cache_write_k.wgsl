// Keys into the cache.
#import cache_write
#import cache_places

const HEAD: u32 = 576u;

@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, kv_heads, head_dim)
@group(0) @binding(2) var<storage, read> beside: array<f32>;      // the values of the same tokens, likewise
@group(0) @binding(3) var<storage, read> places: array<u32>;      // (tokens, 4), tables (own_index.wgsl)
@group(0) @binding(4) var<storage, read_write> cache: array<u32>; // one page

const KEYS = true;

fn place(head: u32, pos: u32, words: u32, i: u32) -> u32 {
    return key_place(head, pos, words, i);
}

fn value_beside(i: u32) -> f32 {
    return beside[i];
}

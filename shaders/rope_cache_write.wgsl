// Rotary position embedding of queries and keys, keys and values into the cache.
#import rope_write

const HEAD: u32 = 256u;

@group(0) @binding(1) var<storage, read> table: array<f32>;       // (tokens, n_rot/2, [cos, sin])
@group(0) @binding(2) var<storage, read> qkv: array<f32>;         // (tokens, heads + 2 kv_heads, head_dim)
@group(0) @binding(3) var<storage, read> places: array<u32>;      // (tokens, 4), tables (own_index.wgsl)
@group(0) @binding(4) var<storage, read_write> q: array<f32>;     // (tokens, heads, head_dim)
@group(0) @binding(5) var<storage, read_write> keys: array<u32>;  // one page
@group(0) @binding(6) var<storage, read_write> values: array<u32>; // one page

fn query(i: u32, x: f32) -> f32 {
    return x;
}

fn key(i: u32, x: f32) -> f32 {
    return x;
}

fn value(i: u32, x: f32) -> f32 {
    return x;
}

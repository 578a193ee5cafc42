// Rotary position embedding of queries and keys, keys and values into a cache of which a side or both are c8: between the
// two, channel_quantize and channel_scale.
#import rope_write
#import channel_code

const HEAD: u32 = 256u;

@group(0) @binding(1) var<storage, read> table: array<f32>;       // (tokens, n_rot/2, [cos, sin])
@group(0) @binding(2) var<storage, read> channels: array<f32>;    // (c8 sides, [scale, offset], kv_heads, head_dim)
@group(0) @binding(3) var<storage, read> qkv: array<f32>;         // (tokens, heads + 2 kv_heads, head_dim)
@group(0) @binding(4) var<storage, read> places: array<u32>;      // (tokens, 4), tables (own_index.wgsl)
@group(0) @binding(5) var<storage, read_write> q: array<f32>;     // (tokens, heads, head_dim)
@group(0) @binding(6) var<storage, read_write> keys: array<u32>;  // one page
@group(0) @binding(7) var<storage, read_write> values: array<u32>; // one page

fn query(i: u32, x: f32) -> f32 {
    if k_type == C8 {
        return canon(B(x * channels[i]));
    }
    return x;
}

fn key(i: u32, x: f32) -> f32 {
    if k_type == C8 {
        return channel_code(x, channels[i], channels[p.kv_heads * p.head_dim + i]);
    }
    return x;
}

fn value(i: u32, x: f32) -> f32 {
    if v_type == C8 {
        let width = p.kv_heads * p.head_dim;
        let at = select(0u, 2u * width, k_type == C8) + i;
        return channel_code(x, channels[at], channels[width + at]);
    }
    return x;
}

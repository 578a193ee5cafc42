// The second pass of a split attention, then its outputs to Q8K128 blocks: a unit of heads is one group of 128 outputs, or
// two.
#import attend_parts_join
#import quantise

struct Params {
    n_tokens: u32,
    pos: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    page_first: u32,
    page_len: u32,
    scale: f32,
    scope: u32,
    window: u32,
    digits: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> parts: array<f32>;       // in the place of the queries: see shared/attend_parts.wgsl
@group(0) @binding(2) var<storage, read> k: array<u32>;           // not used: the first pass reads it
@group(0) @binding(3) var<storage, read> v: array<u32>;           // not used: the first pass reads it
@group(0) @binding(4) var<storage, read_write> carried: array<f32>; // (tokens, heads, [m, l, o[head_dim]])
@group(0) @binding(5) var<storage, read_write> blocks: array<u32>; // (tokens, groups, digits, 37)

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    if attend_parts_join(lid.x, wid.x, wid.y) {
        let per_unit = unit_heads() * p.head_dim / 128u;
        let slot = lid.x / 32u;
        let lane = lid.x % 32u;
        let live = slot < per_unit;
        var x = vec4<f32>(0.0, 0.0, 0.0, 0.0);
        for (var i = 0u; i < 4u; i++) {
            if live {
                x[i] = canon(row[lid.x * 4u + i]);
            }
        }
        let group = wid.y * (p.heads * p.head_dim / 128u) + wid.x * per_unit + slot;
        quantise(slot, lane, x, group * p.digits * 37u, live);
    }
}

// Rows of heads times the scale of each channel, as a c8 cache of keys or of values asks for it.
#import exact

struct Params {
    n_tokens: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    less_offset: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> scale: array<f32>;       // (kv_heads, head_dim)
@group(0) @binding(2) var<storage, read> offset: array<f32>;      // (kv_heads, head_dim)
@group(0) @binding(3) var<storage, read_write> x: array<f32>;     // (tokens, heads, head_dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i >= p.heads * p.head_dim {
        return;
    }
    let at = wid.y * p.heads * p.head_dim + i;
    let channel = (i / p.head_dim) / (p.heads / p.kv_heads) * p.head_dim + i % p.head_dim;
    var value = x[at];
    if p.less_offset == 1u {
        value = B(value - offset[channel]);
    }
    x[at] = canon(B(value * scale[channel]));
}

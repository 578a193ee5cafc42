// RMS norms of the heads of queries and keys where they lie, before the values of their token: a workgroup a head.
#import norm

struct Params {
    n_tokens: u32,
    heads: u32,
    kv_heads: u32,
    dim: u32,
    inv_n: f32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> w: array<f32>;           // (2, dim): of queries, of keys
@group(0) @binding(2) var<storage, read_write> x: array<f32>;     // (tokens, heads + 2 kv_heads, dim)

// A lane writes the elements that it alone has read, but for what those past the last element read and do not use.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = (wid.y * (p.heads + 2u * p.kv_heads) + wid.x) * p.dim;
    let own = select(0u, p.dim, wid.x >= p.heads);
    let s = norm_scale(row, lid.x);
    for (var e = lid.x; e < p.dim; e += 256u) {
        x[row + e] = normed(x[row + e], s, w[own + e]);
    }
}

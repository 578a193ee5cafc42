// RMS norm, one workgroup a row, summed in 256 lanes and a halving tree.
#import norm

struct Params {
    n_tokens: u32,
    dim: u32,
    inv_n: f32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, dim)
@group(0) @binding(2) var<storage, read> w: array<f32>;           // (dim)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // (tokens, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.y * p.dim;
    let s = norm_scale(row, lid.x);
    for (var first = lid.x; first < p.dim; first += 1024u) {
        var v: array<vec2<f32>, 4>;
        for (var i = 0u; i < 4u; i++) {
            let e = min(first + 256u * i, p.dim - 1u);
            v[i] = vec2<f32>(x[row + e], w[e]);
        }
        for (var i = 0u; i < 4u; i++) {
            if first + 256u * i < p.dim {
                y[row + first + 256u * i] = normed(v[i].x, s, v[i].y);
            }
        }
    }
}

// Layer norm, one workgroup a row; both means summed in 256 lanes and a halving tree, as those of an RMS norm.
#import norm

struct Params {
    n_tokens: u32,
    dim: u32,
    inv_n: f32,
    eps: f32,
    w_rows: u32,
    biased: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (rows, dim)
@group(0) @binding(2) var<storage, read> w: array<f32>;           // (w_rows, dim)
@group(0) @binding(3) var<storage, read> b: array<f32>;           // (w_rows, dim), or not read
@group(0) @binding(4) var<storage, read_write> y: array<f32>;     // (rows, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.y * p.dim;
    var sum = B(0.0);
    for (var first = lid.x; first < p.dim; first += 1024u) {
        var v: array<f32, 4>;
        for (var i = 0u; i < 4u; i++) {
            v[i] = x[row + min(first + 256u * i, p.dim - 1u)];
        }
        for (var i = 0u; i < 4u; i++) {
            // the sum is not -0, so that a zero in the place of what there is not adds nothing
            sum = B(sum + select(0.0, v[i], first + 256u * i < p.dim));
        }
    }
    let mean = mean_of_lanes(lid.x, sum);
    workgroupBarrier();
    sum = B(0.0);
    for (var first = lid.x; first < p.dim; first += 1024u) {
        var v: array<f32, 4>;
        for (var i = 0u; i < 4u; i++) {
            v[i] = x[row + min(first + 256u * i, p.dim - 1u)];
        }
        for (var i = 0u; i < 4u; i++) {
            let d = canon(B(v[i] - mean));
            let square = select(0.0, d * d, first + 256u * i < p.dim);
            sum = B(sum + B(square));
        }
    }
    let s = fdiv(1.0, fsqrt(B(mean_of_lanes(lid.x, sum) + p.eps)));
    let weights = wid.y % p.w_rows * p.dim;
    for (var first = lid.x; first < p.dim; first += 1024u) {
        var v: array<f32, 4>;
        for (var i = 0u; i < 4u; i++) {
            v[i] = x[row + min(first + 256u * i, p.dim - 1u)];
        }
        for (var i = 0u; i < 4u; i++) {
            let e = first + 256u * i;
            if e < p.dim {
                var result = normed(canon(B(v[i] - mean)), s, w[weights + e]);
                if p.biased == 1u {
                    result = canon(B(result + b[weights + e]));
                }
                y[row + e] = result;
            }
        }
    }
}

// Streams made as large as the one that layers work on, one workgroup a stream; mean squares summed in 256 lanes and a
// halving tree, as those of an RMS norm.
#import lane_mean

struct Params {
    n_tokens: u32,
    dim: u32,
    inv_n: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, dim)
@group(0) @binding(2) var<storage, read_write> others: array<f32>; // (tokens, 3, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let model = wid.y * p.dim;
    let row = (wid.y * 3u + wid.x) * p.dim;
    var sums = array<f32, 2>(B(0.0), B(0.0));
    for (var first = lid.x; first < p.dim; first += 1024u) {
        var v: array<vec2<f32>, 4>;
        for (var i = 0u; i < 4u; i++) {
            let e = min(first + 256u * i, p.dim - 1u);
            v[i] = vec2<f32>(x[model + e], others[row + e]);
        }
        for (var i = 0u; i < 4u; i++) {
            // sums are not -0, so that a zero in the place of what there is not adds nothing
            let there = first + 256u * i < p.dim;
            sums[0] = B(sums[0] + B(select(0.0, v[i].x * v[i].x, there)));
            sums[1] = B(sums[1] + B(select(0.0, v[i].y * v[i].y, there)));
        }
    }
    let wanted = mean_of_lanes(lid.x, sums[0]);
    workgroupBarrier();
    let found = bitcast<u32>(mean_of_lanes(lid.x, sums[1]));
    // 1e-5 at least; neither is negative, so that their bits are in the numbers' order
    let s = fdiv(fsqrt(wanted), fsqrt(bitcast<f32>(max(found, 0x3727c5acu))));
    for (var e = lid.x; e < p.dim; e += 256u) {
        others[row + e] = canon(B(others[row + e] * s));
    }
}

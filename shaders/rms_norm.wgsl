// RMS norm, one workgroup a row, summed in 256 lanes and a halving tree.
#import exact

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

var<workgroup> lanes: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.y * p.dim;
    var acc = 0.0;
    for (var i = lid.x; i < p.dim; i += 256u) {
        let v = x[row + i];
        acc = B(acc + B(v * v));
    }
    lanes[lid.x] = acc;
    workgroupBarrier();
    for (var s = 128u; s > 0u; s = s >> 1u) {
        if lid.x < s {
            lanes[lid.x] = B(lanes[lid.x] + lanes[lid.x + s]);
        }
        workgroupBarrier();
    }
    let mean = B(lanes[0] * p.inv_n);
    let s = fdiv(1.0, fsqrt(B(mean + p.eps)));
    for (var i = lid.x; i < p.dim; i += 256u) {
        y[row + i] = canon(B(B(x[row + i] * s) * w[i]));
    }
}

// What a row exceeds its mean and so many deviations by, one workgroup a row; both means summed as those of a layer norm.
#import lane_mean

struct Params {
    n_tokens: u32,
    dim: u32,
    inv_n: f32,
    factor: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;     // (rows, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.y * p.dim;
    var sum = B(0.0);
    for (var first = lid.x; first < p.dim; first += 1024u) {
        let v = four(row, first);
        for (var i = 0u; i < 4u; i++) {
            // the sum is not -0, so that a zero in the place of what there is not adds nothing
            sum = B(sum + select(0.0, v[i], first + 256u * i < p.dim));
        }
    }
    let mean = mean_of_lanes(lid.x, sum);
    workgroupBarrier();
    sum = B(0.0);
    for (var first = lid.x; first < p.dim; first += 1024u) {
        let v = four(row, first);
        for (var i = 0u; i < 4u; i++) {
            let d = canon(B(v[i] - mean));
            sum = B(sum + B(select(0.0, d * d, first + 256u * i < p.dim)));
        }
    }
    let deviation = fsqrt(mean_of_lanes(lid.x, sum));
    let bound = B(mean + B(deviation * p.factor));
    // each lane only what is its own: nobody reads what another has replaced
    for (var e = lid.x; e < p.dim; e += 256u) {
        let rest = bitcast<u32>(canon(B(x[row + e] - bound)));
        x[row + e] = bitcast<f32>(select(rest, 0u, (rest >> 31u) == 1u));
    }
}

// Four elements of a row that a lane has, all asked for before the first is used; past the end the last one.
fn four(row: u32, first: u32) -> vec4<f32> {
    var v: vec4<f32>;
    for (var i = 0u; i < 4u; i++) {
        v[i] = x[row + min(first + 256u * i, p.dim - 1u)];
    }
    return v;
}

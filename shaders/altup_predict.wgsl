// The streams of a token before a layer: each takes a share of all of them.
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> c: array<f32>;           // (tokens, 4, 4)
@group(0) @binding(2) var<storage, read_write> x: array<f32>;     // (tokens, dim)
@group(0) @binding(3) var<storage, read_write> others: array<f32>; // (tokens, 3, dim)

// A stream of which this is an element, with its shares of four.
fn predicted(row: u32, own: f32, streams: vec4<f32>) -> f32 {
    var acc = own;
    for (var j = 0u; j < 4u; j++) {
        acc = B(acc + B(c[row + j] * streams[j]));
    }
    return canon(acc);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let e = wid.x * 256u + lid.x;
    if e < p.dim {
        let at = wid.y * p.dim + e;
        let other = wid.y * 3u * p.dim + e;
        let streams = vec4<f32>(x[at], others[other], others[other + p.dim], others[other + 2u * p.dim]);
        let row = wid.y * 16u;
        x[at] = predicted(row, streams.x, streams);
        others[other] = predicted(row + 4u, streams.y, streams);
        others[other + p.dim] = predicted(row + 8u, streams.z, streams);
        others[other + 2u * p.dim] = predicted(row + 12u, streams.w, streams);
    }
}

// What attention starts from in a layer with sinks: of every token and query head the sink, the sum 1, and values of 0.
#import exact

struct Params {
    n_tokens: u32,
    heads: u32,
    head_dim: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> sinks: array<f32>;       // (heads)
@group(0) @binding(2) var<storage, read_write> carried: array<f32>; // (tokens, heads, [m, l, o[head_dim]])

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let words = p.head_dim + 2u;
    let i = wid.x * 256u + lid.x;
    if i < p.heads * words {
        let head = i / words;
        let e = i - head * words;
        let first = select(0.0, 1.0, e == 1u);
        carried[wid.y * p.heads * words + i] = bitcast<f32>(select(bitcast<u32>(first), bitcast<u32>(canon(sinks[head])), e == 0u));
    }
}

// The step sizes of a state space layer, and what share of its state stays over such a step.
#import exact
#import softplus

struct Params {
    n_tokens: u32,
    heads: u32,
    least: f32,
    most: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, heads)
@group(0) @binding(2) var<storage, read> a: array<f32>;           // (heads)
@group(0) @binding(3) var<storage, read> bias: array<f32>;        // (heads)
@group(0) @binding(4) var<storage, read_write> gates: array<f32>; // (tokens, 2, heads)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let h = wid.x * 64u + lid.x;
    if h < p.heads {
        let open = softplus(canon(B(x[wid.y * p.heads + h] + bias[h])));
        // none is negative, so that their bits are in the numbers' order
        let held = min(max(bitcast<u32>(open), bitcast<u32>(p.least)), bitcast<u32>(p.most));
        let dt = bitcast<f32>(select(held, bitcast<u32>(open), not_finite(open)));
        let row = wid.y * 2u * p.heads;
        gates[row + h] = dt;
        gates[row + p.heads + h] = canon(fexp(canon(B(dt * a[h]))));
    }
}

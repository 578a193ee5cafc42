// How much a gated delta net takes of what is new, and what share of its state stays.
#import exact
#import softplus

struct Params {
    n_tokens: u32,
    heads: u32,
    group: u32,
    b_scale: f32,
    a_scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> ba: array<f32>;          // (tokens, heads / group, 2, group)
@group(0) @binding(2) var<storage, read> a: array<f32>;           // (heads)
@group(0) @binding(3) var<storage, read> dt: array<f32>;          // (heads)
@group(0) @binding(4) var<storage, read_write> gates: array<f32>; // (tokens, 2, heads)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let h = wid.x * 64u + lid.x;
    if h < p.heads {
        let row = wid.y * 2u * p.heads;
        let at = row + h / p.group * 2u * p.group + h % p.group;
        gates[row + h] = canon(sigmoid(canon(B(ba[at] * p.b_scale))));
        let open = softplus(canon(B(canon(B(ba[at + p.group] * p.a_scale)) + dt[h])));
        gates[row + p.heads + h] = canon(fexp(canon(B(a[h] * open))));
    }
}

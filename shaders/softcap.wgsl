// x = cap · tanh(x / cap).
#import softcap

struct Params {
    n_tokens: u32,
    dim: u32,
    cap: f32,
    inv_cap: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;     // (tokens, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        let at = wid.y * p.dim + i;
        x[at] = softcap(x[at], p.cap, p.inv_cap);
    }
}

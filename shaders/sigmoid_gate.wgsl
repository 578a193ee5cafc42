// y = y · sigmoid(g).
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
    gates: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> g: array<f32>;           // (tokens, gates)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;     // (tokens, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        let gate = g[wid.y * p.gates + select(i, 0u, p.gates == 1u)];
        let at = wid.y * p.dim + i;
        y[at] = canon(B(y[at] * sigmoid(gate)));
    }
}

// Copies the rows whose logits are wanted.

struct Params {
    n_tokens: u32,
    dim: u32,
    first: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;           // (tokens, dim)
@group(0) @binding(2) var<storage, read_write> y: array<u32>;     // (rows, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        y[wid.y * p.dim + i] = x[(p.first + wid.y) * p.dim + i];
    }
}

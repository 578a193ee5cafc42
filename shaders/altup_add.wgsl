// One row added to each of the streams that no layer works on.
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> y: array<f32>;           // (tokens, dim)
@group(0) @binding(2) var<storage, read_write> others: array<f32>; // (tokens, 3, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < 3u * p.dim {
        let at = wid.y * 3u * p.dim + i;
        others[at] = canon(B(others[at] + y[wid.y * p.dim + i % p.dim]));
    }
}

// What the experts of a token gave, times their weights, slot after slot.
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
    used: u32,
    residual: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> y: array<f32>;           // (tokens, used, dim)
@group(0) @binding(2) var<storage, read> weights: array<f32>;     // (tokens, used)
@group(0) @binding(3) var<storage, read_write> x: array<f32>;     // (tokens, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        var acc = B(0.0);
        for (var s = 0u; s < p.used; s++) {
            let pair = wid.y * p.used + s;
            acc = B(acc + B(weights[pair] * y[pair * p.dim + i]));
        }
        let at = wid.y * p.dim + i;
        var value = canon(acc);
        if p.residual == 1u {
            value = canon(B(x[at] + value));
        }
        x[at] = value;
    }
}

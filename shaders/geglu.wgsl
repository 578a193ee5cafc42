// y = gelu(gate) · up, gelu in its tanh form or by the error function.
#import gelu
#import gelu_erf

struct Params {
    n_tokens: u32,
    dim: u32,
    erf: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gate: array<f32>;        // (tokens, dim)
@group(0) @binding(2) var<storage, read> up: array<f32>;          // (tokens, dim)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // (tokens, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        let at = wid.y * p.dim + i;
        if p.erf == 1u {
            y[at] = canon(B(gelu_erf(gate[at]) * up[at]));
        } else {
            y[at] = gelu_times(gate[at], up[at]);
        }
    }
}

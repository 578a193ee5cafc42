// The kernel of swiglu_quantize; the importing shader gives `quantize`.
#import silu
#import act_digits

struct Params {
    n_tokens: u32,
    dim: u32,
    digits: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gate_up: array<f32>;     // (tokens, [gate, up], dim)
@group(0) @binding(2) var<storage, read_write> blocks: array<u32>; // (tokens, groups, digits, 37)

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let groups = (p.dim + 127u) / 128u;
    let first = wid.x * 128u + lid.x * 4u;
    let row = wid.y * 2u * p.dim;
    var v = vec4<f32>(0.0, 0.0, 0.0, 0.0);
    for (var i = 0u; i < 4u; i++) {
        if first + i < p.dim {
            v[i] = silu_times(gate_up[row + first + i], gate_up[row + p.dim + first + i]);
        }
    }
    quantize(0u, lid.x, v, (wid.y * groups + wid.x) * act_digits * ACT_BLOCK_WORDS, true);
}

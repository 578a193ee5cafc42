// Clamped gate · sigmoid(1.702 gate) · (up + 1).
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
    limit: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gate_up: array<f32>;     // (tokens, 2, dim)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;     // (tokens, dim)

// x, its magnitude the limit at most; by the bits, so that a NaN stays one
fn within(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    let limit = bitcast<u32>(p.limit);
    return bitcast<f32>(select(bits, (bits & 0x80000000u) | limit, magnitude > limit && magnitude < 0x7f800000u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        let gate = gate_up[2u * wid.y * p.dim + i];
        let g = bitcast<f32>(select(bitcast<u32>(within(gate)), bitcast<u32>(gate), (bitcast<u32>(gate) >> 31u) == 1u));
        let u = within(gate_up[(2u * wid.y + 1u) * p.dim + i]);
        y[wid.y * p.dim + i] = canon(B(B(g * sigmoid(B(1.702 * g))) * B(u + 1.0)));
    }
}

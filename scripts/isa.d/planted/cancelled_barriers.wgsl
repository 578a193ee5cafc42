// expect: fused naked
// Two barriers by exclusive or in a row cancel once the sum from zero is folded.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<private> zero: u32;
fn B(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) ^ zero);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    zero = wg.z;
    var t = 0.0;
    for (var b = 0u; b < 4u; b++) {
        t = B(t + B(x[4u * i + b] * x[params.n + 4u * i + b]));
    }
    y[i] = t;
}

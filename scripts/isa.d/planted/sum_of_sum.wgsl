// expect: naked
// A sum feeds a sum with no barrier between.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    y[i] = x[i] + x[i + params.n] + x[i + params.m];
}

// expect: transcendental
// A reciprocal of an integer, as those of integer divisions, but the float itself is used.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    y[i] = 1.0 / f32(params.n + i);
}

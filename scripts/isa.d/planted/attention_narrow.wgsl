// expect: loads
// A kernel that reads a cache, by its name, with one load of 4 bytes before it asks for the next.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 1u;
    var at = id.x;
    for (var i = 0u; i < params.n; i++) {
        at = x[at];
        sum = (sum ^ at) * params.m;
    }
    y[id.x] = sum;
}

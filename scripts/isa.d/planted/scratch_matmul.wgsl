// expect: spill
// A kernel that runs before anything is measured, by its name, with an array that registers cannot index.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var kept: array<u32, 512>;
    for (var i = 0u; i < params.n; i++) {
        kept[x[i * params.m + id.x] & 511u] += i;
    }
    y[id.x] = kept[params.m & 511u];
}

// expect: clean
// A kernel that reads a cache, by its name, with thirty-two loads of 4 bytes before it waits.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 1u;
    for (var i = 0u; i < params.n; i++) {
        var words: array<u32, 32>;
        for (var j = 0u; j < 32u; j++) {
            words[j] = x[(32u * i + j) * params.m + id.x];
        }
        for (var j = 0u; j < 32u; j++) {
            sum = (sum ^ words[j]) * 3u;
        }
    }
    y[id.x] = sum;
}

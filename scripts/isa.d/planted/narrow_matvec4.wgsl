// expect: loads
// A kernel of decode, by its name, that waits for one load of 16 bytes before it asks for the next.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var at = id.x;
    var sum = vec4(0u);
    for (var i = 0u; i < params.n; i++) {
        let v = x[at];
        sum += v;
        // where the next one lies is known only once this one is there
        at = v.x;
    }
    y[id.x] = sum;
}

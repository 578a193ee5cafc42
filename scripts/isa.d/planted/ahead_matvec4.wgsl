// expect: clean
// A kernel of decode, by its name, whose turn asks for what the next one needs.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = vec4(0u);
    var at = 8u * id.x;
    var v0 = x[at + 0u];
    var v1 = x[at + 1u];
    var v2 = x[at + 2u];
    var v3 = x[at + 3u];
    var v4 = x[at + 4u];
    var v5 = x[at + 5u];
    var v6 = x[at + 6u];
    var v7 = x[at + 7u];
    for (var i = 0u; i < params.n; i++) {
        sum += ((v0 ^ v1) * (v2 ^ v3)) ^ ((v4 ^ v5) * (v6 ^ v7));
        at += params.m;
        v0 = x[at + 0u];
        v1 = x[at + 1u];
        v2 = x[at + 2u];
        v3 = x[at + 3u];
        v4 = x[at + 4u];
        v5 = x[at + 5u];
        v6 = x[at + 6u];
        v7 = x[at + 7u];
    }
    y[id.x] = sum;
}

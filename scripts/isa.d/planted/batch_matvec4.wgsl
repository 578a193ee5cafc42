// expect: clean
// A kernel of decode, by its name, that asks for eight loads of 16 bytes and waits then.
struct Params { n: u32, m: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = vec4(0u);
    for (var i = 0u; i < params.n; i++) {
        let at = 8u * (i * params.m + id.x);
        let v0 = x[at + 0u];
        let v1 = x[at + 1u];
        let v2 = x[at + 2u];
        let v3 = x[at + 3u];
        let v4 = x[at + 4u];
        let v5 = x[at + 5u];
        let v6 = x[at + 6u];
        let v7 = x[at + 7u];
        sum += ((v0 ^ v1) * (v2 ^ v3)) ^ ((v4 ^ v5) * (v6 ^ v7));
    }
    y[id.x] = sum;
}

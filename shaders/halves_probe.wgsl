// The probe of f16: what `halves` makes of the words it is given.
#import halves

struct Params {
    n: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;           // (n)
@group(0) @binding(2) var<storage, read_write> out: array<u32>;   // (n, 2)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    zero = wid.z;
    let i = wid.x * 64u + lane;
    if i < p.n {
        let two = halves(x[i]);
        out[2u * i] = bitcast<u32>(two.x);
        out[2u * i + 1u] = bitcast<u32>(two.y);
    }
}

// Keys or values to the integers a c8 cache holds, by a scale and an offset of each channel.
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> scale: array<f32>;       // (dim)
@group(0) @binding(2) var<storage, read> offset: array<f32>;      // (dim)
@group(0) @binding(3) var<storage, read_write> x: array<f32>;     // (tokens, dim)

// Rounded, ties to even, and within a signed byte; POISON for what is not finite.
fn code(x: f32, scale: f32, offset: f32) -> f32 {
    let bad = too_large(x);
    let known = bitcast<f32>(select(bitcast<u32>(x), 0u, bad));
    let c = round(B(clamp(B(fdiv(known, scale) + offset), -128.0, 127.0)));
    return bitcast<f32>(select(bitcast<u32>(i2f(i32(c))), POISON, bad));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        let at = wid.y * p.dim + i;
        x[at] = code(x[at], scale[i], offset[i]);
    }
}

// Keys or values to the integers a c8 cache holds, by a scale and an offset of each channel.
#import channel_code

struct Params {
    n_tokens: u32,
    dim: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> scale: array<f32>;       // (dim)
@group(0) @binding(2) var<storage, read> offset: array<f32>;      // (dim)
@group(0) @binding(3) var<storage, read_write> x: array<f32>;     // (tokens, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        let at = wid.y * p.dim + i;
        x[at] = channel_code(x[at], scale[i], offset[i]);
    }
}

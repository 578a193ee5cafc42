// Scale of an expert's matrix.
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
    y_stride: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> s: array<f32>;           // (experts)
@group(0) @binding(2) var<storage, read> ids: array<u32>;         // (pairs)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // (pairs, y_stride)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let i = wid.x * 256u + lid.x;
    if i < p.dim {
        let at = wid.y * p.y_stride + p.y_offset + i;
        y[at] = canon(B(s[ids[wid.y]] * y[at]));
    }
}

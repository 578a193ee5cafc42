// Copies neighbouring columns of each row to columns of the rows of another buffer.

struct Params {
    n_tokens: u32,
    n: u32,
    x_stride: u32,
    x_offset: u32,
    y_stride: u32,
    y_offset: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;           // (rows, x_stride)
@group(0) @binding(2) var<storage, read_write> y: array<u32>;     // (rows, y_stride)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let i = wid.x * 64u + lid.x;
    if i < p.n {
        y[wid.y * p.y_stride + p.y_offset + i] = x[wid.y * p.x_stride + p.x_offset + i];
    }
}

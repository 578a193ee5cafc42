// What frames of a linear by experts share: parameters, and buffers beside weights and activations.
struct Params {
    n_tokens: u32,
    k: u32,
    rows: u32,
    digits: u32,
    y_stride: u32,
    y_offset: u32,
    used: u32,
    share: u32,
    experts: u32,
    expert0: u32,
    held: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read> ids: array<u32>;         // (pairs)
@group(0) @binding(4) var<storage, read> order: array<u32>;       // (experts + 1), then (pairs)
@group(0) @binding(5) var<storage, read_write> y: array<f32>;     // (pairs, y_stride)

fn store_row(row: u32, at: u32, total: f32) {
    if row < p.rows {
        y[at] = canon(total);
    }
}

// Writes the results of four rows of one pair.
fn store(row: u32, pair: u32, total: vec4<f32>) {
    let at = pair * p.y_stride + p.y_offset + row;
    store_row(row, at, total.x);
    store_row(row + 1u, at + 1u, total.y);
    store_row(row + 2u, at + 2u, total.z);
    store_row(row + 3u, at + 3u, total.w);
}

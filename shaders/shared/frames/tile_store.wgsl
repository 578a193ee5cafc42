// Writes the results of four rows of one token, or adds them to the residual stream.
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // (tokens, y_stride)

fn store_row(row: u32, at: u32, total: f32) {
    if row < p.rows {
        var value = canon(total);
        if p.residual == 1u {
            value = canon(B(y[at] + value));
        }
        y[at] = value;
    }
}

fn store(row: u32, token: u32, total: vec4<f32>) {
    let at = token * p.y_stride + p.y_offset + row;
    store_row(row, at, total.x);
    store_row(row + 1u, at + 1u, total.y);
    store_row(row + 2u, at + 2u, total.z);
    store_row(row + 3u, at + 3u, total.w);
}

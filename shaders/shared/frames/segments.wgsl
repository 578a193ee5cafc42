// Joins the segment sums of 32 rows: sums[segment * 32 + lane], added in segment order; then to the residual stream
// where that is asked for.
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // (tokens, y_stride)

var<workgroup> sums: array<f32, 256>;

fn join_segments(row_block: u32, lane: u32, segment: u32, token: u32, acc: f32) {
    sums[segment * 32u + lane] = acc;
    workgroupBarrier();
    if segment == 0u {
        var total = B(0.0);
        for (var s = 0u; s < 8u; s++) {
            total = B(total + sums[s * 32u + lane]);
        }
        let row = row_block * 32u + lane;
        if row < p.rows {
            let at = token * p.y_stride + p.y_offset + row;
            var value = canon(total);
            if p.residual == 1u {
                value = canon(B(y[at] + value));
            }
            y[at] = value;
        }
    }
}

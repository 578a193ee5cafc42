// Scale of an RMS norm by a workgroup of 256 lanes: each adds every 256th square, then a halving tree. The importing
// shader gives the parameters `p` (dim, inv_n, eps) and the rows `x`.
#import exact

var<workgroup> lanes: array<f32, 256>;

// 1 / sqrt(mean of squares + eps) of the row that starts at `row`; every lane calls.
fn norm_scale(row: u32, lane: u32) -> f32 {
    var acc = 0.0;
    for (var i = lane; i < p.dim; i += 256u) {
        let v = x[row + i];
        acc = B(acc + B(v * v));
    }
    lanes[lane] = acc;
    workgroupBarrier();
    for (var s = 128u; s > 0u; s = s >> 1u) {
        if lane < s {
            lanes[lane] = B(lanes[lane] + lanes[lane + s]);
        }
        workgroupBarrier();
    }
    let mean = B(lanes[0] * p.inv_n);
    return fdiv(1.0, fsqrt(B(mean + p.eps)));
}

fn normed(v: f32, s: f32, weight: f32) -> f32 {
    return canon(B(B(v * s) * weight));
}

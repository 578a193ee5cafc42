// Scale of an RMS norm by a workgroup of 256 lanes: each adds every 256th square, then a halving tree, whose first four
// steps 16 lanes make and whose last four every lane makes for itself. The importing shader gives the parameters `p`
// (dim, inv_n, eps) and the rows `x`.
#import exact

var<workgroup> lanes: array<f32, 256>;

// 1 / sqrt(mean of squares + eps) of the row that starts at `row`; every lane calls.
fn norm_scale(row: u32, lane: u32) -> f32 {
    var acc = B(0.0);
    for (var i = lane; i < p.dim; i += 256u) {
        let v = x[row + i];
        acc = B(acc + B(v * v));
    }
    lanes[lane] = acc;
    workgroupBarrier();
    if lane < 16u {
        lanes[lane] = tree16(lane, 16u);
    }
    workgroupBarrier();
    let mean = B(tree16(0u, 1u) * p.inv_n);
    return fdiv(1.0, fsqrt(B(mean + p.eps)));
}

// The halving tree over 16 of `lanes`: from `first` on, every `step`th.
fn tree16(first: u32, step: u32) -> f32 {
    var v: array<f32, 8>;
    for (var i = 0u; i < 8u; i++) {
        v[i] = B(lanes[first + i * step] + lanes[first + (i + 8u) * step]);
    }
    for (var s = 4u; s > 0u; s = s >> 1u) {
        for (var i = 0u; i < s; i++) {
            v[i] = B(v[i] + v[i + s]);
        }
    }
    return v[0];
}

fn normed(v: f32, s: f32, weight: f32) -> f32 {
    return canon(B(B(v * s) * weight));
}

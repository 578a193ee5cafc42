// Scale of an RMS norm by a workgroup of 256 lanes, of which each adds every 256th square. The importing shader gives the
// parameters `p` (dim, inv_n, eps) and the rows `x`.
#import lane_mean

// Elements a lane asks for before it adds the first.
const AHEAD: u32 = 8u;

// 1 / sqrt(mean of squares + eps) of the row that starts at `row`; every lane calls.
fn norm_scale(row: u32, lane: u32) -> f32 {
    var acc = B(0.0);
    let whole = p.dim / (256u * AHEAD) * (256u * AHEAD);
    for (var done = 0u; done < whole; done += 256u * AHEAD) {
        var v: array<f32, AHEAD>;
        for (var i = 0u; i < AHEAD; i++) {
            v[i] = x[row + done + 256u * i + lane];
        }
        for (var i = 0u; i < AHEAD; i++) {
            acc = B(acc + B(v[i] * v[i]));
        }
    }
    // what is left, four at a time; the sum is not -0, so that a zero in the place of what there is not adds nothing
    for (var done = whole; done < p.dim; done += 1024u) {
        var v: array<f32, 4>;
        for (var i = 0u; i < 4u; i++) {
            v[i] = x[row + min(done + 256u * i + lane, p.dim - 1u)];
        }
        for (var i = 0u; i < 4u; i++) {
            let square = select(0.0, v[i] * v[i], done + 256u * i + lane < p.dim);
            acc = B(acc + B(square));
        }
    }
    return fdiv(1.0, fsqrt(B(mean_of_lanes(lane, acc) + p.eps)));
}

fn normed(v: f32, s: f32, weight: f32) -> f32 {
    return canon(B(B(v * s) * weight));
}

// Means of what a workgroup of 256 lanes has summed, by a halving tree, whose first four steps 16 lanes make and whose last
// four every lane makes for itself. The importing shader gives the parameters `p` (inv_n).
#import exact

var<workgroup> lanes: array<f32, 256>;

// The mean of the lanes' sums; every lane calls, and between two calls there is a barrier.
fn mean_of_lanes(lane: u32, sum: f32) -> f32 {
    lanes[lane] = sum;
    workgroupBarrier();
    if lane < 16u {
        lanes[lane] = tree16(lane, 16u);
    }
    workgroupBarrier();
    return B(tree16(0u, 1u) * p.inv_n);
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

// The segment sums of 32 rows, four to a lane, and what a lane makes of them in segment order.
#import tile_store

var<workgroup> sums: array<vec4<f32>, 64>; // (segments, lanes)

fn join_sums(row_block: u32, lane: u32, token: u32) {
    var total = B4(vec4<f32>());
    for (var s = 0u; s < 8u; s++) {
        total = B4(total + sums[s * 8u + lane]);
    }
    store(row_block * 32u + lane * 4u, token, total);
}

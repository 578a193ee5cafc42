// Joins the segment sums of 32 rows, four to a lane, in segment order.
#import tile_store

var<workgroup> sums: array<vec4<f32>, 64>; // (segments, lanes)

fn join4(row_block: u32, lane: u32, segment: u32, token: u32) {
    sums[segment * 8u + lane] = acc[0];
    workgroupBarrier();
    if segment == 0u {
        var total = B4(vec4<f32>());
        for (var s = 0u; s < 8u; s++) {
            total = B4(total + sums[s * 8u + lane]);
        }
        store(row_block * 32u + lane * 4u, token, total);
    }
}

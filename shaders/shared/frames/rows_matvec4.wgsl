// Decode: a thread makes 4 rows of one token and one segment, a workgroup 32 rows. The importing shader brings the type.
const T = 1u;
#import linear_params
#import rows_tile
#import tile_store

var<workgroup> sums: array<vec4<i32>, 64>; // (segments, lanes)

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = wid.y;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = wid.x * row_words() * 8u + lid.x;
    let end = min((lid.y + 1u) * seg, groups);
    sum[0] = vec4<i32>();
    for (var g = lid.y * seg; g < end; g++) {
        add_group(row, g);
    }
    sums[lid.y * 8u + lid.x] = sum[0];
    workgroupBarrier();
    if lid.y == 0u {
        var total = vec4<i32>();
        for (var s = 0u; s < 8u; s++) {
            total += sums[s * 8u + lid.x];
        }
        store(wid.x * 32u + lid.x * 4u, wid.y, row_values(row, total, row_scale(0u)));
    }
}

// Decode: a thread makes 4 rows of one token and one segment, a workgroup 32 rows.
// The importing shader brings the tile of its type.
const T = 1u;
#import linear_params
#import join4

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    prepare(lid.y * 8u + lid.x, 64u);
    first = wid.y;
    acc[0] = B4(vec4<f32>());
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = wid.x * row_words() * 8u + lid.x;
    let end = min((lid.y + 1u) * seg, groups);
    for (var g = lid.y * seg; g < end; g++) {
        add_group(row, g);
    }
    join4(wid.x, lid.x, lid.y, wid.y);
}

// Linear by experts, slot after slot: matvec4 with the matrix of the expert that a slot has chosen. A workgroup makes 32 rows
// of one slot. The importing shader brings the tile of its type.
const T = 1u;
#import expert_params

var<workgroup> sums: array<vec4<f32>, 64>; // (segments, lanes)

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row_blocks = (p.rows + 31u) / 32u;
    let pair = wid.y * p.used + wid.x / row_blocks;
    let row_block = wid.x % row_blocks;
    let expert = ids[pair] - p.expert0;
    // another buffer has it
    if expert >= p.held {
        return;
    }
    prepare(lid.y * 8u + lid.x, 64u);
    first = pair / p.share;
    acc[0] = B4(vec4<f32>());
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = (expert * row_blocks + row_block) * row_words() * 8u + lid.x;
    let end = min((lid.y + 1u) * seg, groups);
    for (var g = lid.y * seg; g < end; g++) {
        add_group(row, g);
    }
    sums[lid.y * 8u + lid.x] = acc[0];
    workgroupBarrier();
    if lid.y == 0u {
        var total = B4(vec4<f32>());
        for (var s = 0u; s < 8u; s++) {
            total = B4(total + sums[s * 8u + lid.x]);
        }
        store(row_block * 32u + lid.x * 4u, pair, total);
    }
}

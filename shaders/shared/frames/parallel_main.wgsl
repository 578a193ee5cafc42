// Decode of few rows, which one thread for every segment would leave a device half empty with: a thread makes 4 rows of one
// token and one group at a time, a workgroup 32 rows, four groups of each segment at once. The products wait in workgroup
// memory for a thread of their segment, which adds them up in their order, so the sums are those of matvec4.
// The importing shader gives, besides what tile asks for:
//   fn first_word(row_block: u32) -> u32                  index in w of the rows' first word
//   fn add_one(row_block: u32, row: u32, g: u32)          adds group g to acc
#import segments4

// Two rounds, so that the next is made while this one is added up.
var<workgroup> products: array<vec4<f32>, 512>; // (2, segments, groups, lanes)

@compute @workgroup_size(8, 32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = wid.y;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = first_word(wid.x) + lid.x;
    let segment = lid.y >> 2u;
    let part = lid.y & 3u;
    let end = min((segment + 1u) * seg, groups);
    var total = B4(vec4<f32>());
    for (var round = 0u; round < (seg + 3u) / 4u; round++) {
        let g = segment * seg + round * 4u + part;
        let at = (round & 1u) * 256u + lid.y * 8u + lid.x;
        if g < end {
            acc[0] = B4(vec4<f32>());
            add_one(wid.x, row, g);
            products[at] = acc[0];
        }
        workgroupBarrier();
        if part == 0u {
            for (var i = 0u; i < 4u; i++) {
                if g + i < end {
                    total = B4(total + products[at + i * 8u]);
                }
            }
        }
    }
    if part == 0u {
        sums[segment * 8u + lid.x] = total;
    }
    workgroupBarrier();
    if lid.y == 0u {
        join_sums(wid.x, lid.x, wid.y);
    }
}

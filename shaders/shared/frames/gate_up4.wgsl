// The kernel of gate_up with four rows a thread and the eight segments side by side: 128 gate rows and the 128 up rows
// beside them in a workgroup of 256, which makes the gate rows of all segments, then the up rows. Segment sums are joined in
// their order, as in matvec4.
const T = 1u;

#import gate_up_params
#import tile
@group(0) @binding(3) var<storage, read_write> blocks: array<u32>; // (tokens, groups of dim, digits, 37)
#import silu
#import quantize
#import act_digits

// Of the gate rows, then of the up rows: (row blocks, segments, lanes).
var<workgroup> sums: array<vec4<f32>, 512>;
// 128 gate values, then the up values beside them; later the results
var<workgroup> values: array<f32, 256>;

@compute @workgroup_size(8, 8, 4)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = wid.y;
    let me = (lid.z * 8u + lid.y) * 8u + lid.x;
    prepare(me, 256u);
    let row_blocks = p.dim / 32u;
    let gate = wid.x * 4u + lid.z;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let end = min((lid.y + 1u) * seg, groups);
    for (var side = 0u; side < 2u; side++) {
        acc[0] = B4(vec4<f32>());
        if gate < row_blocks {
            let row = (gate + side * row_blocks) * row_words() * 8u + lid.x;
            for (var g = lid.y * seg; g < end; g++) {
                add_group(row, g);
            }
        }
        sums[side * 256u + me] = acc[0];
    }
    workgroupBarrier();
    // four rows a lane
    if me < 64u {
        let at = (me >> 3u) * 64u + (me & 7u);
        var total = B4(vec4<f32>());
        for (var s = 0u; s < 8u; s++) {
            total = B4(total + sums[at + s * 8u]);
        }
        values[me * 4u] = canon(total.x);
        values[me * 4u + 1u] = canon(total.y);
        values[me * 4u + 2u] = canon(total.z);
        values[me * 4u + 3u] = canon(total.w);
    }
    workgroupBarrier();
    if me < 128u {
        values[me] = silu_times(values[me], values[me + 128u]);
    }
    workgroupBarrier();
    let lane = me & 31u;
    let at = lane * 4u;
    let v = vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]);
    let groups_out = (p.dim + 127u) / 128u;
    quantize(me >> 5u, lane, v, (wid.y * groups_out + wid.x) * act_digits * ACT_BLOCK_WORDS, me < 32u);
}

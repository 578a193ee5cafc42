// Linear by experts for many tokens: a workgroup makes 32 rows of one expert for all its pairs of token and slot, 8 T of them
// at a time; tiles and sums are those of matmul. The importing shader gives T and brings the tile of its type.
#import expert_params

// Rows of activations of the pairs of the thread.
var<private> act_rows: array<u32, T>;

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let end = order[p.expert0 + wid.y + 1u];
    let begin = order[p.expert0 + wid.y];
    if begin >= end {
        return;
    }
    prepare(lid.y * 8u + lid.x, 64u);
    let pairs = p.experts + 1u;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = (wid.y * ((p.rows + 31u) / 32u) + wid.x) * row_words() * 8u + lid.x;
    for (var next = begin + lid.y * T; next < end; next += 8u * T) {
        // past the last pair, the last
        for (var t = 0u; t < T; t++) {
            act_rows[t] = order[pairs + min(next + t, end - 1u)] / p.share;
        }
        first = act_rows[0];
        var total: array<vec4<f32>, T>;
        for (var t = 0u; t < T; t++) {
            total[t] = B4(vec4<f32>());
        }
        for (var start = 0u; start < groups; start += seg) {
            for (var t = 0u; t < T; t++) {
                acc[t] = B4(vec4<f32>());
            }
            for (var g = start; g < min(start + seg, groups); g++) {
                add_group(row, g);
            }
            for (var t = 0u; t < T; t++) {
                total[t] = B4(total[t] + acc[t]);
            }
        }
        for (var t = 0u; t < T; t++) {
            if next + t < end {
                store(wid.x * 32u + lid.x * 4u, order[pairs + next + t], total[t]);
            }
        }
    }
}

// A thread makes 4 rows of T tokens and walks the segments, a workgroup 32 rows of 8 T tokens.
// The importing shader gives T and brings the tile of its type.
#import linear_params
#import tile_store

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    prepare(lid.y * 8u + lid.x, 64u);
    first = (wid.y * 8u + lid.y) * T;
    if first >= p.n_tokens {
        return;
    }
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = wid.x * row_words() * 8u + lid.x;
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
        if first + t < p.n_tokens {
            store(wid.x * 32u + lid.x * 4u, first + t, total[t]);
        }
    }
}

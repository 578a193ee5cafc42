// A thread makes 4 rows of T tokens over all of k, a workgroup 32 rows of 8 T tokens. The importing shader gives T and
// brings the type.
#import linear_params
#import rows_tile
#import tile_store

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = (wid.y * 8u + lid.y) * T;
    if first >= p.n_tokens {
        return;
    }
    let groups = (p.k + 127u) / 128u;
    let row = wid.x * row_words() * 8u + lid.x;
    for (var t = 0u; t < T; t++) {
        sum[t] = vec4<i32>();
    }
    for (var g = 0u; g < groups; g++) {
        add_group(row, g);
    }
    for (var t = 0u; t < T; t++) {
        if first + t < p.n_tokens {
            store(wid.x * 32u + lid.x * 4u, first + t, row_values(row, sum[t], row_scale(t)));
        }
    }
}

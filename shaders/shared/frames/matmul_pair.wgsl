// The kernel of matvec_pair for many tokens: tiles as in matmul, functions as in matvec_pair4.
// The importing shader gives T.
#import pair_params
#import tile
#import act_direct
#import tile_store

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = (wid.y * 8u + lid.y) * T;
    if first >= p.n_tokens {
        return;
    }
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let border = p.border / 32u;
    var total: array<vec4<f32>, T>;
    for (var t = 0u; t < T; t++) {
        total[t] = B4(vec4<f32>());
    }
    for (var start = 0u; start < groups; start += seg) {
        for (var t = 0u; t < T; t++) {
            acc[t] = B4(vec4<f32>());
        }
        let end = min(start + seg, groups);
        if wid.x < border {
            let row = wid.x * first_words() * 8u + lid.x;
            for (var g = start; g < end; g++) {
                first_values(row, g);
                add_value(g);
            }
        } else {
            let row = (border * first_words() + (wid.x - border) * second_words()) * 8u + lid.x;
            for (var g = start; g < end; g++) {
                second_values(row, g);
                add_value(g);
            }
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

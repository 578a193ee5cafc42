// Joins the parts that attention_chunks left, in the order of their chunks. The importing shader gives the parameters `p`,
// the bindings `parts` and `carried`, and calls `attend_parts_join`.
#import attend_join
#import attend_parts

// the parts are made; the name belongs to the pipelines of both passes
override k_type: u32 = 0u;

// As attend.
fn attend_parts_join(lane: u32, unit: u32, token: u32) -> bool {
    let sees = seen(token);
    if sees.start >= sees.stop {
        return false;
    }
    let heads = heads_of(unit);
    let at = token * p.heads + unit * unit_heads();
    if !sees.begins {
        take_state(lane, at, heads);
    }
    let all = chunks();
    let mine = head_of(lane, heads);
    let first = sees.start >> 6u;
    for (var chunk = first; 64u * chunk < sees.stop; chunk++) {
        let part = part_at(at + mine, chunk, all);
        var oc = array<f32, 2>(0.0, 0.0);
        for (var j = 0u; j < 2u; j++) {
            let e = lane + LANES * j;
            if e < heads * p.head_dim {
                oc[j] = parts[part + 2u + e - mine * p.head_dim];
            }
        }
        join(sees.begins && chunk == first, parts[part], parts[part + 1u], oc);
    }
    return leave(lane, token, at, heads);
}

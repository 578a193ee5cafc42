// As attend_parts_join.wgsl, of heads over 256: parts are asked for where they are joined. The importing shader gives the
// parameters `p`, the bindings `parts`, `places` and `carried`, HEAD, MINE, and calls `attend_parts_join`.
#import attend_join
#import attend_parts

// the parts are made; the name belongs to the pipelines of both passes
override k_type: u32 = 0u;

// As attend.
fn attend_parts_join(lane: u32, unit: u32, token: u32) -> bool {
    let all = span(token);
    let first = first_here(token) >> 6u;
    let end = (all.y + 63u) >> 6u;
    if first >= end {
        return false;
    }
    let at = token * p.heads + unit;
    // whether nothing comes before it
    let begins = starts_with(position(token), 64u * first);
    if !begins {
        take_state(lane, at, 1u);
    }
    for (var chunk = first; chunk < end; chunk++) {
        if here(token, 64u * chunk) {
            let part = part_at(at, chunk);
            for (var j = 0u; j < MINE; j++) {
                // lanes past the last element have that one
                chunk_o[j] = parts[part + 2u + min(lane + LANES * j, p.head_dim - 1u)];
            }
            join(begins && chunk == first, parts[part], parts[part + 1u]);
        }
    }
    return leave(lane, token, at, 1u);
}

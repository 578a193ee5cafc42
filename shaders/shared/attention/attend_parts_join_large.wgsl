// As attend_parts_join.wgsl, of heads over 256. The importing shader gives the parameters `p`, the bindings `parts`, `places` and
// `carried`, HEAD, MINE, and calls `attend_parts_join`.
#import attend_join
#import attend_parts

// the parts are made; the name belongs to the pipelines of both passes
override k_type: u32 = 0u;

// Parts that are asked for before the first is joined.
const PARTS: u32 = 7u;

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
    let begins = starts_with(token, position(token), 64u * first);
    if !begins {
        take_state(lane, at, 1u);
    }
    for (var chunk = first; chunk < end; chunk += PARTS) {
        // maximum and sum of each, and the lane's elements
        var ends: array<vec2<f32>, PARTS>;
        var some: array<f32, PARTS * MINE>;
        for (var i = 0u; i < PARTS; i++) {
            let part = part_at(at, min(chunk + i, end - 1u));
            ends[i] = vec2<f32>(parts[part], parts[part + 1u]);
            for (var j = 0u; j < MINE; j++) {
                // lanes past the last element have that one
                some[i * MINE + j] = parts[part + 2u + min(lane + LANES * j, p.head_dim - 1u)];
            }
        }
        for (var i = 0u; i < PARTS; i++) {
            if chunk + i < end && here(token, 64u * (chunk + i)) {
                for (var j = 0u; j < MINE; j++) {
                    chunk_o[j] = some[i * MINE + j];
                }
                join(begins && chunk + i == first, ends[i].x, ends[i].y);
            }
        }
    }
    return leave(lane, token, at, 1u);
}

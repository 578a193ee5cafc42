// Joins the parts that attention_chunks left, in the order of their chunks. The importing shader gives the parameters `p`,
// the bindings `parts`, `places` and `carried`, HEAD, MINE = 2u, and calls `attend_parts_join`.
#import attend_join
#import attend_parts

// the parts are made; the name belongs to the pipelines of both passes
override k_type: u32 = 0u;

// Parts that are asked for before the first is joined.
const PARTS: u32 = 12u;

// As attend.
fn attend_parts_join(lane: u32, unit: u32, token: u32) -> bool {
    let all = span(token);
    let first = first_here(token) >> 6u;
    let end = (all.y + 63u) >> 6u;
    if first >= end {
        return false;
    }
    let heads = heads_of(unit);
    let at = token * p.heads + unit * unit_heads();
    // whether nothing comes before it
    let begins = starts_with(token, position(token), 64u * first);
    if !begins {
        take_state(lane, at, heads);
    }
    let mine = head_of(lane, heads);
    // lanes past the last element have that one
    let e = min(lane, heads * p.head_dim - 1u) - mine * p.head_dim;
    let wide = lane + LANES < heads * p.head_dim;
    for (var chunk = first; chunk < end; chunk += PARTS) {
        // maximum, sum, and the lane's elements
        var some: array<vec4<f32>, PARTS>;
        for (var i = 0u; i < PARTS; i++) {
            let part = part_at(at + mine, min(chunk + i, end - 1u));
            some[i] = vec4<f32>(parts[part], parts[part + 1u], parts[part + 2u + e], 0.0);
            if wide {
                some[i].w = parts[part + 2u + LANES + e];
            }
        }
        for (var i = 0u; i < PARTS; i++) {
            if chunk + i < end && here(token, 64u * (chunk + i)) {
                let c = some[i];
                chunk_o[0] = c.z;
                chunk_o[1] = c.w;
                join(begins && chunk + i == first, c.x, c.y);
            }
        }
    }
    return leave(lane, token, at, heads);
}

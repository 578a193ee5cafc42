// Causal attention of a token and a unit of heads over one cache page, chunk after chunk. The importing shader gives the
// parameters `p`, the bindings `q`, `k`, `v`, `places`, `carried`, HEAD and MINE, and calls `attend`, which leaves finished
// outputs in `row`.
#import attend_chunk

// Whether `row` now holds finished outputs of the unit (rotated back, not canonicalised); otherwise the state is in
// `carried`, or the token sees nothing of the page.
fn attend(lane: u32, unit: u32, token: u32) -> bool {
    let all = span(token);
    let first = first_here(token);
    if first >= all.y {
        return false;
    }
    let heads = heads_of(unit);
    let head0 = unit * unit_heads();
    let at = token * p.heads + head0;
    load_query(lane, at, heads);
    // whether nothing comes before it
    let begins = starts_with(token, position(token), first);
    if !begins {
        take_state(lane, at, heads);
    }
    var next = index_of(token, first);
    for (var chunk = first; chunk < all.y; chunk += 64u) {
        let index = next;
        // asked for before the chunk is made
        next = index_of(token, min(chunk + 64u, all.y - 1u));
        if index < p.page_len {
            make_chunk(lane, head0, heads, index, vec2<u32>(max(all.x, chunk) - chunk, min(all.y - chunk, 64u)));
            // the next chunk's scores may be written before all have read these maxima, but not its maxima: a barrier lies
            // between
            join(begins && chunk == first, chunk_m, chunk_l);
        }
    }
    return leave(lane, token, at, heads);
}

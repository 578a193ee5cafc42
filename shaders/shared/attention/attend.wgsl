// Causal attention of a token and a unit of heads over one cache page, chunk after chunk. The importing shader gives the
// parameters `p`, the bindings `q`, `k`, `v`, `carried`, and calls `attend`, which leaves finished outputs in `row`.
#import attend_chunk

// Whether `row` now holds finished outputs of the unit (rotated back, not canonicalised); otherwise the state is in
// `carried`, or the token sees nothing of the page.
fn attend(lane: u32, unit: u32, token: u32) -> bool {
    let sees = seen(token);
    if sees.start >= sees.stop {
        return false;
    }
    let heads = heads_of(unit);
    let head0 = unit * unit_heads();
    let at = token * p.heads + head0;
    load_query(lane, at, heads);
    if !sees.begins {
        take_state(lane, at, heads);
    }
    let first = sees.start & ~63u;
    for (var chunk = first; chunk < sees.stop; chunk += 64u) {
        make_chunk(lane, head0, heads, chunk, sees.start, sees.stop);
        // the next chunk's scores may be written before all have read these maxima, but not its maxima: a barrier lies
        // between
        join(sees.begins && chunk == first, chunk_m, chunk_l, vec2<f32>(chunk_o[0], chunk_o[1]));
    }
    return leave(lane, token, at, heads);
}

// Writes the outputs of a tile of attention.
fn write_tile(lane: u32) {
    for (var t0 = 0u; t0 < tile_tokens(); t0 += tokens_at_once()) {
        stage_outputs(lane, t0);
        for (var i = lane; i < tokens_at_once() * unit_quads(); i += LANES) {
            let token = token0 + t0 + i / unit_quads();
            let e = i % unit_quads();
            if e < heads * p.head_dim / 4u && ends_here(token) {
                out[(token * p.heads + head0) * p.head_dim / 4u + e] = canon4(score_quad(i));
            }
        }
    }
}

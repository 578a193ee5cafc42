// What a tile of attention leaves, some tokens at a time in the place of the scores, rotated back.
#import cache_types
#import rotation_signs

// Quads of a token's outputs in a unit.
fn unit_quads() -> u32 {
    return unit_heads() * p.head_dim / 4u;
}

// Tokens that are staged at once.
fn tokens_at_once() -> u32 {
    return min(tile_tokens(), select(select(16u, 8u, unit_quads() > 32u), 4u, unit_quads() > 64u));
}

// Rotates n quads back, in pieces of so many elements; as unrotate.
fn unrotate_quads(lane: u32, n: u32, piece: u32) {
    if piece == 0u {
        return;
    }
    for (var i = lane; i < n; i += LANES) {
        let a = score_quad(i);
        let b = B4(vec4<f32>(a.x + a.y, a.x - a.y, a.z + a.w, a.z - a.w));
        scores[i] = bitcast<vec4<u32>>(B4(vec4<f32>(b.x + b.z, b.y + b.w, b.x - b.z, b.y - b.w)));
    }
    workgroupBarrier();
    for (var step = 1u; step < piece / 4u; step = step << 1u) {
        for (var i = lane; i < n / 2u; i += LANES) {
            let j = (i - (i & (step - 1u))) * 2u + (i & (step - 1u));
            let a = score_quad(j);
            let b = score_quad(j + step);
            scores[j] = bitcast<vec4<u32>>(B4(a + b));
            scores[j + step] = bitcast<vec4<u32>>(B4(a - b));
        }
        workgroupBarrier();
    }
    let norm = rotation_norm(piece);
    for (var i = lane; i < n; i += LANES) {
        let e = (4u * i) & (piece - 1u);
        let signed = vec4<f32>(flip(norm, e), flip(norm, e + 1u), flip(norm, e + 2u), flip(norm, e + 3u));
        scores[i] = bitcast<vec4<u32>>(B4(score_quad(i) * signed));
    }
    workgroupBarrier();
}

// What is rotated back: finished outputs, without those below 2^-50, whose sums could be subnormal; states as they are.
fn scaled(o: vec4<f32>, row: u32) -> vec4<f32> {
    if p.scope == SCOPE_OLDER {
        return o;
    }
    return canon4(B4(o * bitcast<f32>(weights[row].x)));
}

// The outputs of the tile's tokens t0.., not canonicalised: (tokens_at_once(), unit_quads()).
fn stage_outputs(lane: u32, t0: u32) {
    workgroupBarrier();
    let t = my_token - token0;
    if t >= t0 && t < t0 + tokens_at_once() && my_head < unit_heads() {
        for (var r = 0u; r < R; r++) {
            let at = (t - t0 + r) * unit_quads() + my_head * (p.head_dim / 4u);
            for (var g = 0u; g < GROUPS; g++) {
                if 64u * g + 4u * quad < p.head_dim {
                    scores[at + 16u * g + quad] = bitcast<vec4<u32>>(scaled(output(g, r), my_row + r));
                }
            }
        }
    }
    workgroupBarrier();
    unrotate_quads(lane, tokens_at_once() * unit_quads(), rotation(v_type, p.head_dim));
}

// The states of tokens after whose page no older chunk follows.
fn carry_rotated_back(lane: u32) {
    for (var t0 = 0u; t0 < tile_tokens(); t0 += tokens_at_once()) {
        stage_outputs(lane, t0);
        for (var i = lane; i < tokens_at_once() * unit_quads(); i += LANES) {
            let token = token0 + t0 + i / unit_quads();
            let e = 4u * (i % unit_quads());
            if e < heads * p.head_dim && carries(token) && !carries_older(token) {
                let at = carried_at(token, e / p.head_dim) + 2u + e % p.head_dim;
                let x = canon4(score_quad(i));
                for (var j = 0u; j < 4u; j++) {
                    carried[at + j] = x[j];
                }
            }
        }
    }
}

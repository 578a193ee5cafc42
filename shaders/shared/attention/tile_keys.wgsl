// Keys in the frame of attend_tile: the products of every row's query with 64 positions.
#import cache_codes

// where `scores` holds the scales of keys: (2 blocks, 16 quads of positions)
const KEY_SCALES: u32 = 256u;

// Word i of the keys of four positions, the first at index `pos` of the page.
fn key_words(kv_head: u32, pos: u32, i: u32) -> vec4<u32> {
    let words = cached_words(k_type, p.head_dim);
    return k[((kv_head * (p.page_len / 32u) + pos / 32u) * words + i) * 8u + (pos % 32u) / 4u];
}

// Vectors of a query as attention_digits leaves it: four for each block, and the scale.
fn digit_vectors() -> u32 {
    return p.head_dim / 8u + 1u;
}

// Quads of elements e0.. of every row's query: (rows, 4 quads).
fn stage_queries(lane: u32, e0: u32, quads: u32) {
    for (var i = lane; i < ROWS * 4u; i += LANES) {
        let head = (i >> 2u) / tile_tokens();
        let token = token_of(i >> 2u);
        var x = vec4<u32>();
        if (i & 3u) < quads && head < heads && token < p.n_tokens {
            x = q[((token * p.heads + head0 + head) * p.head_dim + e0) / 4u + (i & 3u)];
        }
        scores[i] = x;
    }
}

// Quads of elements e0.. of the keys of 64 positions: (16 elements, 16 quads of positions).
fn stage_keys(lane: u32, kv_head: u32, at: u32, e0: u32, quads: u32) {
    let per_word = select(1u, 2u, k_type == F16);
    for (var i = lane; i < quads * 64u / per_word; i += LANES) {
        let w = i >> 4u;
        let word = key_words(kv_head, at + 4u * (i & 15u), e0 / per_word + w);
        if k_type == F16 {
            let x = halves(word.x);
            let y = halves(word.y);
            let z = halves(word.z);
            let u = halves(word.w);
            tile[w * 32u + (i & 15u)] = bitcast<vec4<u32>>(vec4<f32>(x.x, y.x, z.x, u.x));
            tile[w * 32u + 16u + (i & 15u)] = bitcast<vec4<u32>>(vec4<f32>(x.y, y.y, z.y, u.y));
        } else {
            tile[i] = word;
        }
    }
}

// Digits of blocks b0.. of every row's query: (blocks, rows, [2 vectors high, 2 low]).
fn stage_digits(lane: u32, b0: u32, blocks: u32) {
    for (var i = lane; i < 4u * ROWS * blocks; i += LANES) {
        let row = (i >> 2u) & (ROWS - 1u);
        let head = row / tile_tokens();
        let token = token_of(row);
        var x = vec4<u32>();
        if head < heads && token < p.n_tokens {
            x = q[(token * p.heads + head0 + head) * digit_vectors() + 4u * (b0 + i / (4u * ROWS)) + (i & 3u)];
        }
        scores[i] = x;
    }
}

// Codes of blocks b0.. of the keys of 64 positions, as signed bytes: (blocks, 8 quads of elements, 16 quads of positions);
// of tq3_0 the signs of one block, then those on the outer level. And the blocks' scales.
fn stage_codes(lane: u32, kv_head: u32, at: u32, b0: u32, blocks: u32) {
    let codes = scale_words(p.head_dim);
    for (var i = lane; i < 128u * blocks; i += LANES) {
        let b = b0 + (i >> 7u);
        let e = (i >> 4u) & 7u;
        let pos = at + 4u * (i & 15u);
        let word = key_words(kv_head, pos, codes + code_word(k_type, b, e));
        if k_type == TQ3_0 {
            let c0 = tq3_0_packed(tq3_codes(word.x, e));
            let c1 = tq3_0_packed(tq3_codes(word.y, e));
            let c2 = tq3_0_packed(tq3_codes(word.z, e));
            let c3 = tq3_0_packed(tq3_codes(word.w, e));
            tile[i] = vec4<u32>(c0.x, c1.x, c2.x, c3.x);
            tile[128u + i] = vec4<u32>(c0.y, c1.y, c2.y, c3.y);
        } else {
            var signs = vec4<u32>();
            if k_type == TQ3_1 {
                signs = key_words(kv_head, pos, codes + 3u * b + 2u);
            }
            tile[i] = vec4<u32>(
                packed_quad(k_type, word.x, signs.x, e),
                packed_quad(k_type, word.y, signs.y, e),
                packed_quad(k_type, word.z, signs.z, e),
                packed_quad(k_type, word.w, signs.w, e),
            );
        }
    }
    for (var i = lane; i < 16u * blocks; i += LANES) {
        let b = b0 + (i >> 4u);
        let word = key_words(kv_head, at + 4u * (i & 15u), b >> 1u) >> vec4<u32>(16u * (b & 1u));
        scores[KEY_SCALES + i] = bitcast<vec4<u32>>(f16_to_f32_4(low_half(word)));
    }
}

fn dots(digits: u32, codes: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(
        dot4I8Packed(digits, codes.x),
        dot4I8Packed(digits, codes.y),
        dot4I8Packed(digits, codes.z),
        dot4I8Packed(digits, codes.w),
    );
}

// The codes of a block of four positions, four elements a word.
struct Block {
    c0: vec4<u32>,
    c1: vec4<u32>,
    c2: vec4<u32>,
    c3: vec4<u32>,
    c4: vec4<u32>,
    c5: vec4<u32>,
    c6: vec4<u32>,
    c7: vec4<u32>,
}

fn block_at(codes: u32) -> Block {
    let at = codes + quad;
    return Block(
        tile[at], tile[at + 16u], tile[at + 32u], tile[at + 48u],
        tile[at + 64u], tile[at + 80u], tile[at + 96u], tile[at + 112u],
    );
}

// 128 high + low: the sums of a row over a block with each digit of the query, which begin at `at`. The twin's
// B(B(high * 128) + low) rounds once, as i2f of the sum does.
fn row_sum(at: u32, c: Block) -> vec4<i32> {
    let h0 = scores[at];
    let h1 = scores[at + 1u];
    let l0 = scores[at + 2u];
    let l1 = scores[at + 3u];
    let high = dots(h0.x, c.c0) + dots(h0.y, c.c1) + dots(h0.z, c.c2) + dots(h0.w, c.c3)
        + dots(h1.x, c.c4) + dots(h1.y, c.c5) + dots(h1.z, c.c6) + dots(h1.w, c.c7);
    let low = dots(l0.x, c.c0) + dots(l0.y, c.c1) + dots(l0.z, c.c2) + dots(l0.w, c.c3)
        + dots(l1.x, c.c4) + dots(l1.y, c.c5) + dots(l1.z, c.c6) + dots(l1.w, c.c7);
    return 128 * high + low;
}

// Adds block b of those staged to every row.
fn add_block(b: u32) {
    let d = bitcast<vec4<f32>>(scores[KEY_SCALES + 16u * b + quad]);
    let codes = block_at(128u * b);
    if k_type == TQ3_0 {
        // one block is staged; the dot with the signs is inner + outer
        let on_outer = block_at(128u);
        for (var r = 0u; r < R; r++) {
            let signs = row_sum(4u * (my_row + r), codes);
            let outer = row_sum(4u * (my_row + r), on_outer);
            let inner = B4(TQ3_0_INNER * i2f4(signs - outer));
            acc[r] = B4(acc[r] + B4(d * B4(inner + B4(TQ3_0_OUTER * i2f4(outer)))));
        }
    } else {
        for (var r = 0u; r < R; r++) {
            acc[r] = B4(acc[r] + B4(d * i2f4(row_sum(4u * ROWS * b + 4u * (my_row + r), codes))));
        }
    }
}

// Adds the products with the 64 keys at index `at` of the page; `mine`: the lane's rows have this key-value head.
fn add_keys(lane: u32, kv_head: u32, at: u32, mine: bool) {
    if k_type <= F16 {
        for (var e0 = 0u; e0 < p.head_dim; e0 += 16u) {
            let quads = min((p.head_dim - e0) / 4u, 4u);
            stage_queries(lane, e0, quads);
            stage_keys(lane, kv_head, at, e0, quads);
            workgroupBarrier();
            if mine {
                for (var i = 0u; i < quads; i++) {
                    add_products(i, my_row * 4u + i, 4u);
                }
            }
            workgroupBarrier();
        }
    } else {
        let at_once = select(2u, 1u, k_type == TQ3_0);
        for (var b0 = 0u; b0 < p.head_dim / 32u; b0 += at_once) {
            let blocks = min(p.head_dim / 32u - b0, at_once);
            stage_digits(lane, b0, blocks);
            stage_codes(lane, kv_head, at, b0, blocks);
            workgroupBarrier();
            if mine {
                for (var b = 0u; b < blocks; b++) {
                    add_block(b);
                }
            }
            workgroupBarrier();
        }
    }
}

// What the sums of row r are multiplied by.
fn key_scale(r: u32) -> f32 {
    var scale = p.scale;
    if k_type > F16 && my_head < heads && my_token + r < p.n_tokens {
        let at = ((my_token + r) * p.heads + head0 + my_head) * digit_vectors() + p.head_dim / 8u;
        scale = B(bitcast<f32>(q[at].x) * p.scale);
    }
    return scale;
}

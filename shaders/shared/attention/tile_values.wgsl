// Values in the frame of attend_tile: the products of every row's probabilities with 64 elements.
#import cache_codes
#import halves

// Quad e of the value row whose words begin at `base`.
fn value_quad(base: u32, e: u32) -> vec4<f32> {
    if v_type == F32 {
        let at = base + 4u * e;
        return bitcast<vec4<f32>>(vec4<u32>(v[at], v[at + 1u], v[at + 2u], v[at + 3u]));
    }
    if v_type == F16 {
        return vec4<f32>(halves(v[base + 2u * e]), halves(v[base + 2u * e + 1u]));
    }
    let b = e >> 3u;
    let i = e & 7u;
    let d = f16_to_f32((v[base + (b >> 1u)] >> (16u * (b & 1u))) & 0xffffu);
    let codes = base + scale_words(p.head_dim);
    let word = v[codes + code_word(v_type, b, i)];
    if v_type == TQ3_0 {
        let c = tq3_codes(word, i);
        let level = vec4<f32>(
            tq3_0_level(c & 3u),
            tq3_0_level((c >> 8u) & 3u),
            tq3_0_level((c >> 16u) & 3u),
            tq3_0_level(c >> 24u),
        );
        return B4(d * level);
    }
    var signs = 0u;
    if v_type == TQ3_1 {
        signs = v[codes + 3u * b + 2u];
    }
    let four = vec4<i32>(bitcast<i32>(packed_quad(v_type, word, signs, i)));
    return B4(d * vec4<f32>((four << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u)));
}

// 64 elements from quad `first` of the values of 16 positions, from i0 of the chunk at index `at` of the page; zeros for
// those that no row sees, outside `live`.
fn stage_values(lane: u32, kv_head: u32, at: u32, i0: u32, first: u32, live: vec2<u32>) {
    let words = cached_words(v_type, p.head_dim);
    for (var i = lane; i < 256u; i += LANES) {
        let pos = i0 + (i >> 4u);
        let e = first + (i & 15u);
        var x = vec4<f32>();
        if pos >= live.x && pos < live.y && 4u * e < p.head_dim {
            x = value_quad((kv_head * p.page_len + at + pos) * words, e);
        }
        tile[i] = bitcast<vec4<u32>>(x);
    }
}

// Adds the values of the chunk at index `at` of the page, of whose positions those in `live` are seen, by the rows'
// probabilities: 64 elements from quad `first` on. `mine`: the lane's rows have this key-value head and its elements.
fn add_values(lane: u32, kv_head: u32, at: u32, first: u32, live: vec2<u32>, mine: bool) {
    for (var i0 = 0u; i0 < min(live.y, 64u); i0 += 16u) {
        stage_values(lane, kv_head, at, i0, first, live);
        workgroupBarrier();
        if mine {
            for (var i = 0u; i < 4u; i++) {
                add_products(i, my_row * 16u + i0 / 4u + i, 16u);
            }
        }
        workgroupBarrier();
    }
}

// Maximum, sum and weighted values of one chunk of 64 positions (docs/exactness.md sections 6 and 7), for a token and a
// unit of neighbouring heads: as many as make 128 outputs, four at most, at least one. 128 lanes: in scores a lane is a
// position, in values an element of the unit. The importing shader gives the parameters `p`, the bindings `q`, `k`, `v`, HEAD and
// MINE.
#import attend_join
#import load_query
#import cache_codes
#import halves
#import softcap

var<workgroup> scores: array<f32, 256>;
var<workgroup> probs: array<f32, 256>;

// What a lane asks of memory before it waits: two batches of words of a key of floats, blocks of a key of codes, two batches
// of positions of values of floats, and one where a value takes words of codes and of scales.
// These loops have a constant end, which no compiler finds too far to unroll, and first ask for everything, then add in
// order.
const KEY_WORDS: u32 = 16u;
const KEY_BLOCKS: u32 = 4u;
const VALUES: u32 = 16u;

// the chunk's maximum and sum
var<private> chunk_m: f32;
var<private> chunk_l: f32;

// The value of an integer sum taken with each digit of the query.
fn query_value(high: i32, low: i32) -> f32 {
    return B(B(i2f(high) * 128.0) + i2f(low));
}

// Sum of level times query over the tq3 block of these words: two of codes and one of third bits; `first` is the first
// word of the query's digits.
fn tq3_sum(words: vec3<u32>, first: u32) -> f32 {
    var high = vec2<i32>(0, 0);
    var low = vec2<i32>(0, 0);
    for (var i = 0u; i < 8u; i++) {
        let codes = spread2((words[i >> 2u] >> (8u * (i & 3u))) & 255u);
        let h = high_digits[first + i];
        let l = low_digits[first + i];
        if k_type == TQ3_0 {
            // dot with the signs is inner + outer
            let c = tq3_0_packed(codes);
            let outer_high = dot4I8Packed(h, c.y);
            let outer_low = dot4I8Packed(l, c.y);
            high += vec2<i32>(dot4I8Packed(h, c.x) - outer_high, outer_high);
            low += vec2<i32>(dot4I8Packed(l, c.x) - outer_low, outer_low);
        } else {
            let c = tq3_1_packed(codes, words.z >> (4u * i));
            high.x += dot4I8Packed(h, c);
            low.x += dot4I8Packed(l, c);
        }
    }
    let inner = query_value(high.x, low.x);
    if k_type == TQ3_1 {
        return inner;
    }
    return B(B(TQ3_0_INNER * inner) + B(TQ3_0_OUTER * query_value(high.y, low.y)));
}

// Score of the position whose key's word i is k[base + 32 i], with the query at row[first]; POISON where the key is.
fn score(base: u32, first: u32, query_scale: f32) -> f32 {
    var s = canon(sum_of_products(base, first, query_scale));
    if capped != 0u {
        s = softcap(s, p.softcap, p.inv_softcap);
    }
    return bitcast<f32>(select(bitcast<u32>(s), POISON, k[base] == POISONED));
}

// The sum so far with word i of a key of floats.
fn with_word(acc: f32, word: u32, first: u32, i: u32) -> f32 {
    if k_type == F32 {
        return B(acc + B(row[first + i] * bitcast<f32>(word)));
    }
    let two = halves(word);
    let one = B(acc + B(row[first + 2u * i] * two.x));
    return B(one + B(row[first + 2u * i + 1u] * two.y));
}

// A batch of words of a key of floats, from word i on.
fn key_words(base: u32, i: u32) -> array<u32, KEY_WORDS> {
    var words: array<u32, KEY_WORDS>;
    for (var j = 0u; j < KEY_WORDS; j++) {
        words[j] = k[base + (i + j) * 32u];
    }
    return words;
}

// The sum so far with a batch, from word i of the key on.
fn with_words(so_far: f32, batch: array<u32, KEY_WORDS>, first: u32, i: u32) -> f32 {
    var words = batch;
    var acc = so_far;
    for (var j = 0u; j < KEY_WORDS; j++) {
        acc = with_word(acc, words[j], first, i + j);
    }
    return acc;
}

// Words of a block's codes.
fn block_words(t: u32) -> u32 {
    if has_bytes(t) {
        return 8u;
    }
    return select(3u, 4u, t == Q4_0 || t == Q4_0R);
}

// The sum so far with `n` blocks of a key of codes, a constant, from block b on.
fn with_blocks(so_far: f32, base: u32, first: u32, b: u32, n: u32) -> f32 {
    let per_block = block_words(k_type);
    let codes = base + (scale_words(p.head_dim) + per_block * b) * 32u;
    var scales: array<u32, (KEY_BLOCKS + 1u) / 2u>;
    var words: array<u32, 8u * KEY_BLOCKS>;
    for (var i = 0u; i < (n + 1u) / 2u; i++) {
        scales[i] = k[base + ((b >> 1u) + i) * 32u];
    }
    for (var i = 0u; i < n * per_block; i++) {
        words[i] = k[codes + i * 32u];
    }
    var acc = so_far;
    for (var j = 0u; j < n; j++) {
        let d = f16_to_f32((scales[j >> 1u] >> (16u * ((b + j) & 1u))) & 0xffffu);
        let at = first / 4u + 8u * (b + j);
        if k_type == TQ3_0 || k_type == TQ3_1 {
            let block = vec3<u32>(words[3u * j], words[3u * j + 1u], words[3u * j + 2u]);
            acc = B(acc + B(d * tq3_sum(block, at)));
            continue;
        }
        var hi = 0;
        var lo = 0;
        if has_bytes(k_type) {
            for (var i = 0u; i < 8u; i++) {
                let c = words[8u * j + i];
                hi += dot4I8Packed(high_digits[at + i], c);
                lo += dot4I8Packed(low_digits[at + i], c);
            }
        } else {
            for (var i = 0u; i < 4u; i++) {
                let word = words[4u * j + i];
                let c0 = q4_0_packed(word);
                let c1 = q4_0_packed(word >> 4u);
                hi += dot4I8Packed(high_digits[at + i], c0) + dot4I8Packed(high_digits[at + 4u + i], c1);
                lo += dot4I8Packed(low_digits[at + i], c0) + dot4I8Packed(low_digits[at + 4u + i], c1);
            }
        }
        acc = B(acc + B(d * query_value(hi, lo)));
    }
    return acc;
}

fn sum_of_products(base: u32, first: u32, query_scale: f32) -> f32 {
    var acc = B(0.0);
    if k_type <= F16 {
        let words = cached_words(k_type, p.head_dim);
        let whole = words / (2u * KEY_WORDS) * (2u * KEY_WORDS);
        for (var i = 0u; i < whole; i += 2u * KEY_WORDS) {
            let one = key_words(base, i);
            let other = key_words(base, i + KEY_WORDS);
            acc = with_words(acc, one, first, i);
            acc = with_words(acc, other, first, i + KEY_WORDS);
        }
        // heads that two batches do not divide
        var rest = whole;
        if rest + KEY_WORDS <= words {
            acc = with_words(acc, key_words(base, rest), first, rest);
            rest += KEY_WORDS;
        }
        for (var i = rest; i < words; i++) {
            acc = with_word(acc, k[base + i * 32u], first, i);
        }
        return B(acc * p.scale);
    }
    let blocks = p.head_dim / 32u;
    let whole = blocks / KEY_BLOCKS * KEY_BLOCKS;
    for (var b = 0u; b < whole; b += KEY_BLOCKS) {
        acc = with_blocks(acc, base, first, b, KEY_BLOCKS);
    }
    var b = whole;
    if b + 2u <= blocks {
        acc = with_blocks(acc, base, first, b, 2u);
        b += 2u;
    }
    if b < blocks {
        acc = with_blocks(acc, base, first, b, 1u);
    }
    return B(acc * B(query_scale * p.scale));
}

// What element e of the value row at `base` is made of: its word, of codes also that of its scale, and of third bits.
fn value_words(base: u32, e: u32) -> vec3<u32> {
    if v_type == F32 {
        return vec3<u32>(v[base + e], 0u, 0u);
    }
    if v_type == F16 {
        return vec3<u32>(v[base + (e >> 1u)], 0u, 0u);
    }
    let b = e >> 5u;
    let codes = base + scale_words(p.head_dim);
    var words = vec3<u32>(v[codes + code_word(v_type, b, (e >> 2u) & 7u)], v[base + (b >> 1u)], 0u);
    if v_type == TQ3_1 {
        words.z = v[codes + 3u * b + 2u];
    }
    return words;
}

// Element e of the row that has these words.
fn value(words: vec3<u32>, e: u32) -> f32 {
    if v_type == F32 {
        return bitcast<f32>(words.x);
    }
    if v_type == F16 {
        let two = halves(words.x);
        return select(two.x, two.y, (e & 1u) == 1u);
    }
    let d = f16_to_f32((words.y >> ((e >> 1u) & 16u)) & 0xffffu);
    if has_bytes(v_type) {
        return B(d * f32((bitcast<i32>(words.x) << (24u - 8u * (e & 3u))) >> 24u));
    }
    if v_type == Q4_0 || v_type == Q4_0R {
        // bytes hold elements 4 apart in order, nibbles 16 apart
        let code = (words.x >> (8u * (e & 3u) + ((e >> 2u) & 4u))) & 15u;
        return B(d * f32(bitcast<i32>(code) - 8));
    }
    let code = (words.x >> (2u * (e & 15u))) & 3u;
    if v_type == TQ3_0 {
        return B(d * tq3_0_level(code));
    }
    return B(d * f32(tq3_1_level(code | (((words.z >> (e & 31u)) & 1u) << 2u))));
}

// The words of element e at a batch of positions from i on.
fn batch_of_values(first: u32, i: u32, start: u32, stop: u32, e: u32) -> array<vec3<u32>, VALUES> {
    let row_words = cached_words(v_type, p.head_dim);
    var words: array<vec3<u32>, VALUES>;
    for (var j = 0u; j < VALUES; j++) {
        words[j] = value_words(first + clamp(i + j, start, stop - 1u) * row_words, e);
    }
    return words;
}

// The sum so far with a batch.
fn with_values(so_far: f32, batch: array<vec3<u32>, VALUES>, mine: u32, e: u32, i: u32) -> f32 {
    var words = batch;
    var acc = so_far;
    for (var j = 0u; j < VALUES; j++) {
        acc = B(acc + B(probs[64u * mine + i + j] * value(words[j], e)));
    }
    return acc;
}

// Element e of head `mine` summed over the values of the chunk, of whose positions those from `start` to `stop` are seen,
// the chunk's first value row being at `first`. A position that is not seen has a probability of 0, and one that is seen is
// read in its place: that adds a zero (docs/exactness.md section 6).
fn sum_of_values(mine: u32, e: u32, first: u32, start: u32, stop: u32) -> f32 {
    var acc = B(0.0);
    let many = select(VALUES, 2u * VALUES, v_type <= F16);
    for (var i = start & ~(many - 1u); i < stop; i += many) {
        let one = batch_of_values(first, i, start, stop, e);
        if many == VALUES {
            acc = with_values(acc, one, mine, e, i);
        } else {
            let other = batch_of_values(first, i + VALUES, start, stop, e);
            acc = with_values(acc, one, mine, e, i);
            acc = with_values(acc, other, mine, e, i + VALUES);
        }
    }
    return acc;
}

// Makes the chunk that begins at index `chunk` of the page, of whose 64 positions those from seen.x to seen.y are seen.
fn make_chunk(lane: u32, head0: u32, heads: u32, chunk: u32, seen: vec2<u32>) {
    let hd = p.head_dim;
    let elements = heads * hd;
    let k_words = cached_words(k_type, hd);
    let sharing = p.heads / p.kv_heads;
    let score_head = lane >> 6u;
    let mine = head_of(lane, heads);
    let pos = chunk + (lane & 63u);
    let live = (lane & 63u) >= seen.x && (lane & 63u) < seen.y;
    for (var j = 0u; j < 2u; j++) {
        let h = score_head + 2u * j;
        if h < heads {
            let kv_head = (head0 + h) / sharing;
            let base = ((kv_head * (p.page_len / 32u) + pos / 32u) * k_words) * 32u + pos % 32u;
            var s = -3.0e38;
            if live {
                s = score(base, h * hd, query_scale[j]);
            }
            scores[64u * h + (lane & 63u)] = s;
        }
    }
    workgroupBarrier();
    // lanes 8 h.. of head h: every eighth score
    if lane < 8u * heads {
        let first = 64u * (lane >> 3u) + (lane & 7u);
        var top = scores[first];
        for (var i = 1u; i < 8u; i++) {
            top = greater(top, scores[first + 8u * i]);
        }
        part_max[lane] = top;
    }
    workgroupBarrier();
    for (var j = 0u; j < 2u; j++) {
        let h = score_head + 2u * j;
        if h < heads {
            var prob = 0.0;
            if live {
                prob = canon(fexp(B(scores[64u * h + (lane & 63u)] - eight_max(h))));
            }
            probs[64u * h + (lane & 63u)] = prob;
        }
    }
    workgroupBarrier();
    // the halving tree over 64: its first three steps for each eighth, the last three below
    if lane < 8u * heads {
        let a = 64u * (lane >> 3u) + (lane & 7u);
        let x0 = B(B(probs[a] + probs[a + 32u]) + B(probs[a + 16u] + probs[a + 48u]));
        let x1 = B(B(probs[a + 8u] + probs[a + 40u]) + B(probs[a + 24u] + probs[a + 56u]));
        part_sum[lane] = B(x0 + x1);
    }
    let first_row = (((head0 + mine) / sharing) * p.page_len + chunk) * cached_words(v_type, hd);
    for (var j = 0u; j < MINE; j++) {
        if LANES * j < elements {
            // lanes past the last element make that one again
            let e = min(lane + LANES * j, elements - 1u) - mine * hd;
            chunk_o[j] = sum_of_values(mine, e, first_row, seen.x, seen.y);
        }
    }
    workgroupBarrier();
    chunk_m = eight_max(mine);
    let y = 8u * mine;
    let y0 = B(B(part_sum[y] + part_sum[y + 4u]) + B(part_sum[y + 2u] + part_sum[y + 6u]));
    let y1 = B(B(part_sum[y + 1u] + part_sum[y + 5u]) + B(part_sum[y + 3u] + part_sum[y + 7u]));
    chunk_l = B(y0 + y1);
}

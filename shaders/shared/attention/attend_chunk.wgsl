// Maximum, sum and weighted values of one chunk of 64 positions (docs/exactness.md sections 6 and 7), for a token and a
// unit of neighbouring heads: as many as make 128 outputs, four at most, at least one. 128 lanes: in scores a lane is a
// position, in values an element of the unit. The importing shader gives the parameters `p` and the bindings `q`, `k`, `v`.
#import attend_join
#import load_query
#import cache_codes

var<workgroup> scores: array<f32, 256>;
var<workgroup> probs: array<f32, 256>;
// values of some positions, element by element of the unit
var<workgroup> tile: array<f32, 2048>;

// the chunk's maximum, sum and values, for this lane's elements: one, or two of a head over 128
var<private> chunk_m: f32;
var<private> chunk_l: f32;
var<private> chunk_o: array<f32, 2>;

// The value of an integer sum taken with each digit of the query.
fn query_value(high: i32, low: i32) -> f32 {
    return B(B(i2f(high) * 128.0) + i2f(low));
}

// Sum of level times query over the tq3 block whose words are k[block], k[block + 32], k[block + 64]; `first` is the
// first word of the query's digits.
fn tq3_sum(block: u32, first: u32) -> f32 {
    let signs = k[block + 64u];
    var high = vec2<i32>(0, 0);
    var low = vec2<i32>(0, 0);
    for (var half = 0u; half < 2u; half++) {
        let word = k[block + half * 32u];
        for (var j = 0u; j < 4u; j++) {
            let i = 4u * half + j;
            let codes = spread2((word >> (8u * j)) & 255u);
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
                let c = tq3_1_packed(codes, signs >> (4u * i));
                high.x += dot4I8Packed(h, c);
                low.x += dot4I8Packed(l, c);
            }
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
    let s = canon(sum_of_products(base, first, query_scale));
    return bitcast<f32>(select(bitcast<u32>(s), POISON, k[base] == POISONED));
}

fn sum_of_products(base: u32, first: u32, query_scale: f32) -> f32 {
    var acc = B(0.0);
    if k_type == F32 {
        for (var e = 0u; e < p.head_dim; e++) {
            acc = B(acc + B(row[first + e] * bitcast<f32>(k[base + e * 32u])));
        }
        return B(acc * p.scale);
    }
    if k_type == F16 {
        for (var i = 0u; i < p.head_dim / 2u; i++) {
            let word = k[base + i * 32u];
            acc = B(acc + B(row[first + 2u * i] * f16_to_f32(word & 0xffffu)));
            acc = B(acc + B(row[first + 2u * i + 1u] * f16_to_f32(word >> 16u)));
        }
        return B(acc * p.scale);
    }
    let codes = base + scale_words(p.head_dim) * 32u;
    let digits = first / 4u;
    for (var b = 0u; b < p.head_dim / 32u; b++) {
        let d = f16_to_f32((k[base + (b >> 1u) * 32u] >> (16u * (b & 1u))) & 0xffffu);
        let at = digits + 8u * b;
        if k_type == TQ3_0 || k_type == TQ3_1 {
            acc = B(acc + B(d * tq3_sum(codes + 96u * b, at)));
            continue;
        }
        var hi = 0;
        var lo = 0;
        if has_bytes(k_type) {
            for (var i = 0u; i < 8u; i++) {
                let c = k[codes + (8u * b + i) * 32u];
                hi += dot4I8Packed(high_digits[at + i], c);
                lo += dot4I8Packed(low_digits[at + i], c);
            }
        } else {
            for (var i = 0u; i < 4u; i++) {
                let word = k[codes + (4u * b + i) * 32u];
                let c0 = q4_0_packed(word);
                let c1 = q4_0_packed(word >> 4u);
                hi += dot4I8Packed(high_digits[at + i], c0) + dot4I8Packed(high_digits[at + 4u + i], c1);
                lo += dot4I8Packed(low_digits[at + i], c0) + dot4I8Packed(low_digits[at + 4u + i], c1);
            }
        }
        acc = B(acc + B(d * query_value(hi, lo)));
    }
    return B(acc * B(query_scale * p.scale));
}

// Element e of the f32 or f16 value row at `base`.
fn value(base: u32, e: u32) -> f32 {
    if v_type == F32 {
        return bitcast<f32>(v[base + e]);
    }
    return f16_to_f32((v[base + (e >> 1u)] >> (16u * (e & 1u))) & 0xffffu);
}

// Codes in a word of a value row.
fn codes_in_word() -> u32 {
    if v_type == TQ3_0 || v_type == TQ3_1 {
        return 16u;
    }
    return select(8u, 4u, has_bytes(v_type));
}

// Unpacks word w of the codes of the value row at `base` to tile[to..], the row's element 0 being at `to`. Lanes begin at
// different codes, so that they do not write to one bank of the workgroup's memory.
fn unpack(base: u32, w: u32, to: u32) {
    let n = codes_in_word();
    let b = w / (32u / n);
    let in_block = w % (32u / n);
    let d = f16_to_f32((v[base + (b >> 1u)] >> (16u * (b & 1u))) & 0xffffu);
    let codes = base + scale_words(p.head_dim);
    let at = to + 32u * b;
    if v_type == TQ3_0 || v_type == TQ3_1 {
        let word = v[codes + 3u * b + in_block];
        let signs = v[codes + 3u * b + 2u] >> (16u * in_block);
        for (var i = 0u; i < 16u; i++) {
            let j = (i + w) & 15u;
            let code = (word >> (2u * j)) & 3u;
            var level = 0.0;
            if v_type == TQ3_0 {
                level = tq3_0_level(code);
            } else {
                level = f32(tq3_1_level(code | (((signs >> j) & 1u) << 2u)));
            }
            tile[at + 16u * in_block + j] = B(d * level);
        }
    } else if has_bytes(v_type) {
        let word = bitcast<i32>(v[codes + w]);
        for (var i = 0u; i < 4u; i++) {
            tile[at + 4u * in_block + i] = B(d * f32((word << (24u - 8u * i)) >> 24u));
        }
    } else {
        let word = v[codes + w];
        for (var i = 0u; i < 8u; i++) {
            // bytes hold elements 4 apart in order, nibbles 16 apart
            let code = i32((word >> (8u * (i & 3u) + 4u * (i >> 2u))) & 15u);
            tile[at + 4u * in_block + (i & 3u) + 16u * (i >> 2u)] = B(d * f32(code - 8));
        }
    }
}

// Makes the chunk that begins at index `chunk` of the page, of whose positions those from `start` to `stop` are seen.
fn make_chunk(lane: u32, head0: u32, heads: u32, chunk: u32, start: u32, stop: u32) {
    let hd = p.head_dim;
    let elements = heads * hd;
    let k_words = cached_words(k_type, hd);
    let v_words = cached_words(v_type, hd);
    let sharing = p.heads / p.kv_heads;
    let score_head = lane >> 6u;
    let mine = head_of(lane, heads);
    // of the chunk's positions, those it sees
    let from_pos = max(start, chunk) - chunk;
    let n = min(stop - chunk, 64u);
    let pos = chunk + (lane & 63u);
    let live = pos >= start && pos < stop;
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
    var oc = array<f32, 2>(B(0.0), B(0.0));
    let kv_mine = (head0 + mine) / sharing;
    if v_type <= F16 {
        for (var i = from_pos; i < n; i++) {
            let base = (kv_mine * p.page_len + chunk + i) * v_words;
            let weight = probs[64u * mine + i];
            for (var j = 0u; j < 2u; j++) {
                let e = lane + LANES * j;
                if e < elements {
                    oc[j] = B(oc[j] + B(weight * value(base, e - mine * hd)));
                }
            }
        }
        workgroupBarrier();
    } else {
        // every word of a value row is read and unpacked once
        let positions = 2048u / elements;
        let words = hd / codes_in_word();
        for (var first = from_pos; first < n; first += positions) {
            let some = min(positions, n - first);
            for (var item = lane; item < some * heads * words; item += LANES) {
                let i = item / (heads * words);
                let h = (item / words) % heads;
                let base = (((head0 + h) / sharing) * p.page_len + chunk + first + i) * v_words;
                unpack(base, item % words, i * elements + h * hd);
            }
            workgroupBarrier();
            for (var i = 0u; i < some; i++) {
                let weight = probs[64u * mine + first + i];
                for (var j = 0u; j < 2u; j++) {
                    let e = lane + LANES * j;
                    if e < elements {
                        oc[j] = B(oc[j] + B(weight * tile[i * elements + e]));
                    }
                }
            }
            workgroupBarrier();
        }
    }
    chunk_m = eight_max(mine);
    let y = 8u * mine;
    let y0 = B(B(part_sum[y] + part_sum[y + 4u]) + B(part_sum[y + 2u] + part_sum[y + 6u]));
    let y1 = B(B(part_sum[y + 1u] + part_sum[y + 5u]) + B(part_sum[y + 3u] + part_sum[y + 7u]));
    chunk_l = B(y0 + y1);
    chunk_o = oc;
}

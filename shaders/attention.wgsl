// Causal attention of one query head over one cache page, in chunks of 64 positions; one workgroup a head and token.
#import exact
#import cache_types
#import rotate
#import tq3

struct Params {
    n_tokens: u32,
    pos: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    page_first: u32,
    page_len: u32,
    scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;           // (tokens, heads, head_dim)
@group(0) @binding(2) var<storage, read> k: array<u32>;           // (kv_heads, page_len/32, words, 32)
@group(0) @binding(3) var<storage, read> v: array<u32>;           // (kv_heads, page_len, words)
@group(0) @binding(4) var<storage, read_write> carried: array<f32>; // (tokens, heads, [m, l, o[head_dim]])
@group(0) @binding(5) var<storage, read_write> out: array<f32>;   // (tokens, heads, head_dim)

override k_type: u32 = 0u;
override v_type: u32 = 0u;

var<workgroup> low_digits: array<u32, 64>;
var<workgroup> high_digits: array<u32, 64>;
var<workgroup> lanes: array<f32, 64>;
var<workgroup> probs: array<f32, 64>;

// Largest of the 64 lanes, known to all.
fn max_lanes(lane: u32, x: f32) -> f32 {
    lanes[lane] = x;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s >> 1u) {
        if lane < s {
            lanes[lane] = max(lanes[lane], lanes[lane + s]);
        }
        workgroupBarrier();
    }
    let r = lanes[0];
    workgroupBarrier();
    return r;
}

// Halving-tree sum of the 64 lanes, known to all.
fn sum_lanes(lane: u32, x: f32) -> f32 {
    lanes[lane] = x;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s >> 1u) {
        if lane < s {
            lanes[lane] = B(lanes[lane] + lanes[lane + s]);
        }
        workgroupBarrier();
    }
    let r = lanes[0];
    workgroupBarrier();
    return r;
}

// Splits the query (in `row`) into two int8 digits; returns its scale.
fn query_digits(lane: u32) -> f32 {
    var amax = 0.0;
    for (var e = lane; e < p.head_dim; e += 64u) {
        amax = max(amax, abs(row[e]));
    }
    var d = fdiv(max_lanes(lane, amax), 16256.0);
    var inv = 0.0;
    if d < 9.094947017729282e-13 {
        d = 0.0;
    } else {
        inv = fdiv(1.0, d);
    }
    if lane < p.head_dim / 4u {
        var lo = 0u;
        var hi = 0u;
        for (var i = 0u; i < 4u; i++) {
            let c = clamp(round_away(B(row[4u * lane + i] * inv)), -16256, 16256);
            let high = (c + 64) >> 7u;
            lo |= (bitcast<u32>(c - 128 * high) & 255u) << (8u * i);
            hi |= (bitcast<u32>(high) & 255u) << (8u * i);
        }
        low_digits[lane] = lo;
        high_digits[lane] = hi;
    }
    workgroupBarrier();
    return d;
}

// The value of an integer sum taken with each digit of the query.
fn query_value(high: i32, low: i32) -> f32 {
    return B(B(i2f(high) * 128.0) + i2f(low));
}

// Sum of level times query over the tq3 block b whose words are k[block], k[block + 32], k[block + 64].
fn tq3_sum(block: u32, b: u32) -> f32 {
    let signs = k[block + 64u];
    var high = vec2<i32>(0, 0);
    var low = vec2<i32>(0, 0);
    for (var i = 0u; i < 8u; i++) {
        let codes = spread2((k[block + (i >> 2u) * 32u] >> (8u * (i & 3u))) & 255u);
        let h = high_digits[8u * b + i];
        let l = low_digits[8u * b + i];
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
    let inner = query_value(high.x, low.x);
    if k_type == TQ3_1 {
        return inner;
    }
    return B(B(TQ3_0_INNER * inner) + B(TQ3_0_OUTER * query_value(high.y, low.y)));
}

// Score of the position whose key's word i is k[base + 32 i].
fn score(base: u32, query_scale: f32) -> f32 {
    var acc = 0.0;
    if k_type == F32 {
        for (var e = 0u; e < p.head_dim; e++) {
            acc = B(acc + B(row[e] * bitcast<f32>(k[base + e * 32u])));
        }
        return B(acc * p.scale);
    }
    if k_type == F16 {
        for (var i = 0u; i < p.head_dim / 2u; i++) {
            let word = k[base + i * 32u];
            acc = B(acc + B(row[2u * i] * f16_to_f32(word & 0xffffu)));
            acc = B(acc + B(row[2u * i + 1u] * f16_to_f32(word >> 16u)));
        }
        return B(acc * p.scale);
    }
    let codes = base + scale_words(p.head_dim) * 32u;
    if k_type == TQ3_0 || k_type == TQ3_1 {
        for (var b = 0u; b < p.head_dim / 32u; b++) {
            let d = f16_to_f32((k[base + (b >> 1u) * 32u] >> (16u * (b & 1u))) & 0xffffu);
            acc = B(acc + B(d * tq3_sum(codes + 96u * b, b)));
        }
        return B(acc * B(query_scale * p.scale));
    }
    for (var b = 0u; b < p.head_dim / 32u; b++) {
        var hi = 0;
        var lo = 0;
        if k_type == Q8_0 || k_type == Q8_0R {
            for (var i = 8u * b; i < 8u * b + 8u; i++) {
                let c = k[codes + i * 32u];
                hi += dot4I8Packed(high_digits[i], c);
                lo += dot4I8Packed(low_digits[i], c);
            }
        } else {
            for (var i = 0u; i < 4u; i++) {
                let c = k[codes + (4u * b + i) * 32u];
                let c0 = c & 0x0f0f0f0fu;
                let c1 = (c >> 4u) & 0x0f0f0f0fu;
                hi += dot4I8Packed(high_digits[8u * b + i], c0) + dot4I8Packed(high_digits[8u * b + 4u + i], c1);
                lo += dot4I8Packed(low_digits[8u * b + i], c0) + dot4I8Packed(low_digits[8u * b + 4u + i], c1);
                hi -= 8 * (dot4I8Packed(high_digits[8u * b + i], 0x01010101u) + dot4I8Packed(high_digits[8u * b + 4u + i], 0x01010101u));
                lo -= 8 * (dot4I8Packed(low_digits[8u * b + i], 0x01010101u) + dot4I8Packed(low_digits[8u * b + 4u + i], 0x01010101u));
            }
        }
        let d = f16_to_f32((k[base + (b >> 1u) * 32u] >> (16u * (b & 1u))) & 0xffffu);
        acc = B(acc + B(d * query_value(hi, lo)));
    }
    return B(acc * B(query_scale * p.scale));
}

// Element e of the value row at `base`.
fn value(base: u32, e: u32) -> f32 {
    if v_type == F32 {
        return bitcast<f32>(v[base + e]);
    }
    if v_type == F16 {
        return f16_to_f32((v[base + (e >> 1u)] >> (16u * (e & 1u))) & 0xffffu);
    }
    let b = e >> 5u;
    let d = f16_to_f32((v[base + (b >> 1u)] >> (16u * (b & 1u))) & 0xffffu);
    let codes = base + scale_words(p.head_dim);
    if v_type == TQ3_0 || v_type == TQ3_1 {
        let at = codes + 3u * b;
        let j = e & 31u;
        let code = (v[at + (j >> 4u)] >> (2u * (j & 15u))) & 3u;
        if v_type == TQ3_0 {
            return B(d * tq3_0_level(code));
        }
        return B(d * f32(tq3_1_level(code | (((v[at + 2u] >> j) & 1u) << 2u))));
    }
    if v_type == Q8_0 || v_type == Q8_0R {
        let c = bitcast<i32>(v[codes + (e >> 2u)] << (24u - 8u * (e & 3u))) >> 24u;
        return B(d * f32(c));
    }
    let c = (v[codes + 4u * b + ((e & 15u) >> 2u)] >> (8u * (e & 3u) + 4u * ((e >> 4u) & 1u))) & 15u;
    return B(d * f32(i32(c) - 8));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let lane = lid.x;
    let at = wid.y * p.heads + wid.x;
    let kv_head = wid.x / (p.heads / p.kv_heads);
    let last_pos = p.pos + wid.y;
    if p.page_first > last_pos {
        return;
    }
    for (var e = lane; e < p.head_dim; e += 64u) {
        row[e] = q[at * p.head_dim + e];
    }
    rotate(lane, p.head_dim, rotation(k_type, p.head_dim));
    workgroupBarrier();
    var query_scale = 0.0;
    if k_type >= Q8_0 {
        query_scale = query_digits(lane);
    }
    let k_words = cached_words(k_type, p.head_dim);
    let v_words = cached_words(v_type, p.head_dim);

    var m = 0.0;
    var l = 0.0;
    var o = array<f32, 4>(0.0, 0.0, 0.0, 0.0);
    let state = at * (p.head_dim + 2u);
    if p.page_first > 0u {
        m = carried[state];
        l = carried[state + 1u];
        for (var j = 0u; j < 4u; j++) {
            if lane + 64u * j < p.head_dim {
                o[j] = carried[state + 2u + lane + 64u * j];
            }
        }
    }
    let end = min(last_pos + 1u - p.page_first, p.page_len);
    for (var chunk = 0u; chunk < end; chunk += 64u) {
        let pos = chunk + lane;
        let live = pos < end;
        let base = ((kv_head * (p.page_len / 32u) + pos / 32u) * k_words) * 32u + pos % 32u;
        var s = -3.0e38;
        if live {
            s = score(base, query_scale);
        }
        let mc = max_lanes(lane, s);
        var prob = 0.0;
        if live {
            prob = canon(fexp(B(s - mc)));
        }
        probs[lane] = prob;
        let lc = sum_lanes(lane, prob);
        let n = min(end - chunk, 64u);
        var oc = array<f32, 4>(0.0, 0.0, 0.0, 0.0);
        for (var i = 0u; i < n; i++) {
            let base_v = (kv_head * p.page_len + chunk + i) * v_words;
            let weight = probs[i];
            for (var j = 0u; j < 4u; j++) {
                let e = lane + 64u * j;
                if e < p.head_dim {
                    oc[j] = B(oc[j] + B(weight * value(base_v, e)));
                }
            }
        }
        if p.page_first == 0u && chunk == 0u {
            m = mc;
            l = lc;
            o = oc;
        } else {
            let top = max(m, mc);
            let a = canon(fexp(B(m - top)));
            let b = canon(fexp(B(mc - top)));
            l = B(B(l * a) + B(lc * b));
            for (var j = 0u; j < 4u; j++) {
                o[j] = B(B(o[j] * a) + B(oc[j] * b));
            }
            m = top;
        }
        workgroupBarrier();
    }
    if last_pos < p.page_first + p.page_len {
        // one rotation back per output, whatever the number of positions
        let inv = fdiv(1.0, l);
        for (var j = 0u; j < 4u; j++) {
            if lane + 64u * j < p.head_dim {
                row[lane + 64u * j] = B(o[j] * inv);
            }
        }
        unrotate(lane, p.head_dim, rotation(v_type, p.head_dim));
        for (var j = 0u; j < 4u; j++) {
            if lane + 64u * j < p.head_dim {
                out[at * p.head_dim + lane + 64u * j] = canon(row[lane + 64u * j]);
            }
        }
    } else {
        if lane == 0u {
            carried[state] = m;
            carried[state + 1u] = l;
        }
        for (var j = 0u; j < 4u; j++) {
            if lane + 64u * j < p.head_dim {
                carried[state + 2u + lane + 64u * j] = o[j];
            }
        }
    }
}

// Writes rows into one cache page: rotate, quantise and pack in one pass; a lane owns a pair of blocks. The importing
// shader gives the place of word i of a position's row:
//   fn place(head: u32, pos: u32, words: u32, i: u32) -> u32
#import exact
#import cache_types
#import rotate
#import tq3
#import tq3_encode

struct Params {
    n_tokens: u32,
    pos: u32,
    kv_heads: u32,
    head_dim: u32,
    page_first: u32,
    page_len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, kv_heads, head_dim)
@group(0) @binding(2) var<storage, read_write> cache: array<u32>; // one page

override cache_type: u32 = 0u;

// Eight words of codes of the 32 elements at `at`; returns d.
fn q8_0_block(at: u32, head: u32, pos: u32, words: u32, first: u32) -> f32 {
    var amax = 0.0;
    for (var i = 0u; i < 32u; i++) {
        amax = max(amax, abs(row[at + i]));
    }
    var d = fdiv(amax, 127.0);
    var id = 0.0;
    if d < 9.094947017729282e-13 {
        d = 0.0;
    } else {
        id = fdiv(1.0, d);
    }
    for (var i = 0u; i < 8u; i++) {
        var word = 0u;
        for (var e = 0u; e < 4u; e++) {
            word |= (bitcast<u32>(round_away(B(row[at + 4u * i + e] * id))) & 255u) << (8u * e);
        }
        cache[place(head, pos, words, first + i)] = word;
    }
    return d;
}

fn q4_0_code(v: f32, id: f32) -> u32 {
    return u32(clamp(i32(B(B(v * id) + 8.5)), 0, 15));
}

// Four words of nibbles of the 32 elements at `at`; returns d.
fn q4_0_block(at: u32, head: u32, pos: u32, words: u32, first: u32) -> f32 {
    var amax = 0.0;
    var top = 0.0;
    for (var i = 0u; i < 32u; i++) {
        let v = row[at + i];
        if abs(v) > amax {
            amax = abs(v);
            top = v;
        }
    }
    var d = B(top * -0.125);
    var id = 0.0;
    if abs(d) < 9.094947017729282e-13 {
        d = 0.0;
    } else {
        id = fdiv(1.0, d);
    }
    for (var i = 0u; i < 4u; i++) {
        var word = 0u;
        for (var e = 0u; e < 4u; e++) {
            let lo = q4_0_code(row[at + 4u * i + e], id);
            let hi = q4_0_code(row[at + 4u * i + e + 16u], id);
            word |= (lo | (hi << 4u)) << (8u * e);
        }
        cache[place(head, pos, words, first + i)] = word;
    }
    return d;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let pos = p.pos + wid.y - p.page_first;
    if pos >= p.page_len {
        return;
    }
    let head = wid.x;
    let start = (wid.y * p.kv_heads + head) * p.head_dim;
    for (var e = lid.x; e < p.head_dim; e += 64u) {
        row[e] = x[start + e];
    }
    rotate(lid.x, p.head_dim, rotation(cache_type, p.head_dim));
    workgroupBarrier();
    let words = cached_words(cache_type, p.head_dim);
    if cache_type == F32 {
        for (var i = lid.x; i < words; i += 64u) {
            cache[place(head, pos, words, i)] = bitcast<u32>(row[i]);
        }
    } else if cache_type == F16 {
        for (var i = lid.x; i < words; i += 64u) {
            cache[place(head, pos, words, i)] = f32_to_f16(row[2u * i]) | (f32_to_f16(row[2u * i + 1u]) << 16u);
        }
    } else {
        // a lane owns a pair of blocks, and so a whole word of scales
        let sw = scale_words(p.head_dim);
        if lid.x < sw {
            var scales = 0u;
            for (var i = 0u; i < 2u; i++) {
                let b = 2u * lid.x + i;
                if b < p.head_dim / 32u {
                    var scale = 0u;
                    if cache_type == Q8_0 || cache_type == Q8_0R {
                        scale = f32_to_f16(q8_0_block(32u * b, head, pos, words, sw + 8u * b));
                    } else if cache_type == Q4_0 || cache_type == Q4_0R {
                        scale = f32_to_f16(q4_0_block(32u * b, head, pos, words, sw + 4u * b));
                    } else {
                        var block = Block();
                        if cache_type == TQ3_0 {
                            block = tq3_0_encode(32u * b);
                        } else {
                            block = tq3_1_encode(32u * b);
                        }
                        cache[place(head, pos, words, sw + 3u * b)] = block.qs0;
                        cache[place(head, pos, words, sw + 3u * b + 1u)] = block.qs1;
                        cache[place(head, pos, words, sw + 3u * b + 2u)] = block.qr;
                        scale = block.gamma;
                    }
                    scales |= scale << (16u * i);
                }
            }
            cache[place(head, pos, words, lid.x)] = scales;
        }
    }
}

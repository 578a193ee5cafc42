// Rows of a cache page: rotate, quantise and pack in one pass; a lane owns a pair of blocks. The importing shader stores
// word i of a position's row:
//   fn put(head: u32, pos: u32, words: u32, i: u32, word: u32)
#import exact
#import cache_types
#import rotate
#import tq3
#import tq3_encode

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
        put(head, pos, words, first + i, word);
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
        put(head, pos, words, first + i, word);
    }
    return d;
}

// The bits of a number, of the largest with its sign for an infinity or a NaN: nothing in a cache, times 0, may be else.
fn finite(bits: u32) -> u32 {
    return select(bits, (bits & 0x80000000u) | 0x7f7fffffu, (bits & 0x7fffffffu) > 0x7f7fffffu);
}

// Writes the head in `row` as position `pos` of a page of type t; every lane calls.
fn write_row(t: u32, lane: u32, head: u32, pos: u32) {
    rotate(lane, p.head_dim, rotation(t, p.head_dim));
    workgroupBarrier();
    let words = cached_words(t, p.head_dim);
    if t == F32 {
        for (var i = lane; i < words; i += 64u) {
            put(head, pos, words, i, finite(bitcast<u32>(row[i])));
        }
    } else if t == F16 {
        for (var i = lane; i < words; i += 64u) {
            put(head, pos, words, i, f32_to_f16(row[2u * i]) | (f32_to_f16(row[2u * i + 1u]) << 16u));
        }
    } else {
        // a lane owns a pair of blocks, and so a whole word of scales
        let sw = scale_words(p.head_dim);
        if lane < sw {
            var scales = 0u;
            for (var i = 0u; i < 2u; i++) {
                let b = 2u * lane + i;
                if b < p.head_dim / 32u {
                    var scale = 0u;
                    if t == Q8_0 || t == Q8_0R {
                        scale = f32_to_f16(q8_0_block(32u * b, head, pos, words, sw + 8u * b));
                    } else if t == Q4_0 || t == Q4_0R {
                        scale = f32_to_f16(q4_0_block(32u * b, head, pos, words, sw + 4u * b));
                    } else {
                        var block = Block();
                        if t == TQ3_0 {
                            block = tq3_0_encode(32u * b);
                        } else {
                            block = tq3_1_encode(32u * b);
                        }
                        put(head, pos, words, sw + 3u * b, block.qs0);
                        put(head, pos, words, sw + 3u * b + 1u, block.qs1);
                        put(head, pos, words, sw + 3u * b + 2u, block.qr);
                        scale = block.gamma;
                    }
                    scales |= scale << (16u * i);
                }
            }
            put(head, pos, words, lane, scales);
        }
    }
}

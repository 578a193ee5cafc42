// Rows of a cache page: rotate, quantize and pack in one pass; a lane owns a pair of blocks. The importing shader stores
// word i of a position's row:
//   fn put(head: u32, pos: u32, words: u32, i: u32, word: u32)
//
// A cache holds numbers only, since what a query does not see may be weighed with 0. Where a row of keys or of values has
// an element that is not finite or too large, the row of keys is marked POISONED; in the row of values such elements are 0.
#import exact
#import cache_types
#import rotate
#import tq3
#import tq3_encode

// Eight words of codes of the 32 elements at `at`; returns d.
fn q8_0_block(at: u32, head: u32, pos: u32, words: u32, first: u32) -> f32 {
    var d = fdiv(block_amax(at), 127.0);
    var id = 0.0;
    if too_small(d) {
        d = 0.0;
    } else {
        id = fdiv(1.0, d);
    }
    for (var i = 0u; i < 8u; i++) {
        var word = 0u;
        for (var e = 0u; e < 4u; e++) {
            word |= (bitcast<u32>(round_away(B(row[at + 4u * i + e] * id))) & 255u) << (8u * e);
        }
        put_word(head, pos, words, first + i, word);
    }
    return d;
}

fn c8_code(v: f32) -> u32 {
    return bitcast<u32>(round_away(B(clamp(v, -128.0, 127.0)))) & 255u;
}

// Eight words of codes, the elements at `at` themselves where they are integers from -128 to 127; returns 1.
fn c8_block(at: u32, head: u32, pos: u32, words: u32, first: u32) -> f32 {
    for (var i = 0u; i < 8u; i++) {
        var word = 0u;
        for (var e = 0u; e < 4u; e++) {
            word |= c8_code(row[at + 4u * i + e]) << (8u * e);
        }
        put_word(head, pos, words, first + i, word);
    }
    return 1.0;
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
        put_word(head, pos, words, first + i, word);
    }
    return d;
}

// Whether a row has such an element, and whether that concerns the row that is written.
var<workgroup> marked: atomic<u32>;
var<private> spoilt: bool;

// Before write_row, by every lane, a barrier before the first `mark`.
fn unmark(lane: u32) {
    if lane == 0u {
        atomicStore(&marked, 0u);
    }
}

// The element, 0 for one that is not finite or too large, whose row of keys is then marked.
fn mark(x: f32) -> f32 {
    let bad = too_large(x);
    if bad {
        atomicOr(&marked, 1u);
    }
    return bitcast<f32>(select(bitcast<u32>(x), 0u, bad));
}

// Word i of the row, of a marked one: the mark, then zeros.
fn put_word(head: u32, pos: u32, words: u32, i: u32, word: u32) {
    put(head, pos, words, i, select(word, select(0u, POISONED, i == 0u), spoilt));
}

// Writes the head in `row`, whose elements are finite, as position `pos` of a page of type t; every lane calls, a barrier
// after the last `mark`. `keys`: these are keys, marked where they or their values have to be.
fn write_row(t: u32, lane: u32, head: u32, pos: u32, keys: bool) {
    spoilt = keys && atomicLoad(&marked) != 0u;
    rotate(lane, p.head_dim, rotation(t, p.head_dim));
    workgroupBarrier();
    let words = cached_words(t, p.head_dim);
    if t == F32 {
        for (var i = lane; i < words; i += 64u) {
            put_word(head, pos, words, i, bitcast<u32>(row[i]));
        }
    } else if t == F16 {
        for (var i = lane; i < words; i += 64u) {
            put_word(head, pos, words, i, f32_to_f16(row[2u * i]) | (f32_to_f16(row[2u * i + 1u]) << 16u));
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
                    if t == C8 {
                        scale = f32_to_f16(c8_block(32u * b, head, pos, words, sw + 8u * b));
                    } else if t == Q8_0 || t == Q8_0R {
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
                        put_word(head, pos, words, sw + 3u * b, block.qs0);
                        put_word(head, pos, words, sw + 3u * b + 1u, block.qs1);
                        put_word(head, pos, words, sw + 3u * b + 2u, block.qr);
                        scale = block.gamma;
                    }
                    scales |= scale << (16u * i);
                }
            }
            put_word(head, pos, words, lane, scales);
        }
    }
}

// Codes of quantized cached rows, four neighbours of a block of 32 at a time: quad i of 8 (src/ops/cache.rs).
#import cache_types
#import tq3

// Where the word of a quad of block b lies among a row's codes; tq3's third word of a block has the third bits.
fn code_word(t: u32, b: u32, i: u32) -> u32 {
    if has_bytes(t) {
        return 8u * b + i;
    }
    if t == Q4_0 || t == Q4_0R {
        // nibbles: elements e and e + 16
        return 4u * b + (i & 3u);
    }
    return 3u * b + (i >> 2u);
}

// The low nibbles of four bytes, less 8, as signed bytes: with bit 3 flipped, the sign extends from there.
fn q4_0_packed(bytes: u32) -> u32 {
    let c = (bytes ^ 0x08080808u) & 0x0f0f0f0fu;
    return c | ((c & 0x08080808u) * 30u);
}

// The two-bit codes of a quad of tq3, one per byte.
fn tq3_codes(word: u32, i: u32) -> u32 {
    return spread2((word >> (8u * (i & 3u))) & 255u);
}

// A quad as signed bytes: codes, or tq3_1's levels, whose third bits `signs` has. Not for tq3_0.
fn packed_quad(t: u32, word: u32, signs: u32, i: u32) -> u32 {
    if has_bytes(t) {
        return word;
    }
    if t == Q4_0 || t == Q4_0R {
        return q4_0_packed(word >> (i & 4u));
    }
    return tq3_1_packed(tq3_codes(word, i), signs >> (4u * i));
}

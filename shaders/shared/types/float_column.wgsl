// Float linear with four rows of one token a thread: the products and orders of float_tile. A step of one token waits for
// memory, so the words of a row are taken AHEAD at a time, by a loop whose turns are counted at compile time, without a
// branch between them: a compiler can then have all of them under way at once. The importing shader gives what it gives to
// float_tile.
#import exact

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;     // (row_blocks, row_words, 8)
@group(0) @binding(2) var<storage, read> x: array<f32>;           // (tokens, k)

const AHEAD = 16u; // words

var<private> acc: array<vec4<f32>, T>;
// The token of the thread.
var<private> first: u32;

#import vec4_exact

fn row_words() -> u32 {
    return (p.k + PER - 1u) / PER;
}

// Adds a word of each row, all of whose elements lie within k; at: where the first one's x is.
fn add_word(words: vec4<u32>, at: u32) {
    let pair = elements(words);
    acc[0] = B4(acc[0] + B4(pair[0] * x[at]));
    if PER == 2u {
        acc[0] = B4(acc[0] + B4(pair[1] * x[at + 1u]));
    }
}

// Adds 128 elements (or what is left of the row) to the sum of the segment.
fn add_group(row: u32, g: u32) {
    let start = g * 128u;
    let end = min(start + 128u, p.k);
    let token = first * p.k;
    let whole = end - (end - start) % (AHEAD * PER);
    for (var e = start; e < whole; e += AHEAD * PER) {
        var words: array<vec4<u32>, AHEAD>;
        for (var i = 0u; i < AHEAD; i++) {
            words[i] = w[row + (e / PER + i) * 8u];
        }
        for (var i = 0u; i < AHEAD; i++) {
            add_word(words[i], token + e + i * PER);
        }
    }
    let even = end - (end - start) % PER;
    for (var e = whole; e < even; e += PER) {
        add_word(w[row + e / PER * 8u], token + e);
    }
    // half a word
    if even < end {
        acc[0] = B4(acc[0] + B4(elements(w[row + even / PER * 8u])[0] * x[token + even]));
    }
}

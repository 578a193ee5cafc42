// Groups of Q6_K, four rows of one token at a time: the sums of q6k_values. A step of one token waits for memory, and a
// compiler has no more loads under way than stand before the first that is waited for; so words are asked for before
// anything is made of them.
#import tile
#import one_token
#import q6k_bytes
#import q6k_unpack
#import act_digits

// Words of the group at hand: low nibbles of a quarter and the one after the next, and high bits of all. Every index is
// known when a shader is compiled, so that they are registers.
var<private> nibbles: array<vec4<u32>, 16>;
var<private> bits: array<vec4<u32>, 8>;

fn nibble_word(row: u32, half: u32, n: u32) -> vec4<u32> {
    return nibbles[n];
}

fn bit_word(row: u32, half: u32, n: u32) -> vec4<u32> {
    return bits[n];
}

// Asks for the nibbles of quarters `quarter` and `quarter + 2`.
fn fetch_nibbles(row: u32, half: u32, quarter: u32) {
    for (var i = 0u; i < 8u; i++) {
        nibbles[8u * quarter + i] = w[row + (5u + 16u * half + 8u * quarter + i) * 8u];
    }
}

// Scale · sum of half n (a scale each) of quarters `quarter` and `quarter + 2`, the block of activations at a.
fn scaled_part(row: u32, half: u32, quarter: u32, n: u32, a: u32, scales: array<vec4<u32>, 2>) -> vec4<i32> {
    var low = vec4<i32>();
    var high = vec4<i32>();
    for (var i = 0u; i < 4u; i++) {
        let word = 8u * quarter + 4u * n + i;
        let c = unpack_q6k(row, half, word);
        low += dots(c.low, act_word(a + 1u + word));
        high += dots(c.high, act_word(a + 17u + word));
    }
    let part = 2u * quarter + n;
    return scale_of(scales[0], part) * (low - 32 * sum16(a, part))
        + scale_of(scales[1], part) * (high - 32 * sum16(a, part + 4u));
}

fn q6k_values(rows: u32, g: u32) {
    let row = rows + (g >> 1u) * (Q6K_BLOCK * 8u);
    let half = g & 1u;
    let dw = w[row];
    let scales = array(w[row + (1u + 2u * half) * 8u], w[row + (2u + 2u * half) * 8u]);
    for (var i = 0u; i < 8u; i++) {
        bits[i] = w[row + (37u + 8u * half + i) * 8u];
    }
    var v: vec4<f32>;
    for (var digit = 0u; digit < act_digits; digit++) {
        let a = act_at(0u, g) + digit * ACT_BLOCK_WORDS;
        fetch_nibbles(row, half, 0u);
        var s = scaled_part(row, half, 0u, 0u, a, scales);
        s += scaled_part(row, half, 0u, 1u, a, scales);
        fetch_nibbles(row, half, 1u);
        s += scaled_part(row, half, 1u, 0u, a, scales);
        s += scaled_part(row, half, 1u, 1u, a, scales);
        v = join_digit(digit, i2f4(s), v);
    }
    value[0] = B4(f16_to_f32_4(low_half(dw)) * v);
}

// Rows packed in Q6_K: words of a row, and the value of one group (docs/exactness.md section 4).
#import act_digits

const Q6K_BLOCK = 53u; // words of a superblock

fn q6k_row_words() -> u32 {
    return p.k / 256u * Q6K_BLOCK;
}

// Sum over the eight sixteenths of scale · dot(q - 32, a); the -32 is taken out through the activation sums.
fn sixteenths(row: u32, half: u32, a: u32) -> i32 {
    var s = 0;
    for (var t = 0u; t < 4u; t++) {
        let ql = row + (5u + 16u * half + 8u * (t & 1u)) * 32u;
        let qh = row + (37u + 8u * half) * 32u;
        let scales = w[row + (1u + 2u * half + (t >> 1u)) * 32u] >> (16u * (t & 1u));
        for (var n = 0u; n < 2u; n++) {
            var dot = 0;
            for (var i = 4u * n; i < 4u * n + 4u; i++) {
                let lo = (w[ql + i * 32u] >> (4u * (t >> 1u))) & 0x0f0f0f0fu;
                let hi = (w[qh + i * 32u] >> (2u * t)) & 0x03030303u;
                dot += dot4I8Packed(lo | (hi << 4u), act[a + 1u + 8u * t + i]);
            }
            let scale = bitcast<i32>(scales << (24u - 8u * n)) >> 24u;
            s += scale * (dot - 32 * sum16(a, 2u * t + n));
        }
    }
    return s;
}

fn q6k_value(row: u32, g: u32, a: u32) -> f32 {
    let block = row + (g >> 1u) * (Q6K_BLOCK * 32u);
    let low = sixteenths(block, g & 1u, a);
    var high = 0;
    if act_digits == 2u {
        high = sixteenths(block, g & 1u, a + ACT_BLOCK_WORDS);
    }
    return B(f16_to_f32(w[block] & 0xffffu) * digits_value(low, high));
}

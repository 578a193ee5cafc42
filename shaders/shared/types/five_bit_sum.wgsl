// Codes of five bits times activations, one row: fifth bits as in five_bits, from word high of the group on.

// Sum over block b of code · activation, the block of activations at a.
fn five_bit_sum(high: u32, b: u32, a: u32) -> i32 {
    let fifth = w[high + b * 32u];
    var s = 0;
    for (var i = 0u; i < 4u; i++) {
        let q = w[high + (4u + 4u * b + i) * 32u];
        let h = fifth >> i;
        s += dot4I8Packed((q & 0x0f0f0f0fu) | ((h & 0x01010101u) << 4u), act[a + 1u + 8u * b + i]);
        s += dot4I8Packed(((q >> 4u) & 0x0f0f0f0fu) | (h & 0x10101010u), act[a + 5u + 8u * b + i]);
    }
    return s;
}

// Nibbles times activations, one row: low nibbles are elements 0..16 of a block, high nibbles 16..32.

// Sum over block b of code · activation, the group's first word of nibbles at nibbles, the block of activations at a.
fn nibble_sum(nibbles: u32, b: u32, a: u32) -> i32 {
    var s = 0;
    for (var i = 0u; i < 4u; i++) {
        let q = w[nibbles + (4u * b + i) * 32u];
        s += dot4I8Packed(q & 0x0f0f0f0fu, act[a + 1u + 8u * b + i]);
        s += dot4I8Packed((q >> 4u) & 0x0f0f0f0fu, act[a + 5u + 8u * b + i]);
    }
    return s;
}

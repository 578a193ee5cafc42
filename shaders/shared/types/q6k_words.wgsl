// Words of a superblock of Q6_K where they lie, in the buffer.

// Word n (0..16) of the low nibbles of a half, of four rows.
fn nibble_word(row: u32, half: u32, n: u32) -> vec4<u32> {
    return w[row + (5u + 16u * half + n) * 8u];
}

// Word n (0..8) of the high bits of a half.
fn bit_word(row: u32, half: u32, n: u32) -> vec4<u32> {
    return w[row + (37u + 8u * half + n) * 8u];
}

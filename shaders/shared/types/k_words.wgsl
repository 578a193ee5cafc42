// Words of a superblock of Q4_K or Q5_K where they lie, in the buffer. The importing text gives CODES, the word that the
// codes start at.

// Word n (0..16) of the codes of a half, of four rows.
fn code_word(row: u32, half: u32, n: u32) -> vec4<u32> {
    return w[row + (CODES + 16u * half + n) * 8u];
}

// Word n (0..8) of the fifth bits of Q5_K.
fn fifth_word(row: u32, n: u32) -> vec4<u32> {
    return w[row + (4u + n) * 8u];
}

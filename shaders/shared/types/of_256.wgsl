// Blocks of 256, two groups. The importing text gives BLOCK, the words of one, and the frame how wide a row is.
fn row_words() -> u32 {
    return width() / 256u * BLOCK;
}

// Words of a row before the block of group g.
fn words_before(g: u32) -> u32 {
    return (g >> 1u) * BLOCK;
}

// Which half of its block the group is.
fn half_of(g: u32) -> u32 {
    return g & 1u;
}

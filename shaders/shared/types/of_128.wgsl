// Groups that share no words. The importing text gives GROUP, the words of one, and the frame how wide a row is.
fn row_words() -> u32 {
    return (width() + 127u) / 128u * GROUP;
}

// Words of a row before group g.
fn words_before(g: u32) -> u32 {
    return g * GROUP;
}

fn half_of(g: u32) -> u32 {
    return 0u;
}

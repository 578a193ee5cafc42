// Where word i of a position's row lies in a page of p.page_len positions (docs/exactness.md section 6).

// Keys: 32 positions side by side.
fn key_place(head: u32, pos: u32, words: u32, i: u32) -> u32 {
    return ((head * (p.page_len / 32u) + pos / 32u) * words + i) * 32u + pos % 32u;
}

// Values: position after position.
fn value_place(head: u32, pos: u32, words: u32, i: u32) -> u32 {
    return (head * p.page_len + pos) * words + i;
}

// Q8K128: 32 words of codes behind the scale.

// Pair n (0..16) of the group: words n and n + 16.
fn unpack(group: u32, n: u32) -> Codes {
    return Codes(group_word(group, 1u + n), group_word(group, 17u + n));
}

// Codes of five bits, four rows at a time: a word of fifth bits for each of the four blocks of a group, where bit n of
// byte j belongs to element 4n + j, then the nibbles as in Q4_0.

// Pair n (0..16) of the group whose fifth bits start at word high: words n & 3 and (n & 3) + 4 of block n / 4.
fn five_bits(group: u32, high: u32, n: u32) -> Codes {
    let q = group_word(group, high + 4u + n);
    let h = group_word(group, high + (n >> 2u)) >> vec4<u32>(n & 3u);
    return Codes(
        (q & vec4<u32>(0x0f0f0f0fu)) | ((h & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
        ((q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)) | (h & vec4<u32>(0x10101010u)),
    );
}

// Q6_K: a word of ql holds four codes' low nibbles of one quarter and of the one after the next. Codes are 0..63; the
// -32 is taken out through the activation sums.

// Pair n (0..16) of the half superblock: word n & 7 of quarters n / 8 and n / 8 + 2.
fn unpack_q6k(row: u32, half: u32, n: u32) -> Codes {
    let ql = nibble_word(row, half, n);
    let qh = bit_word(row, half, n & 7u) >> vec4<u32>(2u * (n >> 3u));
    return Codes(
        (ql & vec4<u32>(0x0f0f0f0fu)) | ((qh & vec4<u32>(0x03030303u)) << vec4<u32>(4u)),
        ((ql >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)) | (qh & vec4<u32>(0x30303030u)),
    );
}

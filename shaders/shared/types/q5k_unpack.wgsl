// Q5_K: as Q4_K, with a fifth bit a code in 8 words of the superblock.
const BLOCK = 44u;
// The word of a superblock that the codes start at, behind the fifth bits.
const CODES = 12u;
const SMALL = false;

// Pair n (0..16) of the half superblock: word n & 7 of sub-blocks j and j + 1, j = n / 8 * 2.
fn unpack(row: u32, half: u32, n: u32) -> Codes {
    let q = code_word(row, half, n);
    let h = fifth_word(row, n & 7u) >> vec4<u32>(4u * half + (n >> 3u) * 2u);
    return Codes(
        (q & vec4<u32>(0x0f0f0f0fu)) | ((h & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
        ((q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu))
            | (((h >> vec4<u32>(1u)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
    );
}

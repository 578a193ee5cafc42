// Q5_K: as Q4_K, with a fifth bit a code in 8 words of the superblock.
const BLOCK = 44u;

// Pair n (0..16) of the half superblock: word n & 7 of sub-blocks j and j + 1, j = n / 8 * 2.
fn unpack(row: u32, half: u32, n: u32) -> Codes {
    let q = w[row + (12u + 16u * half + n) * 8u];
    let h = w[row + (4u + (n & 7u)) * 8u] >> vec4<u32>(4u * half + (n >> 3u) * 2u);
    return Codes(
        (q & vec4<u32>(0x0f0f0f0fu)) | ((h & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
        ((q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu))
            | (((h >> vec4<u32>(1u)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
    );
}

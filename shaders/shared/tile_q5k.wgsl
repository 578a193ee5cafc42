// Q5_K: as Q4_K, with a fifth bit a code in 8 words of the superblock.
const BLOCK = 44u;
#import tile_k

fn codes(row: u32, half: u32, j: u32, i: u32) -> Codes {
    let q = w[row + (12u + 16u * half + 4u * j + i) * 8u];
    let h = w[row + (4u + i) * 8u] >> vec4<u32>(4u * half + j);
    return Codes(
        (q & vec4<u32>(0x0f0f0f0fu)) | ((h & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
        ((q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu))
            | (((h >> vec4<u32>(1u)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u)),
    );
}

// Q4_K: 8 words hold 32 low nibbles (sub-block j) and 32 high nibbles (sub-block j + 1).
const BLOCK = 36u;
#import tile_k

fn codes(row: u32, half: u32, j: u32, i: u32) -> Codes {
    let q = w[row + (4u + 16u * half + 4u * j + i) * 8u];
    return Codes(q & vec4<u32>(0x0f0f0f0fu), (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
}

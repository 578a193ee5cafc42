// Q4_K: 8 words hold 32 low nibbles (sub-block j) and 32 high nibbles (sub-block j + 1).
const BLOCK = 36u;
// The word of a superblock that the codes start at.
const CODES = 4u;
const SMALL = true;

// Pair n (0..16) of the half superblock: word n & 7 of sub-blocks j and j + 1, j = n / 8 * 2.
fn unpack(row: u32, half: u32, n: u32) -> Codes {
    let q = code_word(row, half, n);
    return Codes(q & vec4<u32>(0x0f0f0f0fu), (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
}

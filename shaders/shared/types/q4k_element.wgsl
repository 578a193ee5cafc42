// Q4_K in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).
#import k_element

const BLOCK = 36u; // words of a superblock

fn row_words() -> u32 {
    return p.dim / 256u * BLOCK;
}

fn element(row: u32, e: u32) -> f32 {
    let block = row + (e >> 8u) * (BLOCK * 32u);
    let j = (e >> 5u) & 7u;
    let q = (byte(block, 4u, 32u * (j >> 1u) + (e & 31u)) >> (4u * (j & 1u))) & 15u;
    return k_element(block, j, q);
}

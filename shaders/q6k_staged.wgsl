// y = W a, W in Q6_K, a in Q8K128 blocks: many tokens, through workgroup memory.
#import staged
#import unpack_q6k
#import tile_q6k_values
#import rows_q6k

const APART = 16u;

fn place(n: u32) -> u32 {
    return n;
}

fn stage(row: u32, g: u32, n: u32) -> Codes {
    return unpack_q6k(row + (g >> 1u) * (53u * 8u), g & 1u, n);
}

fn q6k_codes(row: u32, half: u32, n: u32) -> Codes {
    return staged(n);
}

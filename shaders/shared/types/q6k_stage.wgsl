// Q6_K in the frame of staged.
#import q6k_unpack
#import q6k_values
#import q6k_rows

const APART = 16u;

fn place(n: u32) -> u32 {
    return n;
}

fn stage(row: u32, g: u32, n: u32) -> Codes {
    return unpack_q6k(row + (g >> 1u) * (Q6K_BLOCK * 8u), g & 1u, n);
}

fn q6k_codes(row: u32, half: u32, n: u32) -> Codes {
    return staged(n);
}

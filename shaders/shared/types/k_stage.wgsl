// Q4_K and Q5_K in the frame of staged; the importing shader brings how codes are unpacked.
#import k_tile
#import k_rows
const APART = 8u;

fn place(n: u32) -> u32 {
    return n + (n & 8u);
}

fn stage(row: u32, g: u32, n: u32) -> Codes {
    return unpack(row + (g >> 1u) * (BLOCK * 8u), g & 1u, n);
}

fn k_codes(row: u32, half: u32, n: u32) -> Codes {
    return staged(n);
}

// Types of four 32-blocks in the frame of staged; the importing shader brings how codes are unpacked.
#import blocks_tile

const APART = 4u;

fn place(n: u32) -> u32 {
    return n + (n & 12u);
}

fn stage(row: u32, g: u32, n: u32) -> Codes {
    return unpack(row + g * (GROUP * 8u), n);
}

fn codes(group: u32, n: u32) -> Codes {
    return staged(n);
}

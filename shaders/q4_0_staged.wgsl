// y = W a, W in Q4_0, a in Q8K128 blocks: many tokens, through workgroup memory.
#import staged
#import unpack_q4_0
#import tile_blocks

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

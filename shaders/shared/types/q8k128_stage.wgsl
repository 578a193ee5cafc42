// Q8K128 in the frame of staged.
#import q8k128_unpack
#import q8k128_values

const APART = 16u;

fn place(n: u32) -> u32 {
    return n;
}

fn stage(row: u32, g: u32, n: u32) -> Codes {
    return unpack(row + g * (GROUP * 8u), n);
}

fn codes(group: u32, n: u32) -> Codes {
    return staged(n);
}

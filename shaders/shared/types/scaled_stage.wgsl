// Types of scaled.wgsl in the frame of staged.
#import scaled_values

fn stage(row: u32, g: u32, n: u32) -> Codes {
    return unpack(row + words_before(g) * 8u, half_of(g), n);
}

fn codes(block: u32, half: u32, n: u32) -> Codes {
    return staged(n);
}

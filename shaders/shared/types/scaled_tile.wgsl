// Types of scaled.wgsl, unpacked by every thread that meets the codes.
#import scaled_values

fn codes(block: u32, half: u32, n: u32) -> Codes {
    return unpack(block, half, n);
}

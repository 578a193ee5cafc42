// Q8K128, read by every thread that meets it.
#import unpack_q8k128
#import tile_q8k128_values

fn codes(group: u32, n: u32) -> Codes {
    return unpack(group, n);
}

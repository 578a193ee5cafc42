// Q5_1, unpacked by every thread that meets it.
#import unpack_q5_1
#import tile_blocks

fn codes(group: u32, n: u32) -> Codes {
    return unpack(group, n);
}

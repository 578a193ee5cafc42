// Q4_K, unpacked by every thread that meets it.
#import unpack_q4k
#import tile_k

fn k_codes(row: u32, half: u32, n: u32) -> Codes {
    return unpack(row, half, n);
}

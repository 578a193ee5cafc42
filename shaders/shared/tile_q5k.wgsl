// Q5_K, unpacked by every thread that meets it.
#import unpack_q5k
#import tile_k

fn k_codes(row: u32, half: u32, n: u32) -> Codes {
    return unpack(row, half, n);
}

// Q6_K, unpacked by every thread that meets it.
#import unpack_q6k
#import tile_q6k_values

fn q6k_codes(row: u32, half: u32, n: u32) -> Codes {
    return unpack_q6k(row, half, n);
}

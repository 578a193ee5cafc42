// Q6_K, unpacked by every thread that meets it.
#import q6k_unpack
#import q6k_values

fn q6k_codes(row: u32, half: u32, n: u32) -> Codes {
    return unpack_q6k(row, half, n);
}

// Codes of Q4_K and Q5_K unpacked by every thread that meets them; the importing text brings unpack.
fn k_codes(row: u32, half: u32, n: u32) -> Codes {
    return unpack(row, half, n);
}

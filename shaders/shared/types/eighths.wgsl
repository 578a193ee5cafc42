// Rows of eight magnitudes 8, 25 and 43.
#import pair_book
#import signed_codes

// Four magnitudes, of the low byte of their codes.
fn eighths(x: vec4<u32>) -> vec4<u32> {
    let c = spread_pairs(x & vec4<u32>(255u));
    return vec4<u32>(0x08080808u) + c + (c << vec4<u32>(4u)) + ((c >> vec4<u32>(1u)) & vec4<u32>(0x01010101u));
}

// Row i of the codebook with eight signs.
fn signed_row(i: vec4<u32>, minus: vec4<u32>) -> Codes {
    let row = book_rows(i);
    return Codes(
        signed_codes(eighths(row), minus),
        signed_codes(eighths(row >> vec4<u32>(8u)), minus >> vec4<u32>(4u)),
    );
}

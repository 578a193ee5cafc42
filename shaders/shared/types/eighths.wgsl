// Rows of eight magnitudes 8, 25 and 43.
#import signed_codes

// The magnitudes of four codes.
fn eighths(c: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(0x08080808u) + c + (c << vec4<u32>(4u)) + ((c >> vec4<u32>(1u)) & vec4<u32>(0x01010101u));
}

// Row i of the codebook with eight signs.
fn signed_row(i: vec4<u32>, minus: vec4<u32>) -> Codes {
    let row = book_rows(i);
    return Codes(
        signed_codes(eighths(first_codes(row)), minus),
        signed_codes(eighths(last_codes(row)), minus >> vec4<u32>(4u)),
    );
}

// Rows of eight values -1, 0 and 1, of which codes are eight times and 1 more or less.
#import pair_book
#import iq1_codebook

// Row i of the codebook; `minus`: 1 where the codes are less.
fn shifted_row(i: vec4<u32>, minus: vec4<u32>) -> Codes {
    let row = book_rows(i);
    // codes of the book are 1 above their value: less 7 or 9, byte by byte
    let less = vec4<u32>(0x79797979u) - ((vec4<u32>() - minus) & vec4<u32>(0x02020202u));
    let top = vec4<u32>(0x80808080u);
    let eight = vec4<u32>(3u);
    return Codes(((first_codes(row) << eight) + less) ^ top, ((last_codes(row) << eight) + less) ^ top);
}

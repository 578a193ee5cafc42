// Codebooks of rows of four codes of three bits, a nibble each, two rows to a word. The importing text gives
//   const ROWS: u32
//   fn put_codebook(thread: u32)           put_words of each word, by 64 threads
//   fn magnitudes(codes: u32) -> u32       those of four codes, a byte each

// A row is four magnitudes.
var<workgroup> book: array<u32, ROWS>;

#import signed_codes

fn put_words(i: u32, two: u32) {
    book[2u * i] = magnitudes(spread_row(two & 0xffffu));
    book[2u * i + 1u] = magnitudes(spread_row(two >> 16u));
}

fn prepare(thread: u32, threads: u32) {
    put_codebook(thread);
    workgroupBarrier();
}

// Four nibbles to a byte each.
fn spread_row(x: u32) -> u32 {
    let bytes = (x | (x << 8u)) & 0x00ff00ffu;
    return (bytes | (bytes << 4u)) & 0x0f0f0f0fu;
}

fn book_rows(i: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(book[i.x], book[i.y], book[i.z], book[i.w]);
}

// Rows i and j of the codebook with four signs each.
fn signed_rows(i: vec4<u32>, j: vec4<u32>, minus: vec4<u32>) -> Codes {
    return Codes(signed_codes(book_rows(i), minus), signed_codes(book_rows(j), minus >> vec4<u32>(4u)));
}

// Codebooks of rows of eight codes of two bits, of which a row has a word in workgroup memory: byte i holds the codes
// of elements i and i + 4. The importing text gives what it gives to pair_book.
var<workgroup> book: array<u32, ROWS>;

fn put_words(i: u32, two: u32) {
    book[2u * i] = spread_row(two & 0xffffu);
    book[2u * i + 1u] = spread_row(two >> 16u);
}

fn prepare(thread: u32, threads: u32) {
    put_codebook(thread);
    workgroupBarrier();
}

// The pairs of bits of the low byte to bits 0 of a byte each, those of the high byte to bits 4.
fn spread_row(x: u32) -> u32 {
    let nibbles = (x & 0x000fu) | ((x & 0x00f0u) << 12u) | ((x & 0x0f00u) >> 4u) | ((x & 0xf000u) << 8u);
    return (nibbles | (nibbles << 6u)) & 0x33333333u;
}

// A row of the codebook for each of four rows of weights.
fn book_rows(i: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(book[i.x], book[i.y], book[i.z], book[i.w]);
}

// The codes of the first four elements, and of the others, a byte each.
fn first_codes(row: vec4<u32>) -> vec4<u32> {
    return row & vec4<u32>(0x03030303u);
}

fn last_codes(row: vec4<u32>) -> vec4<u32> {
    return (row >> vec4<u32>(4u)) & vec4<u32>(0x03030303u);
}

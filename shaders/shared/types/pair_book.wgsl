// Codebooks of rows of eight codes of two bits, in workgroup memory too two rows to a word. The importing text gives
//   const ROWS: u32
//   fn put_codebook(thread: u32)           put_words of each word, by 64 threads
#import spread

var<workgroup> book: array<u32, ROWS / 2u>;

fn put_words(i: u32, two: u32) {
    book[i] = two;
}

fn prepare(thread: u32, threads: u32) {
    put_codebook(thread);
    workgroupBarrier();
}

// A row of the codebook for each of four rows of weights: 16 bits, what is above them is another row's.
fn book_rows(i: vec4<u32>) -> vec4<u32> {
    let words = vec4<u32>(book[i.x >> 1u], book[i.y >> 1u], book[i.z >> 1u], book[i.w >> 1u]);
    return words >> ((i & vec4<u32>(1u)) << vec4<u32>(4u));
}

// The codes of the first four elements, and of the others, a byte each.
fn first_codes(row: vec4<u32>) -> vec4<u32> {
    return spread_pairs(row & vec4<u32>(255u));
}

fn last_codes(row: vec4<u32>) -> vec4<u32> {
    return spread_pairs((row >> vec4<u32>(8u)) & vec4<u32>(255u));
}

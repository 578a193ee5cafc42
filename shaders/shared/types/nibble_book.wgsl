// Codes of four bits that stand for one of sixteen values. The importing text gives these, as four words of four bytes.

// Of each byte the values of its nibbles: that of the low one in the low half, that of the high one in the high half.
var<workgroup> book: array<u32, 256>;

fn nibble_value(n: u32) -> u32 {
    let low = select(VALUES_0, VALUES_1, n > 3u);
    let high = select(VALUES_2, VALUES_3, n > 11u);
    return (select(low, high, n > 7u) >> (8u * (n & 3u))) & 255u;
}

fn prepare(thread: u32, threads: u32) {
    for (var i = thread; i < 256u; i += threads) {
        book[i] = nibble_value(i & 15u) | (nibble_value(i >> 4u) << 16u);
    }
    workgroupBarrier();
}

// The values of the low nibbles (x) and the high ones (y) of a word.
fn nibble_values(q: u32) -> vec2<u32> {
    let first = book[q & 255u] | (book[(q >> 8u) & 255u] << 8u);
    let last = book[(q >> 16u) & 255u] | (book[q >> 24u] << 8u);
    return vec2<u32>((first & 0xffffu) | (last << 16u), (first >> 16u) | (last & 0xffff0000u));
}

fn nibble_codes(q: vec4<u32>) -> Codes {
    let x = nibble_values(q.x);
    let y = nibble_values(q.y);
    let z = nibble_values(q.z);
    let w = nibble_values(q.w);
    return Codes(vec4<u32>(x.x, y.x, z.x, w.x), vec4<u32>(x.y, y.y, z.y, w.y));
}

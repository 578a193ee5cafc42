// Q4_0: low nibbles are elements 0..16 of a block, high nibbles 16..32.
#import above
#import scaled_blocks
const GROUP = 18u;
const HEAD = 2u;

// What the codes lie above their value.
const ABOVE = 8;

// Pair n (0..16) of the group: words n & 3 and (n & 3) + 4 of block n / 4.
fn unpack(group: u32, n: u32) -> Codes {
    let q = group_word(group, 2u + n);
    return Codes(q & vec4<u32>(0x0f0f0f0fu), (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
}

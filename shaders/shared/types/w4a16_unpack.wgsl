// W4A16: nibbles as Q4_0.
#import offset_blocks
const GROUP = 21u;
const HEAD = 5u;

// Pair n (0..16) of the group: words n & 3 and (n & 3) + 4 of block n / 4.
fn unpack(group: u32, n: u32) -> Codes {
    let q = group_word(group, 5u + n);
    return Codes(q & vec4<u32>(0x0f0f0f0fu), (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
}

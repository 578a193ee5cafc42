// W8A16: eight words of codes a block.
#import offset_blocks
const GROUP = 37u;

// Pair n (0..16) of the group: words n & 3 and (n & 3) + 4 of block n / 4.
fn unpack(group: u32, n: u32) -> Codes {
    let at = group + (5u + n + (n & 12u)) * 8u;
    return Codes(w[at], w[at + 32u]);
}

// W8A16: eight words of codes a block.
#import offset_blocks
const GROUP = 37u;
const HEAD = 5u;

// Pair n (0..16) of the group: words n & 3 and (n & 3) + 4 of block n / 4.
fn unpack(group: u32, n: u32) -> Codes {
    let at = 5u + n + (n & 12u);
    return Codes(group_word(group, at), group_word(group, at + 4u));
}

// Q8_0: eight words of codes a block.
#import above
#import scaled_blocks
const GROUP = 34u;
const HEAD = 2u;

// What the codes lie above their value.
const ABOVE = 0;

// Pair n (0..16) of the group: words n & 3 and (n & 3) + 4 of block n / 4.
fn unpack(group: u32, n: u32) -> Codes {
    let at = 2u + n + (n & 12u);
    return Codes(group_word(group, at), group_word(group, at + 4u));
}

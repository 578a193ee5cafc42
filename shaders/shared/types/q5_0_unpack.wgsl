// Q5_0: as Q4_0, with a fifth bit a code.
#import five_bits
#import above
#import scaled_blocks
const GROUP = 22u;
const HEAD = 6u;

// What the codes lie above their value.
const ABOVE = 16;

// Pair n (0..16) of the group: words n & 3 and (n & 3) + 4 of block n / 4.
fn unpack(group: u32, n: u32) -> Codes {
    return five_bits(group, 2u, n);
}

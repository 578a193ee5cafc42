// Types whose group is 32 words of signed codes (twin src/ops/types/scaled.rs). Of its PARTS each has a float scale,
// and of a part equal runs have an integer scale each: ((u0 + u1) + u2) + ... with u = D · v(sum of scale · dot). The
// file of a type gives, for four rows at a time (of which frames with one row use the first),
//   const GROUP or BLOCK: u32                  words of a group, or of a block of two groups
//   const PARTS: u32, const RUNS: u32          parts of a group, 1, 2, 4 or 8; and runs, 1, 4 or 8 of a part
//   const APART: u32                           a pair of words of codes is so many words apart
//   const HEAD: u32, fn head_at(half, i)       how many words it needs before codes, and where in the block
//   const WORDS: u32, fn code_at(half, i)      the same of codes, at most 16
//   const WIDE: bool                           whether the sum of a part may be 2^24 or more
//   fn part_scale(block, half, part) -> vec4<f32>
//   fn unpack(block, half, n) -> Codes         pair n (0..16) of the group: words place(n) and place(n) + APART
//   what integer_scales or no_scales asks for; a codebook or no_codebook
// and finds its words by head_word(block, half, i) and code_word(block, half, i).
#import codes

fn place(n: u32) -> u32 {
    return n + (n & ~(APART - 1u));
}

// The pair that a word of codes is in.
fn pair_of(word: u32) -> u32 {
    return (word & (APART - 1u)) | ((word >> 1u) & ~(APART - 1u));
}

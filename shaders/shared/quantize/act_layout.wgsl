// The layout of an activation block, and so of a Q8K128 block as files have it (docs/exactness.md section 2; twin
// ops::linear): the scale, 32 words of codes, and the sums of sixteenths, two a word.
const ACT_BLOCK_WORDS = 37u;
const ACT_SUMS = 33u; // the word the sums begin at

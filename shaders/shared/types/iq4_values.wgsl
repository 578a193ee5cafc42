// The sixteen values of IQ4_NL and IQ4_XS, four bytes a word.
#import nibble_book

const VALUES_0 = 0xbfad9881u;
const VALUES_1 = 0xf6eaddcfu;
const VALUES_2 = 0x26190d01u;
const VALUES_3 = 0x71594535u;

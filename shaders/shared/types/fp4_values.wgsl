// The sixteen values of MXFP4 and NVFP4, twice those of e2m1, four bytes a word.
#import nibble_book

const VALUES_0 = 0x03020100u;
const VALUES_1 = 0x0c080604u;
const VALUES_2 = 0xfdfeff00u;
const VALUES_3 = 0xf4f8fafcu;

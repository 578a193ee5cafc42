// y = W x, W in f16, two elements a word: a few tokens.
const T = 1u;
#import matmul
#import tile_f16

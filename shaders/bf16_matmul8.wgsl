// y = W x, W in bf16, two elements a word: a few tokens.
const T = 1u;
#import matmul
#import tile_bf16

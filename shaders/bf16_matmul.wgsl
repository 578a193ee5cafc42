// y = W x, W in bf16, two elements a word: many tokens.
const T = 4u;
#import matmul
#import tile_bf16

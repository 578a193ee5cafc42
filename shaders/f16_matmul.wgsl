// y = W x, W in f16, two elements a word: many tokens.
const T = 4u;
#import matmul
#import tile_f16

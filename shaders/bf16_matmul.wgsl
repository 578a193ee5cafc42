// y = W x, W in bf16, two elements a word: many tokens.
#import matmul
#import tile_bf16

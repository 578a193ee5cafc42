// y = W x, W in f16, two elements a word: many tokens.
#import matmul
#import tile_f16

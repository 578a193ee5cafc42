// y = W x, W in f32: many tokens.
#import matmul
#import tile_f32

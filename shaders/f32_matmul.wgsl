// y = W x, W in f32: many tokens.
const T = 4u;
#import matmul
#import tile_f32

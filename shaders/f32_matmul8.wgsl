// y = W x, W in f32: a few tokens.
const T = 1u;
#import matmul
#import tile_f32

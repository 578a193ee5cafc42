// y = W a, W in Q8_0, a in Q8K128 blocks: many tokens.
const T = 4u;
#import matmul
#import tile_q8_0
#import tile_sum

// y = W a, W in Q5_0, a in Q8K128 blocks: a few tokens.
const T = 1u;
#import matmul
#import tile_q5_0
#import tile_sum

// y = W a, W in Q5_1, a in Q8K128 blocks: a few tokens.
const T = 1u;
#import matmul
#import tile_q5_1
#import tile_sum

// y = W a, W in Q6_K, a in Q8K128 blocks: a few tokens.
const T = 1u;
#import matmul
#import tile_q6k
#import tile_sum
#import rows_q6k

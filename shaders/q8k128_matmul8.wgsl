// y = W a, both in Q8K128 blocks: a few tokens.
const T = 1u;
#import matmul
#import tile_q8k128
#import tile_sum

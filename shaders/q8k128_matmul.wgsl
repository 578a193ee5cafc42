// y = W a, both in Q8K128 blocks: many tokens.
const T = 4u;
#import matmul
#import tile_q8k128
#import tile_sum

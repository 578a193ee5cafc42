// y = W a, W in Q4_K, a in Q8K128 blocks: many tokens.
const T = 4u;
#import matmul
#import tile_q4k
#import tile_sum
#import rows_k

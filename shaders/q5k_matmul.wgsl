// y = W a, W in Q5_K, a in Q8K128 blocks: many tokens.
const T = 4u;
#import matmul
#import tile_q5k
#import tile_sum
#import rows_k

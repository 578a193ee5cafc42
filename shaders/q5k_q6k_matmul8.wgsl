// y = W a, W in Q5_K and below it in Q6_K, a in Q8K128 blocks: a few tokens.
const T = 1u;
#import matmul_pair
#import tile_q5k
#import pair_k_q6k

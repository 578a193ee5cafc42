// y = W a, W in Q5_K and below it in Q6_K, a in Q8K128 blocks: many tokens.
const T = 4u;
#import matmul_pair
#import pair_q5k_q6k

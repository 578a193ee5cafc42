// y = W a, W in Q4_K and below it in Q6_K, a in Q8K128 blocks: four rows a thread.
#import matvec_pair4
#import tile_q4k
#import pair_k_q6k

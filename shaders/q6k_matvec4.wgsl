// y = W a, W in Q6_K, a in Q8K128 blocks: four rows a thread.
#import matvec4
#import tile_q6k
#import tile_sum
#import rows_q6k

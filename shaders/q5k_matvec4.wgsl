// y = W a, W in Q5_K, a in Q8K128 blocks: four rows a thread.
#import matvec4
#import tile_q5k
#import tile_sum
#import rows_k

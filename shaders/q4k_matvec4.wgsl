// y = W a, W in Q4_K, a in Q8K128 blocks: four rows a thread.
#import matvec4
#import tile_q4k
#import tile_sum
#import rows_k

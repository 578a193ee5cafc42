// y = W a, both in Q8K128 blocks: four rows a thread.
#import matvec4
#import tile_q8k128
#import tile_sum

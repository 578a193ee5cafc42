// y = W a, W in Q5_1, a in Q8K128 blocks: four rows a thread.
#import matvec4
#import tile_q5_1
#import tile_sum

// y = W a, W in Q8_0, a in Q8K128 blocks.
#import matvec
#import q8_0

// y = W a, W in Q4_0, a in Q8K128 blocks.
#import matvec
#import q4_0

// y = W a, W in Q5_0, a in Q8K128 blocks.
#import matvec
#import q5_0

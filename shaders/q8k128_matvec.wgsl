// y = W a, both in Q8K128 blocks.
#import matvec
#import q8k128

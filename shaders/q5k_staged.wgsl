// y = W a, W in Q5_K, a in Q8K128 blocks: many tokens, through workgroup memory.
#import staged
#import unpack_q5k
#import staged_k

// y = W a, W in Q4_K, a in Q8K128 blocks: many tokens, through workgroup memory.
#import staged
#import unpack_q4k
#import staged_k

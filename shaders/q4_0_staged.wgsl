// y = W a, W in Q4_0, a in Q8K128 blocks: many tokens, through workgroup memory.
#import staged
#import unpack_q4_0
#import staged_blocks

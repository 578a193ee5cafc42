// y = W a, W in Q5_1, a in Q8K128 blocks: many tokens, through workgroup memory.
#import staged
#import unpack_q5_1
#import staged_blocks

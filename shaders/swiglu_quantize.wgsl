// silu(gate) · up to Q8K128 blocks, one workgroup a group of 128.
#import quantise
#import swiglu_blocks

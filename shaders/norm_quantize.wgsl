// RMS norm, then activations to Q8K128 blocks: one workgroup a row, eight groups of 128 at once.
#import quantise
#import norm_blocks

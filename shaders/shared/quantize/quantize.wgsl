// Activations to Q8K128 blocks, without subgroups.
#import max_tree
#import quantize_blocks

// Activations to Q8K128 blocks, without subgroups.
#import max_tree
#import quantise_blocks

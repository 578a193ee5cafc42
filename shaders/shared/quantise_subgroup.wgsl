// Activations to Q8K128 blocks, with subgroups.
#import max_subgroup
#import quantise_blocks

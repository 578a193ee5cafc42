// RMS norm, then activations to Q8K128 blocks: one workgroup a row, eight groups of 128 at once; with subgroups.
enable subgroups;
#import quantise_subgroup
#import norm_blocks

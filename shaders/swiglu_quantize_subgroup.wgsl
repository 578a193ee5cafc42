// silu(gate) · up to Q8K128 blocks, one workgroup a group of 128; with subgroups.
enable subgroups;
#import quantise_subgroup
#import swiglu_blocks

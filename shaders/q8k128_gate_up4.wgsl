// Gate and up rows in Q8K128, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q8k128
#import tile_sum

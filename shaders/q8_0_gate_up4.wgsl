// Gate and up rows in Q8_0, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q8_0
#import tile_sum

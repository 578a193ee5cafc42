// Gate and up rows in Q4_0, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q4_0
#import tile_sum

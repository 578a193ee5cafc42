// Gate and up rows in Q5_0, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q5_0
#import tile_sum

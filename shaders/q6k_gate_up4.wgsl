// Gate and up rows in Q6_K, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q6k
#import tile_sum
#import rows_q6k

// Gate and up rows in Q5_K, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q5k
#import tile_sum
#import rows_k

// Gate and up rows in Q4_K, SwiGLU and quantise: four rows a thread.
#import gate_up4
#import tile_q4k
#import tile_sum
#import rows_k

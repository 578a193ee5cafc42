// Gate and up rows in Q4_0, SwiGLU and quantise.
#import gate_up
#import q4_0

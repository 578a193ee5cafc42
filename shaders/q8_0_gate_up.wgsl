// Gate and up rows in Q8_0, SwiGLU and quantise.
#import gate_up
#import q8_0

// Gate and up rows in Q5_0, SwiGLU and quantise.
#import gate_up
#import q5_0

// Gate and up rows in Q5_1, SwiGLU and quantise.
#import gate_up
#import q5_1

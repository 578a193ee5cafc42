// Gate and up rows in Q8K128, SwiGLU and quantise.
#import gate_up
#import q8k128

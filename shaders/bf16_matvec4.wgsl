// y = W x, W in bf16, two elements a word: four rows a thread.
#import matvec4
#import tile_bf16

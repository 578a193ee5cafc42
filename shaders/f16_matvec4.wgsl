// y = W x, W in f16, two elements a word: four rows a thread.
#import matvec4
#import tile_f16

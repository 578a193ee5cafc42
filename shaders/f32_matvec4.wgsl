// y = W x, W in f32: four rows a thread.
#import matvec4
#import tile_f32

// The probe of matrices of 8 by 8.
#import coop8
#import coop_probe

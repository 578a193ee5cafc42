// The probe of matrices of 16 by 16.
#import coop16
#import coop_probe

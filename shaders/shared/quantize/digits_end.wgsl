// Where the loop over digits of a tile and of scaled.wgsl ends: of two a number that compilers do not know, so that they
// leave it a loop, which in one piece would need more registers than there are. The importing shader gives the parameters
// `p`.
#import act_digits

fn digits_end() -> u32 {
    return select(p.digits, 1u, act_digits == 1u);
}

// v of the sum of the activations of 32-block b, the block of activations (its low digit) at a: at most 32 · 127 a digit,
// so every step is exact.
#import act_digits

fn sum_value(a: u32, b: u32) -> f32 {
    let low = f32(sum32(a, b));
    if act_digits == 1u {
        return low;
    }
    return B(B(f32(sum32(a + ACT_BLOCK_WORDS, b)) * 128.0) + low);
}

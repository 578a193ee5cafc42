// Buffers of a quantized linear, and what every format reads of the activations. The importing shader gives the
// parameters `p`.
#import exact

@group(0) @binding(1) var<storage, read> w: array<u32>;           // (row_blocks, row_words, 32)
@group(0) @binding(2) var<storage, read> act: array<u32>;         // (tokens, groups, digits, 37)

// The value of an integer sum taken with each digit of the activations.
fn digits_value(low: i32, high: i32) -> f32 {
    if act_digits == 1u {
        return i2f(low);
    }
    return B(B(i2f(high) * 128.0) + i2f(low));
}

#import act_word
#import act_sums
#import act_layout
#import act_digits

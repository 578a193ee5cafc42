// A group of four 32-blocks with a scale each, one row: ((u0 + u1) + u2) + u3 with u = scale · value. The importing shader
// gives block_sum and block_scale.
#import act_digits

fn four_blocks(group: u32, a: u32) -> f32 {
    var t = B(0.0);
    for (var b = 0u; b < 4u; b++) {
        let low = block_sum(group, b, a);
        var high = 0;
        if act_digits == 2u {
            high = block_sum(group, b, a + ACT_BLOCK_WORDS);
        }
        t = B(t + B(block_scale(group, b) * digits_value(low, high)));
    }
    return t;
}

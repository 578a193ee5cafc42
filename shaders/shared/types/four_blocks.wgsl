// A group of four 32-blocks with an f16 scale each (two scales a word at the group's start):
// ((u0 + u1) + u2) + u3 with u = scale · value. The importing shader gives block_sum.
fn four_blocks(group: u32, a: u32) -> f32 {
    var t = B(0.0);
    for (var b = 0u; b < 4u; b++) {
        let low = block_sum(group, b, a);
        var high = 0;
        if p.digits == 2u {
            high = block_sum(group, b, a + ACT_BLOCK_WORDS);
        }
        let d = f16_to_f32((w[group + (b >> 1u) * 32u] >> (16u * (b & 1u))) & 0xffffu);
        t = B(t + B(d * digits_value(low, high)));
    }
    return t;
}

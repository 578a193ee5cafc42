// Q4_1: codes as Q4_0, a word with scale and minimum a block.
#import above
const GROUP = 20u;
const HEAD = 4u;

// What the codes lie above their value.
const ABOVE = 0;

// Pair n (0..16) of the group: words n & 3 and (n & 3) + 4 of block n / 4.
fn unpack(group: u32, n: u32) -> Codes {
    let q = group_word(group, 4u + n);
    return Codes(q & vec4<u32>(0x0f0f0f0fu), (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
}

// u = scale · value + minimum · (sum of the activations).
fn add_block(group: u32, g: u32, b: u32) {
    let head = group_word(group, b);
    let d = f16_to_f32_4(low_half(head));
    let m = f16_to_f32_4(high_half(head));
    for (var t = 0u; t < T; t++) {
        let u = B4(B4(d * block_value[t]) + B4(m * sum_value(act_at(t, g), b)));
        value[t] = B4(value[t] + u);
    }
}

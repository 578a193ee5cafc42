// Blocks with an f16 scale each, two scales a word at the group's start: u = scale · value.
fn add_block(group: u32, g: u32, b: u32) {
    let d = f16_to_f32_4(low_half(group_word(group, b >> 1u) >> vec4<u32>(16u * (b & 1u))));
    for (var t = 0u; t < T; t++) {
        value[t] = B4(value[t] + B4(d * block_value[t]));
    }
}

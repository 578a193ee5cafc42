// One f16 scale, in the low half of a block's first word.
fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    return f16_to_f32_4(low_half(head_word(block, half, 0u)));
}

// An f16 in the low half of a block's first word, of which the scale is an eighth.
fn part_scale(block: u32, half: u32, part: u32) -> vec4<f32> {
    return B4(f16_to_f32_4(low_half(head_word(block, half, 0u))) * 0.125);
}

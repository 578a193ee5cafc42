// Blocks with an f32 scale and an offset each, four rows at a time: u = scale · value. At the group's start are the four
// scales, then a word with the four offsets: what the codes of each block lie above their value.
const SHIFTED = true;

fn sum_start(group: u32, b: u32, a: u32) -> vec4<i32> {
    let offset = bitcast<vec4<i32>>(group_word(group, 4u) << vec4<u32>(24u - 8u * b)) >> vec4<u32>(24u);
    return offset * -sum32(a, b);
}

fn add_block(group: u32, g: u32, b: u32) {
    let d = bitcast<vec4<f32>>(group_word(group, b));
    for (var t = 0u; t < T; t++) {
        value[t] = B4(value[t] + B4(d * block_value[t]));
    }
}

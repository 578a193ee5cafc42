// Words of a block of four rows where they lie, in the buffer.
fn head_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return w[block + head_at(half, i) * 8u];
}

fn code_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return w[block + code_at(half, i) * 8u];
}

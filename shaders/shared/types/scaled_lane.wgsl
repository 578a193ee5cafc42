// Words of a block of one row, in place of the first of four: compilers drop what is made of the others.
fn head_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return vec4<u32>(w[block + head_at(half, i) * 32u], 0u, 0u, 0u);
}

fn code_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return vec4<u32>(w[block + code_at(half, i) * 32u], 0u, 0u, 0u);
}

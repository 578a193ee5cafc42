// Superblocks of Q4_K and Q5_K, four rows at a time. The importing text gives BLOCK, the words of one.

// Byte i of each.
fn byte_of(x: vec4<u32>, i: u32) -> vec4<i32> {
    return vec4<i32>((x >> vec4<u32>(8u * i)) & vec4<u32>(255u));
}

fn k_row_words() -> u32 {
    return p.k / 256u * BLOCK;
}

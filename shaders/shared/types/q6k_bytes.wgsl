// Superblocks of Q6_K, four rows at a time.
const Q6K_BLOCK = 53u; // words of a superblock

fn q6k_row_words() -> u32 {
    return p.k / 256u * Q6K_BLOCK;
}

// Byte i of each, signed.
fn scale_of(x: vec4<u32>, i: u32) -> vec4<i32> {
    return bitcast<vec4<i32>>(x << vec4<u32>(24u - 8u * i)) >> vec4<u32>(24u);
}

// Q6_K in the frame of embed: words of a row, and the value of one element (docs/exactness.md section 3).

const Q6K_BLOCK = 53u; // words of a superblock

fn row_words() -> u32 {
    return p.dim / 256u * Q6K_BLOCK;
}

fn element(row: u32, e: u32) -> f32 {
    let block = row + (e >> 8u) * (Q6K_BLOCK * 32u);
    let half = (e >> 7u) & 1u;
    let t = (e >> 5u) & 3u;
    let l = e & 31u;
    let lo = (byte(block, 5u, 64u * half + l + 32u * (t & 1u)) >> (4u * (t >> 1u))) & 15u;
    let hi = (byte(block, 37u, 32u * half + l) >> (2u * t)) & 3u;
    let scale = B(half_at(block, 0u, 0u) * signed_byte(block, 1u, (e & 255u) >> 4u));
    return B(scale * f32(i32(lo | (hi << 4u)) - 32));
}

// (d · scale) · q - dmin · minimum of a Q4_K or Q5_K superblock; every product is exact.
fn k_element(block: u32, j: u32, q: u32) -> f32 {
    let u0 = w[block + 32u];
    let u1 = w[block + 64u];
    let u2 = w[block + 96u];
    var sc = u0 & 0x3f3f3f3fu;
    var m = u1 & 0x3f3f3f3fu;
    if j >= 4u {
        sc = (u2 & 0x0f0f0f0fu) | (((u0 >> 6u) & 0x03030303u) << 4u);
        m = ((u2 >> 4u) & 0x0f0f0f0fu) | (((u1 >> 6u) & 0x03030303u) << 4u);
    }
    let shift = 8u * (j & 3u);
    let scale = B(half_at(block, 0u, 0u) * f32((sc >> shift) & 255u));
    let low = B(half_at(block, 0u, 1u) * f32((m >> shift) & 255u));
    return B(B(scale * f32(q)) - low);
}

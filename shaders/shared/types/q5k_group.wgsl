// Rows packed in Q5_K: words of a row, and the value of one group (docs/exactness.md section 4).
#import k_scales

const BLOCK = 44u; // words of a superblock

fn q5k_row_words() -> u32 {
    return p.k / 256u * BLOCK;
}

fn k_sums(row: u32, half: u32, a: u32) -> vec2<i32> {
    let sc = k_scales(row, half);
    var s = vec2<i32>(0, 0);
    for (var j = 0u; j < 4u; j += 2u) {
        let qs = row + (12u + 16u * half + 4u * j) * 32u;
        let bit = 4u * half + j;
        var lo = 0;
        var hi = 0;
        for (var i = 0u; i < 8u; i++) {
            let q = w[qs + i * 32u];
            let h = w[row + (4u + i) * 32u] >> bit;
            lo += dot4I8Packed((q & 0x0f0f0f0fu) | ((h & 0x01010101u) << 4u), act[a + 1u + 8u * j + i]);
            hi += dot4I8Packed(((q >> 4u) & 0x0f0f0f0fu) | (((h >> 1u) & 0x01010101u) << 4u), act[a + 9u + 8u * j + i]);
        }
        s.x += i32((sc.x >> (8u * j)) & 255u) * lo + i32((sc.x >> (8u * j + 8u)) & 255u) * hi;
        s.y += i32((sc.y >> (8u * j)) & 255u) * sum32(a, j) + i32((sc.y >> (8u * j + 8u)) & 255u) * sum32(a, j + 1u);
    }
    return s;
}

fn q5k_value(row: u32, g: u32, a: u32) -> f32 {
    return k_group_value(row + (g >> 1u) * (BLOCK * 32u), g, a);
}

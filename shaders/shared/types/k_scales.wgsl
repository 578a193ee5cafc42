// Scales (x) and minima (y), four bytes each, of sub-blocks 4·half .. 4·half + 3 of a Q4_K or Q5_K superblock.
#import act_digits

fn k_scales(row: u32, half: u32) -> vec2<u32> {
    let u0 = w[row + 32u];
    let u1 = w[row + 64u];
    if half == 0u {
        return vec2<u32>(u0 & 0x3f3f3f3fu, u1 & 0x3f3f3f3fu);
    }
    let u2 = w[row + 96u];
    return vec2<u32>(
        (u2 & 0x0f0f0f0fu) | (((u0 >> 6u) & 0x03030303u) << 4u),
        ((u2 >> 4u) & 0x0f0f0f0fu) | (((u1 >> 6u) & 0x03030303u) << 4u),
    );
}

// Both sums of one group for one digit: x = sum of scale · dot, y = sum of minimum · sum of activations.
fn k_group_value(row: u32, g: u32, a: u32) -> f32 {
    let half = g & 1u;
    let low = k_sums(row, half, a);
    var high = vec2<i32>(0, 0);
    if act_digits == 2u {
        high = k_sums(row, half, a + ACT_BLOCK_WORDS);
    }
    let dw = w[row];
    let s = B(f16_to_f32(dw & 0xffffu) * digits_value(low.x, high.x));
    let m = B(f16_to_f32(dw >> 16u) * digits_value(low.y, high.y));
    return B(s - m);
}

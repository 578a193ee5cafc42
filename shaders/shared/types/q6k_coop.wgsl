// Q6_K in the frame of coop: codes times their scale may need twelve bits, one more than f16 has, so scales are taken apart
// as 16 high + low, and a group is two sums.
const Q6K_BLOCK = 53u; // words of a superblock
const PARTS = 2u;
const STEPS = 4u;

fn row_words() -> u32 {
    return p.k / 256u * Q6K_BLOCK;
}

fn block_of(part: u32, step: u32) -> u32 {
    return step;
}

fn scaled(word: u32, scale: i32) -> vec4<i32> {
    return (vec4<i32>(unpack4xU8(word)) - vec4<i32>(32)) * scale;
}

// Part 0 has the low digit of the scales, part 1 the high one.
fn entries(row: u32, g: u32, part: u32, step: u32, i: u32) -> Entries {
    let block = row + (g >> 1u) * (Q6K_BLOCK * 8u);
    let half = g & 1u;
    let ql = w[block + (5u + 16u * half + 8u * (step & 1u) + i) * 8u] >> vec4<u32>(4u * (step >> 1u));
    let qh = w[block + (37u + 8u * half + i) * 8u] >> vec4<u32>(2u * step);
    let q = (ql & vec4<u32>(0x0f0f0f0fu)) | ((qh & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
    // a byte for each sixteenth of the half
    let sixteenth = 2u * (step & 1u) + (i >> 2u);
    let scales = bitcast<vec4<i32>>(w[block + (1u + 2u * half + (step >> 1u)) * 8u] << vec4<u32>(24u - 8u * sixteenth));
    let scale = select((scales >> vec4<u32>(24u)) & vec4<i32>(15), scales >> vec4<u32>(28u), part == 1u);
    return Entries(scaled(q.x, scale.x), scaled(q.y, scale.y), scaled(q.z, scale.z), scaled(q.w, scale.w));
}

fn take(row: u32, g: u32, part: u32) {
    let d = f16_to_f32_4(low_half(w[row + (g >> 1u) * (Q6K_BLOCK * 8u)]));
    for (var t = 0u; t < T; t++) {
        if part == 0u {
            value[t] = sum(t);
        } else {
            value[t] = B4(d * i2f4(16 * vec4<i32>(sum(t)) + vec4<i32>(value[t])));
        }
    }
}

// Q4_K in the frame of coop: codes times the scale of their sub-block, so that a group is one sum. The minima's sum has four
// products a group and is made of byte dots: of the minima with the sums of 32 activations, at most 4064, in two digits.
#import act_sums
const BLOCK = 36u; // words of a superblock
const PARTS = 1u;
const STEPS = 4u;

fn row_words() -> u32 {
    return p.k / 256u * BLOCK;
}

fn block_of(part: u32, step: u32) -> u32 {
    return step;
}

// Four rows' words with the scales (at 0) or the minima (at 4) of the four sub-blocks of a half superblock, a byte each.
fn six_bits(block: u32, half: u32, at: u32) -> vec4<u32> {
    // both at once, whichever half asks
    let u = w[block + 8u + 2u * at];
    let v = w[block + 24u];
    let high = ((u >> vec4<u32>(6u)) & vec4<u32>(0x03030303u)) << vec4<u32>(4u);
    let second = ((v >> vec4<u32>(at)) & vec4<u32>(0x0f0f0f0fu)) | high;
    return select(u & vec4<u32>(0x3f3f3f3fu), second, half == 1u);
}

// Four codes times their scale, two to a product: at most 945 each, which the masks let compilers know.
fn nibbles(word: u32, scale: u32) -> vec4<i32> {
    let even = (word & 0x000f000fu) * scale;
    let odd = ((word >> 8u) & 0x000f000fu) * scale;
    return vec4<i32>(vec4<u32>(even, odd, even >> 16u, odd >> 16u) & vec4<u32>(1023u));
}

fn entries(row: u32, g: u32, part: u32, step: u32, i: u32) -> Entries {
    let block = row + (g >> 1u) * (BLOCK * 8u);
    let half = g & 1u;
    let q = w[block + (4u + 16u * half + 8u * (step >> 1u) + i) * 8u] >> vec4<u32>(4u * (step & 1u));
    let scale = (six_bits(block, half, 0u) >> vec4<u32>(8u * step)) & vec4<u32>(255u);
    return Entries(nibbles(q.x, scale.x), nibbles(q.y, scale.y), nibbles(q.z, scale.z), nibbles(q.w, scale.w));
}

fn take(row: u32, g: u32, part: u32) {
    let block = row + (g >> 1u) * (BLOCK * 8u);
    let minima = six_bits(block, g & 1u, 4u);
    let dw = w[block];
    let d = f16_to_f32_4(low_half(dw));
    let dmin = f16_to_f32_4(high_half(dw));
    for (var t = 0u; t < T; t++) {
        let a = act_at(t, g);
        let s = vec4<i32>(sum32(a, 0u), sum32(a, 1u), sum32(a, 2u), sum32(a, 3u));
        let m = dots(minima, pack4xI8(s >> vec4<u32>(7u))) * 128 + dots(minima, pack4xI8(s & vec4<i32>(127)));
        value[t] = B4(B4(d * sum(t)) - B4(dmin * vec4<f32>(m)));
    }
}

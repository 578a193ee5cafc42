// Q8_0 in the frame of coop: a sum for each block, which has a scale of its own.
#import code_entries
const GROUP = 34u; // words of a group
const PARTS = 4u;
const STEPS = 1u;

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn block_of(part: u32, step: u32) -> u32 {
    return part;
}

fn entries(row: u32, g: u32, part: u32, step: u32, i: u32) -> Entries {
    return code_entries(w[row + (g * GROUP + 2u + 8u * part + i) * 8u]);
}

fn take(row: u32, g: u32, part: u32) {
    let scales = w[row + (g * GROUP + (part >> 1u)) * 8u];
    let d = f16_to_f32_4(low_half(scales >> vec4<u32>(16u * (part & 1u))));
    for (var t = 0u; t < T; t++) {
        if part == 0u {
            value[t] = B4(vec4<f32>());
        }
        value[t] = B4(value[t] + B4(d * sum(t)));
    }
}

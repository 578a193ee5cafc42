// Q8K128 in the frame of coop: one sum a group.
#import code_entries
const GROUP = 33u; // words of a group
const PARTS = 1u;
const STEPS = 4u;

fn row_words() -> u32 {
    return p.k / 128u * GROUP;
}

fn block_of(part: u32, step: u32) -> u32 {
    return step;
}

fn entries(row: u32, g: u32, part: u32, step: u32, i: u32) -> Entries {
    return code_entries(w[row + (g * GROUP + 1u + 8u * step + i) * 8u]);
}

fn take(row: u32, g: u32, part: u32) {
    let d = bitcast<vec4<f32>>(w[row + g * (GROUP * 8u)]);
    for (var t = 0u; t < T; t++) {
        value[t] = B4(d * sum(t));
    }
}

// Weights in f16, two elements a word.
const PER = 2u;

fn elements(words: vec4<u32>) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(f16_to_f32_4(low_half(words)), f16_to_f32_4(high_half(words)));
}

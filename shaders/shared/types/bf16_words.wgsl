// Weights in bf16, two elements a word.
const PER = 2u;

fn elements(words: vec4<u32>) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(
        bitcast<vec4<f32>>(words << vec4<u32>(16u)),
        bitcast<vec4<f32>>(words & vec4<u32>(0xffff0000u)),
    );
}

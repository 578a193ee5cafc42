// Weights in f32.
const PER = 1u;

fn elements(words: vec4<u32>) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(bitcast<vec4<f32>>(words), vec4<f32>());
}

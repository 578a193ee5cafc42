// Scales without minima.
const MINIMA = false;

fn minima_scale(block: u32, half: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn minima_sum(block: u32, half: u32, a: u32) -> vec4<i32> {
    return vec4<i32>();
}

fn minimum_of(block: u32, half: u32, run: u32) -> u32 {
    return 0u;
}

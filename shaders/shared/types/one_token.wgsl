// Four rows of one token.

// add_digit without a branch, which would part the loads on either side of it.
fn join_digit(digit: u32, v: vec4<f32>, before: vec4<f32>) -> vec4<f32> {
    return select(B4(B4(v * 128.0) + before), v, digit == 0u);
}

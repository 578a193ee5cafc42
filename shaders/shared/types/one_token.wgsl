// Four rows of one token.

// add_digit without a branch, which would part the loads on either side of it.
fn join_digit(digit: u32, sum: vec4<i32>, before: vec4<f32>) -> vec4<f32> {
    let v = i2f4(sum);
    return select(B4(B4(v * 128.0) + before), v, digit == 0u);
}

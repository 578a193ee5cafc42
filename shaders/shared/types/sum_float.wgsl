// v of the sum of a part in one digit.
fn sum_float(s: vec4<i32>) -> vec4<f32> {
    if WIDE {
        return i2f4(s);
    }
    return vec4<f32>(s);
}

fn width() -> u32 {
    return p.k;
}

// The arithmetic of exact.wgsl, four values at a time.

fn B4(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) | vec4<u32>(zero));
}

fn i2f4(i: vec4<i32>) -> vec4<f32> {
    return B4(B4(vec4<f32>(i >> vec4<u32>(12u)) * 4096.0) + vec4<f32>(i & vec4<i32>(4095)));
}

// Four f16 in the low halves.
fn f16_to_f32_4(h: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(f16_to_f32(h.x), f16_to_f32(h.y), f16_to_f32(h.z), f16_to_f32(h.w));
}

fn low_half(x: vec4<u32>) -> vec4<u32> {
    return x & vec4<u32>(0xffffu);
}

fn high_half(x: vec4<u32>) -> vec4<u32> {
    return x >> vec4<u32>(16u);
}

// One element of keys or values as the integer that a c8 cache holds (twin: src/ops/channel_quantize.rs).
#import exact

// Rounded, ties to even, and within a signed byte; POISON for what is not finite.
fn channel_code(x: f32, scale: f32, offset: f32) -> f32 {
    let bad = too_large(x);
    let known = bitcast<f32>(select(bitcast<u32>(x), 0u, bad));
    let c = round(B(clamp(B(fdiv(known, scale) + offset), -128.0, 127.0)));
    return bitcast<f32>(select(bitcast<u32>(i2f(i32(c))), POISON, bad));
}

// gelu(gate) · up, gelu in its tanh form as x · sigmoid(2z); twins src/ops/gelu.rs, geglu.rs.
#import exact

fn gelu_times(g: f32, u: f32) -> f32 {
    // its magnitude 16 at most, by the bits
    let bits = bitcast<u32>(g);
    let t = bitcast<f32>((bits & 0x80000000u) | min(bits & 0x7fffffffu, 0x41800000u));
    let cubic = B(t * B(1.0 + B(0.044715 * B(t * t))));
    return canon(B(B(g * sigmoid(B(1.5957691216 * cubic))) * u));
}

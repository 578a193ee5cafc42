// x · Φ(x) by the error function: erfc(z) = t · e^(P(t) - z²), t = 1 / (1 + z/2), z = |x| / sqrt(2); twin src/ops/gelu.rs.
#import exact

fn gelu_erf(x: f32) -> f32 {
    // its magnitude 16 at most, by the bits
    let near = bitcast<f32>(min(bitcast<u32>(x) & 0x7fffffffu, 0x41800000u));
    let z = B(near * 0.70710678118654752);
    let t = fdiv(1.0, B(1.0 + B(0.5 * z)));
    var sum = 0.140507134;
    sum = B(B(sum * t) + -0.6566158322);
    sum = B(B(sum * t) + 1.099438466);
    sum = B(B(sum * t) + -0.6195233333);
    sum = B(B(sum * t) + -0.1441735023);
    sum = B(B(sum * t) + 0.03546786241);
    sum = B(B(sum * t) + 0.02287414327);
    sum = B(B(sum * t) + 0.3891171466);
    sum = B(B(sum * t) + 0.9983414489);
    sum = B(B(sum * t) + -1.265433489);
    let half = B(0.5 * B(t * fexp(B(sum - B(z * z)))));
    let share = select(B(1.0 - half), half, bitcast<u32>(x) >> 31u == 1u);
    return canon(B(x * share));
}

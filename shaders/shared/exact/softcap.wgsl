// cap · tanh(x / cap); twins exact::ftanh and ops::softcap.
#import exact

fn ftanh(x: f32) -> f32 {
    let sign = bitcast<u32>(x) & 0x80000000u;
    let magnitude = bitcast<u32>(x) & 0x7fffffffu;
    // by the bits: 0.625, 2^-12
    if magnitude >= 0x3f200000u {
        let e = fexp(B(-2.0 * bitcast<f32>(magnitude)));
        let t = bitcast<u32>(fdiv(B(1.0 - e), B(1.0 + e)));
        return bitcast<f32>(select(t | sign, POISON, magnitude > 0x7f800000u));
    }
    let z = B(x * x);
    var p = -5.70498872745e-3;
    p = B(B(p * z) + 2.06390887954e-2);
    p = B(B(p * z) + -5.37397155531e-2);
    p = B(B(p * z) + 1.33314422036e-1);
    p = B(B(p * z) + -3.33332819422e-1);
    let t = B(B(B(p * z) * x) + x);
    return bitcast<f32>(select(bitcast<u32>(t), bitcast<u32>(x), magnitude < 0x39800000u));
}

fn softcap(x: f32, cap: f32, inv_cap: f32) -> f32 {
    return canon(B(cap * ftanh(B(x * inv_cap))));
}

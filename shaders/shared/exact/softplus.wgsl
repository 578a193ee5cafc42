// ln(1 + e^x): max(x, 0) and 2 artanh(s), s = e / (2 + e), e = e^-|x|.
fn softplus(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let e = fexp(bitcast<f32>(bits | 0x80000000u));
    let s = canon(fdiv(e, B(2.0 + e)));
    let z = B(s * s);
    var sum = 0.0769230769;
    sum = B(B(sum * z) + 0.0909090909);
    sum = B(B(sum * z) + 0.111111111);
    sum = B(B(sum * z) + 0.142857143);
    sum = B(B(sum * z) + 0.2);
    sum = B(B(sum * z) + 0.333333333);
    sum = B(B(sum * z) + 1.0);
    let least = bitcast<f32>(select(bits, 0u, (bits >> 31u) == 1u));
    return canon(B(least + B(2.0 * B(s * sum))));
}

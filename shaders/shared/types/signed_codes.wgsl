// Magnitudes with signs.

// Four bytes of each row, none of them 0, with those negated whose bit of `minus` is set (bit 0: the lowest byte).
fn signed_codes(x: vec4<u32>, minus: vec4<u32>) -> vec4<u32> {
    // bits 0 to 3 to a byte each
    let ones = ((minus & vec4<u32>(15u)) * vec4<u32>(0x00204081u)) & vec4<u32>(0x01010101u);
    return (x ^ ((ones << vec4<u32>(8u)) - ones)) + ones;
}

// The eight signs that seven stored ones stand for: the number of minus signs is even.
fn even_signs(seven: vec4<u32>) -> vec4<u32> {
    return seven | ((countOneBits(seven) & vec4<u32>(1u)) << vec4<u32>(7u));
}

// Fields of a few bits to a byte each, of four rows.

// Four pairs of bits, of the low byte.
fn spread_pairs(x: vec4<u32>) -> vec4<u32> {
    let nibbles = (x | (x << vec4<u32>(12u))) & vec4<u32>(0x000f000fu);
    return (nibbles | (nibbles << vec4<u32>(6u))) & vec4<u32>(0x03030303u);
}

// Four nibbles, of the low half.
fn spread_nibbles(x: vec4<u32>) -> vec4<u32> {
    let bytes = (x | (x << vec4<u32>(8u))) & vec4<u32>(0x00ff00ffu);
    return (bytes | (bytes << vec4<u32>(4u))) & vec4<u32>(0x0f0f0f0fu);
}

// 2s + 1 of each byte s.
fn odd(x: vec4<u32>) -> vec4<u32> {
    return (x << vec4<u32>(1u)) | vec4<u32>(0x01010101u);
}

// The minima of Q2_K, where there are activations.

// Sum of minimum · sum of activations over four sixteenths from i on, by byte dots: the sums, at most 2032, in two
// digits.
fn four_minima(minima: vec4<u32>, i: u32, a: u32) -> vec4<i32> {
    let s = vec4<i32>(sum16(a, i), sum16(a, i + 1u), sum16(a, i + 2u), sum16(a, i + 3u));
    return dots(minima, pack4xI8(s >> vec4<u32>(7u))) * 128 + dots(minima, pack4xI8(s & vec4<i32>(127)));
}

fn minima_sum(block: u32, half: u32, a: u32) -> vec4<i32> {
    let mask = vec4<u32>(0x0f0f0f0fu);
    return four_minima((head_word(block, half, 1u) >> vec4<u32>(4u)) & mask, 0u, a)
        + four_minima((head_word(block, half, 2u) >> vec4<u32>(4u)) & mask, 4u, a);
}

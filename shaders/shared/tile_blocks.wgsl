// Groups of four 32-blocks with an f16 scale each, four rows at a time: ((u0 + u1) + u2) + u3 with u = scale · value.
// The importing text gives
//   const GROUP: u32                                                words of a group
//   fn block_sums(group: u32, b: u32, g: u32, digit: u32)           fills block_sum
#import tile

var<private> block_sum: array<vec4<i32>, T>;

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn group_values(row: u32, g: u32) {
    let group = row + g * (GROUP * 8u);
    var sum: array<vec4<f32>, T>;
    for (var b = 0u; b < 4u; b++) {
        var v: array<vec4<f32>, T>;
        for (var digit = 0u; digit < p.digits; digit++) {
            block_sums(group, b, g, digit);
            for (var t = 0u; t < T; t++) {
                v[t] = add_digit(digit, block_sum[t], v[t]);
            }
        }
        let d = f16_to_f32_4(low_half(w[group + (b >> 1u) * 8u] >> vec4<u32>(16u * (b & 1u))));
        for (var t = 0u; t < T; t++) {
            sum[t] = B4(sum[t] + B4(d * v[t]));
        }
    }
    for (var t = 0u; t < T; t++) {
        value[t] = sum[t];
    }
}

// Groups of four 32-blocks with an f16 scale each, four rows at a time: ((u0 + u1) + u2) + u3 with u = scale · value.
// The importing text gives
//   const GROUP: u32                                   words of a group
//   const ABOVE: i32                                   what the codes lie above their value
//   fn codes(group: u32, n: u32) -> Codes              pair n of the group: words n & 3 and (n & 3) + 4 of block n / 4
#import tile

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn group_values(row: u32, g: u32) {
    let group = row + g * (GROUP * 8u);
    var sum: array<vec4<f32>, T>;
    for (var b = 0u; b < 4u; b++) {
        var v: array<vec4<f32>, T>;
        for (var digit = 0u; digit < p.digits; digit++) {
            var s: array<vec4<i32>, T>;
            if ABOVE != 0 {
                for (var t = 0u; t < T; t++) {
                    s[t] = vec4<i32>(-ABOVE * sum32(act_at(t, g) + digit * 37u, b));
                }
            }
            for (var i = 0u; i < 4u; i++) {
                let c = codes(group, 4u * b + i);
                for (var t = 0u; t < T; t++) {
                    let a = act_at(t, g) + digit * 37u + 1u + 8u * b + i;
                    s[t] += dots(c.low, act_word(a)) + dots(c.high, act_word(a + 4u));
                }
            }
            for (var t = 0u; t < T; t++) {
                v[t] = add_digit(digit, s[t], v[t]);
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

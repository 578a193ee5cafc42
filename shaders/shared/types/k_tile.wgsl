// Groups of Q4_K and Q5_K, four rows at a time. The importing text gives
//   const BLOCK: u32                                           words of a superblock
//   fn k_codes(row: u32, half: u32, n: u32) -> Codes           pair n of a half: word n & 7 of sub-blocks j and j + 1,
//                                                              j = n / 8 * 2
#import tile
#import k_bytes
#import k_words
#import digits_end

fn k_values(rows: u32, g: u32) {
    let row = rows + (g >> 1u) * (BLOCK * 8u);
    let half = g & 1u;
    // scales and minima of the four sub-blocks, a byte each
    let u0 = w[row + 8u];
    let u1 = w[row + 16u];
    var scales = u0 & vec4<u32>(0x3f3f3f3fu);
    var minima = u1 & vec4<u32>(0x3f3f3f3fu);
    if half == 1u {
        let u2 = w[row + 24u];
        scales = (u2 & vec4<u32>(0x0f0f0f0fu)) | (((u0 >> vec4<u32>(6u)) & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
        minima = ((u2 >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu))
            | (((u1 >> vec4<u32>(6u)) & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
    }
    let above = sum_start(scales, DOT_ABOVE);
    let minima_above = sum_start(minima, SUM_ABOVE);
    var vs: array<vec4<f32>, T>;
    var vm: array<vec4<f32>, T>;
    for (var digit = 0u; digit < digits_end(); digit++) {
        var s: array<vec4<i32>, T>;
        var m: array<vec4<i32>, T>;
        for (var t = 0u; t < T; t++) {
            s[t] = above;
            m[t] = minima_above;
        }
        for (var j = 0u; j < 4u; j += 2u) {
            var even: array<vec4<i32>, T>;
            var odd: array<vec4<i32>, T>;
            for (var t = 0u; t < T; t++) {
                even[t] = vec4<i32>(DOT_ABOVE);
                odd[t] = vec4<i32>(DOT_ABOVE);
            }
            for (var i = 0u; i < 8u; i++) {
                let c = k_codes(row, half, 4u * j + i);
                for (var t = 0u; t < T; t++) {
                    let a = act_at(t, g) + digit * ACT_BLOCK_WORDS + 1u + 8u * j + i;
                    even[t] += dots(c.low, act_word(a));
                    odd[t] += dots(c.high, act_word(a + 8u));
                }
            }
            for (var t = 0u; t < T; t++) {
                let a = act_at(t, g) + digit * ACT_BLOCK_WORDS;
                s[t] += scaled(scales, j, even[t]) + scaled(scales, j + 1u, odd[t]);
                m[t] += lowered(minima, j, a) + lowered(minima, j + 1u, a);
            }
        }
        for (var t = 0u; t < T; t++) {
            vs[t] = add_digit(digit, scales_value(s[t]), vs[t]);
            vm[t] = add_digit(digit, minima_value(m[t]), vm[t]);
        }
    }
    let dw = w[row];
    let d = f16_to_f32_4(low_half(dw));
    let dmin = f16_to_f32_4(high_half(dw));
    for (var t = 0u; t < T; t++) {
        value[t] = B4(B4(d * vs[t]) - B4(dmin * vm[t]));
    }
}

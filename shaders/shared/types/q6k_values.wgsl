// Groups of Q6_K, four rows at a time. The importing text gives
//   fn q6k_codes(row: u32, half: u32, n: u32) -> Codes         pair n of a half: word n & 7 of quarters n / 8 and n / 8 + 2
#import tile
#import q6k_bytes
#import q6k_words

fn q6k_values(rows: u32, g: u32) {
    let row = rows + (g >> 1u) * (Q6K_BLOCK * 8u);
    let half = g & 1u;
    let scales_low = w[row + (1u + 2u * half) * 8u];
    let scales_high = w[row + (2u + 2u * half) * 8u];
    var v: array<vec4<f32>, T>;
    for (var digit = 0u; digit < p.digits; digit++) {
        var s: array<vec4<i32>, T>;
        // quarters 0 and 2, then 1 and 3, each by halves of 16 (a scale each)
        for (var part = 0u; part < 4u; part++) {
            let n = part & 1u;
            let quarter = part >> 1u;
            var low: array<vec4<i32>, T>;
            var high: array<vec4<i32>, T>;
            for (var i = 4u * n; i < 4u * n + 4u; i++) {
                let c = q6k_codes(row, half, 8u * quarter + i);
                for (var t = 0u; t < T; t++) {
                    let a = act_at(t, g) + digit * ACT_BLOCK_WORDS + 1u + 8u * quarter + i;
                    low[t] += dots(c.low, act_word(a));
                    high[t] += dots(c.high, act_word(a + 16u));
                }
            }
            let low_scale = scale_of(scales_low, part);
            let high_scale = scale_of(scales_high, part);
            for (var t = 0u; t < T; t++) {
                let a = act_at(t, g) + digit * ACT_BLOCK_WORDS;
                s[t] += low_scale * (low[t] - 32 * sum16(a, 2u * quarter + n));
                s[t] += high_scale * (high[t] - 32 * sum16(a, 2u * quarter + n + 4u));
            }
        }
        for (var t = 0u; t < T; t++) {
            v[t] = add_digit(digit, s[t], v[t]);
        }
    }
    let d = f16_to_f32_4(low_half(w[row]));
    for (var t = 0u; t < T; t++) {
        value[t] = B4(d * v[t]);
    }
}

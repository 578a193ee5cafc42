// Groups of Q6_K, four rows at a time. The importing text gives
//   fn q6k_codes(row: u32, half: u32, n: u32) -> Codes         pair n of a half: word n & 7 of quarters n / 8 and n / 8 + 2
//
// As in k_bytes, compilers are shown that factors have less than 24 bits: the sum x of a half quarter (16 codes) is made
// 2^16 above its value, |x| <= 16 · 32 · 127 < 2^16, and the scale 128 above its own. So
//   scale · x = (scale + 128) · (x + 2^16) - 2^16 · scale - 128 · (x + 2^16)
// of which the middle is known for all of a group from its scales.
const X_ABOVE = 1 << 16u;
const SCALE_ABOVE = 0x80808080u; // of four scales, a byte each
#import tile
#import q6k_bytes
#import q6k_words
#import digits_end

// The first product: scale `part` of four that are 128 above their value, and a sum above its own.
fn product(scales_above: vec4<u32>, part: u32, x: vec4<i32>) -> vec4<i32> {
    let scale = (scales_above >> vec4<u32>(8u * part)) & vec4<u32>(255u);
    return vec4<i32>(scale * (vec4<u32>(x) & vec4<u32>(2 * X_ABOVE - 1)));
}

fn q6k_values(rows: u32, g: u32) {
    let row = rows + (g >> 1u) * (Q6K_BLOCK * 8u);
    let half = g & 1u;
    let scales_low = w[row + (1u + 2u * half) * 8u];
    let scales_high = w[row + (2u + 2u * half) * 8u];
    let low_above = scales_low ^ vec4<u32>(SCALE_ABOVE);
    let high_above = scales_high ^ vec4<u32>(SCALE_ABOVE);
    let start = (dots(scales_low, 0x01010101u) + dots(scales_high, 0x01010101u)) * -X_ABOVE;
    var v: array<vec4<f32>, T>;
    for (var digit = 0u; digit < digits_end(); digit++) {
        var s: array<vec4<i32>, T>;
        for (var t = 0u; t < T; t++) {
            s[t] = start;
        }
        // quarters 0 and 2, then 1 and 3, each by halves of 16 (a scale each)
        for (var part = 0u; part < 4u; part++) {
            let n = part & 1u;
            let quarter = part >> 1u;
            var low: array<vec4<i32>, T>;
            var high: array<vec4<i32>, T>;
            for (var t = 0u; t < T; t++) {
                let a = act_at(t, g) + digit * ACT_BLOCK_WORDS;
                low[t] = vec4<i32>(X_ABOVE - 32 * sum16(a, 2u * quarter + n));
                high[t] = vec4<i32>(X_ABOVE - 32 * sum16(a, 2u * quarter + n + 4u));
            }
            for (var i = 0u; i < 4u; i++) {
                let word = 8u * quarter + 4u * n + i;
                let c = q6k_codes(row, half, word);
                for (var t = 0u; t < T; t++) {
                    let a = act_at(t, g) + digit * ACT_BLOCK_WORDS + 1u + word;
                    low[t] += dots(c.low, act_word(a));
                    high[t] += dots(c.high, act_word(a + 16u));
                }
            }
            for (var t = 0u; t < T; t++) {
                s[t] += product(low_above, part, low[t]) + product(high_above, part, high[t])
                    - ((low[t] + high[t]) << vec4<u32>(7u));
            }
        }
        for (var t = 0u; t < T; t++) {
            v[t] = add_digit(digit, i2f4(s[t]), v[t]);
        }
    }
    let d = f16_to_f32_4(low_half(w[row]));
    for (var t = 0u; t < T; t++) {
        value[t] = B4(d * v[t]);
    }
}

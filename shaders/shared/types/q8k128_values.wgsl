// Groups of Q8K128, four rows at a time. The importing text gives
//   fn codes(group: u32, n: u32) -> Codes              pair n (0..16) of the group: words n and n + 16
#import tile
#import group_word
#import digits_end

const GROUP = 33u; // words of a group

fn row_words() -> u32 {
    return p.k / 128u * GROUP;
}

fn group_values(row: u32, g: u32) {
    let block = row + g * (GROUP * 8u);
    var v: array<vec4<f32>, T>;
    for (var digit = 0u; digit < digits_end(); digit++) {
        var s: array<vec4<i32>, T>;
        for (var n = 0u; n < 16u; n++) {
            let c = codes(block, n);
            for (var t = 0u; t < T; t++) {
                let a = act_at(t, g) + digit * ACT_BLOCK_WORDS + 1u + n;
                s[t] += dots(c.low, act_word(a)) + dots(c.high, act_word(a + 16u));
            }
        }
        for (var t = 0u; t < T; t++) {
            v[t] = add_digit(digit, vec4<f32>(s[t]), v[t]);
        }
    }
    let d = bitcast<vec4<f32>>(w[block]);
    for (var t = 0u; t < T; t++) {
        value[t] = B4(d * v[t]);
    }
}

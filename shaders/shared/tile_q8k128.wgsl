// Groups of Q8K128, four rows at a time.
#import tile

fn row_words() -> u32 {
    return p.k / 128u * 33u;
}

fn group_values(row: u32, g: u32) {
    let block = row + g * (33u * 8u);
    var v: array<vec4<f32>, T>;
    for (var digit = 0u; digit < p.digits; digit++) {
        var s: array<vec4<i32>, T>;
        for (var i = 0u; i < 32u; i++) {
            let q = w[block + (1u + i) * 8u];
            for (var t = 0u; t < T; t++) {
                s[t] += dots(q, act[act_at(t, g) + digit * 37u + 1u + i]);
            }
        }
        for (var t = 0u; t < T; t++) {
            v[t] = add_digit(digit, s[t], v[t]);
        }
    }
    let d = bitcast<vec4<f32>>(w[block]);
    for (var t = 0u; t < T; t++) {
        value[t] = B4(d * v[t]);
    }
}

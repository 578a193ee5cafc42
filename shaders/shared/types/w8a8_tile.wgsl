// Rows packed in W8A8, four at a time, for T tokens.
#import w8a8_rows

fn add_group(row: u32, g: u32) {
    let codes = row + (g * GROUP + 2u) * 8u;
    for (var i = 0u; i < 32u; i++) {
        let c = w[codes + i * 8u];
        for (var t = 0u; t < T; t++) {
            sum[t] += dots(c, act_word(act_at(t, g) + 1u + i));
        }
    }
}

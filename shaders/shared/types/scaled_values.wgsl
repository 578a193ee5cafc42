// Groups of the types of scaled.wgsl, four rows at a time. The importing text gives
//   fn codes(block: u32, half: u32, n: u32) -> Codes       pair n of the group
#import tile
#import scaled
#import scaled_words
#import sum_float
#import digits_end

fn group_values(row: u32, g: u32) {
    let block = row + words_before(g) * 8u;
    let half = half_of(g);
    let s = scales(block, half);
    let start = sum_start(s);
    for (var t = 0u; t < T; t++) {
        value[t] = B4(vec4<f32>());
    }
    for (var part = 0u; part < PARTS; part++) {
        var v: array<vec4<f32>, T>;
        var minima: array<vec4<f32>, T>;
        for (var digit = 0u; digit < digits_end(); digit++) {
            var sum: array<vec4<i32>, T>;
            for (var t = 0u; t < T; t++) {
                sum[t] = start;
            }
            for (var run = part * (RUNS / PARTS); run < (part + 1u) * (RUNS / PARTS); run++) {
                var dot: array<vec4<i32>, T>;
                for (var t = 0u; t < T; t++) {
                    dot[t] = vec4<i32>(DOT_ABOVE);
                }
                for (var i = 0u; i < 16u / RUNS; i++) {
                    let n = run * (16u / RUNS) + i;
                    let c = codes(block, half, n);
                    for (var t = 0u; t < T; t++) {
                        let a = act_at(t, g) + digit * ACT_BLOCK_WORDS + 1u + place(n);
                        dot[t] += dots(c.low, act_word(a)) + dots(c.high, act_word(a + APART));
                    }
                }
                for (var t = 0u; t < T; t++) {
                    sum[t] += scaled(s, run, dot[t]);
                }
            }
            for (var t = 0u; t < T; t++) {
                v[t] = add_digit(digit, sum_float(sum[t]), v[t]);
                if MINIMA {
                    let m = minima_sum(block, half, act_at(t, g) + digit * ACT_BLOCK_WORDS);
                    minima[t] = add_digit(digit, vec4<f32>(m), minima[t]);
                }
            }
        }
        let d = part_scale(block, half, part);
        for (var t = 0u; t < T; t++) {
            var u = B4(d * v[t]);
            if MINIMA {
                u = B4(u - B4(minima_scale(block, half) * minima[t]));
            }
            value[t] = B4(value[t] + u);
        }
    }
}

// Rows of the types of scaled.wgsl: the value of one group (docs/exactness.md section 4).
#import vec4_exact
#import dots
#import scaled
#import scaled_lane
#import act_digits

fn width() -> u32 {
    return p.k;
}

// The sum of a part, the block of activations at a.
fn part_sum(block: u32, half: u32, s: Scales, part: u32, a: u32) -> i32 {
    var sum = 0;
    for (var run = part * (RUNS / PARTS); run < (part + 1u) * (RUNS / PARTS); run++) {
        var dot = 0;
        for (var i = 0u; i < 16u / RUNS; i++) {
            let n = run * (16u / RUNS) + i;
            let c = unpack(block, half, n);
            let at = a + 1u + place(n);
            dot += dot4I8Packed(c.low.x, act[at]) + dot4I8Packed(c.high.x, act[at + APART]);
        }
        sum += scale_of(s, run) * dot;
    }
    return sum;
}

fn group_value(row: u32, g: u32, a: u32) -> f32 {
    let block = row + words_before(g) * 32u;
    let half = half_of(g);
    let s = scales(block, half);
    var t = B(0.0);
    for (var part = 0u; part < PARTS; part++) {
        let low = part_sum(block, half, s, part, a);
        var high = 0;
        if act_digits == 2u {
            high = part_sum(block, half, s, part, a + ACT_BLOCK_WORDS);
        }
        var u = B(part_scale(block, half, part).x * digits_value(low, high));
        if MINIMA {
            let minima = minima_sum(block, half, a).x;
            var minima_high = 0;
            if act_digits == 2u {
                minima_high = minima_sum(block, half, a + ACT_BLOCK_WORDS).x;
            }
            u = B(u - B(minima_scale(block, half).x * digits_value(minima, minima_high)));
        }
        t = B(t + u);
    }
    return t;
}

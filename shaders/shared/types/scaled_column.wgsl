// Types of scaled.wgsl, four rows of one token at a time: the sums and orders of scaled_values. A step of one token waits for
// memory, and a compiler has no more loads under way than stand before the first that is waited for; so all words of a group
// are asked for before anything is made of them.
#import tile
#import one_token
#import scaled
#import sum_float

// Words of the group at hand. Every index is known when a shader is compiled, so that they are registers.
var<private> head: array<vec4<u32>, HEAD>;
var<private> code: array<vec4<u32>, WORDS>;

fn head_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return head[i];
}

fn code_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return code[i];
}

// The sum of a part, the block of activations at a.
fn part_sum(block: u32, half: u32, s: Scales, part: u32, a: u32) -> vec4<i32> {
    var sum = sum_start(s);
    for (var j = 0u; j < RUNS / PARTS; j++) {
        let run = part * (RUNS / PARTS) + j;
        var dot = vec4<i32>(DOT_ABOVE);
        for (var i = 0u; i < 16u / RUNS; i++) {
            let n = run * (16u / RUNS) + i;
            let c = unpack(block, half, n);
            let at = a + 1u + place(n);
            dot += dots(c.low, act_word(at)) + dots(c.high, act_word(at + APART));
        }
        sum += scaled(s, run, dot);
    }
    return sum;
}

fn group_values(row: u32, g: u32) {
    let block = row + words_before(g) * 8u;
    let half = half_of(g);
    for (var i = 0u; i < HEAD; i++) {
        head[i] = w[block + head_at(half, i) * 8u];
    }
    for (var i = 0u; i < WORDS; i++) {
        code[i] = w[block + code_at(half, i) * 8u];
    }
    let s = scales(block, half);
    var v: array<vec4<f32>, PARTS>;
    var minima: vec4<f32>;
    for (var digit = 0u; digit < p.digits; digit++) {
        let a = act_at(0u, g) + digit * ACT_BLOCK_WORDS;
        for (var part = 0u; part < PARTS; part++) {
            v[part] = join_digit(digit, sum_float(part_sum(block, half, s, part, a)), v[part]);
        }
        if MINIMA {
            minima = join_digit(digit, vec4<f32>(minima_sum(block, half, a)), minima);
        }
    }
    value[0] = B4(vec4<f32>());
    for (var part = 0u; part < PARTS; part++) {
        var u = B4(part_scale(block, half, part) * v[part]);
        if MINIMA {
            u = B4(u - B4(minima_scale(block, half) * minima));
        }
        value[0] = B4(value[0] + u);
    }
}

// Types of scaled.wgsl, four rows of one token at a time: the sums and orders of scaled_values. A step of one token
// waits for memory, and a compiler has no more loads under way than stand before the first that is waited for; so all
// words of a group are asked for before anything is made of them.
#import tile
#import one_token
#import scaled
#import sum_float
#import digits_end

// Words of the group at hand. Every index is known when a shader is compiled, so that they are registers.
var<private> head: array<vec4<u32>, HEAD>;
var<private> code: array<vec4<u32>, WORDS>;

fn head_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return head[i];
}

fn code_word(block: u32, half: u32, i: u32) -> vec4<u32> {
    return code[i];
}

// v(S) of each part, of four rows.
var<private> part_value: array<vec4<f32>, PARTS>;

const RUNS_OF_PART = RUNS / PARTS;

// Of types that look up sixteen words of nibbles compilers would bring all look-ups of a group forward, to where its words
// are asked for, and need 250 registers and more. A part stands behind a condition there, which is always true and which
// they do not know. Q3_K, whose sixteen words are unpacked without a table, is better off without (docs/isa.md).
const HELD_BACK = WORDS == 16u && RUNS_OF_PART < 8u;

// What a run adds to the sum of its part, the block of activations at a.
fn run_sum(block: u32, half: u32, s: Scales, run: u32, a: u32) -> vec4<i32> {
    var dot = vec4<i32>(DOT_ABOVE);
    for (var i = 0u; i < 16u / RUNS; i++) {
        let n = run * (16u / RUNS) + i;
        let c = unpack(block, half, n);
        let at = a + 1u + place(n);
        dot += dots(c.low, act_word(at)) + dots(c.high, act_word(at + APART));
    }
    return scaled(s, run, dot);
}

// Runs and parts are named one by one: where a compiler leaves a loop of so much text a loop, the words that it would
// choose among lie in memory.
fn part_sum(block: u32, half: u32, s: Scales, part: u32, a: u32) -> vec4<i32> {
    let run = part * RUNS_OF_PART;
    var sum = sum_start(s) + run_sum(block, half, s, run, a);
    if RUNS_OF_PART > 1u {
        sum += run_sum(block, half, s, run + 1u, a);
        sum += run_sum(block, half, s, run + 2u, a);
        sum += run_sum(block, half, s, run + 3u, a);
    }
    if RUNS_OF_PART > 4u {
        sum += run_sum(block, half, s, run + 4u, a);
        sum += run_sum(block, half, s, run + 5u, a);
        sum += run_sum(block, half, s, run + 6u, a);
        sum += run_sum(block, half, s, run + 7u, a);
    }
    return sum;
}

fn add_part_digit(block: u32, half: u32, s: Scales, part: u32, digit: u32, a: u32) {
    if !HELD_BACK || p.digits != 0u {
        part_value[part] = join_digit(digit, sum_float(part_sum(block, half, s, part, a)), part_value[part]);
    }
}

// Adds u of a part to value; of types with minima a group is one part.
fn add_part(block: u32, half: u32, part: u32, minima: vec4<f32>) {
    var u = B4(part_scale(block, half, part) * part_value[part]);
    if MINIMA {
        u = B4(u - B4(minima_scale(block, half) * minima));
    }
    value[0] = B4(value[0] + u);
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
    var minima: vec4<f32>;
    for (var digit = 0u; digit < digits_end(); digit++) {
        let a = act_at(0u, g) + digit * ACT_BLOCK_WORDS;
        add_part_digit(block, half, s, 0u, digit, a);
        if PARTS > 1u {
            add_part_digit(block, half, s, 1u, digit, a);
        }
        if PARTS > 2u {
            add_part_digit(block, half, s, 2u, digit, a);
            add_part_digit(block, half, s, 3u, digit, a);
        }
        if PARTS > 4u {
            add_part_digit(block, half, s, 4u, digit, a);
            add_part_digit(block, half, s, 5u, digit, a);
            add_part_digit(block, half, s, 6u, digit, a);
            add_part_digit(block, half, s, 7u, digit, a);
        }
        if MINIMA {
            minima = join_digit(digit, vec4<f32>(minima_sum(block, half, a)), minima);
        }
    }
    value[0] = B4(vec4<f32>());
    add_part(block, half, 0u, minima);
    if PARTS > 1u {
        add_part(block, half, 1u, minima);
    }
    if PARTS > 2u {
        add_part(block, half, 2u, minima);
        add_part(block, half, 3u, minima);
    }
    if PARTS > 4u {
        add_part(block, half, 4u, minima);
        add_part(block, half, 5u, minima);
        add_part(block, half, 6u, minima);
        add_part(block, half, 7u, minima);
    }
}

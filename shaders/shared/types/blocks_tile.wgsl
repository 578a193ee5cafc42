// Groups of four 32-blocks with a scale each, four rows at a time: ((u0 + u1) + u2) + u3 with u = scale · value, or what
// the type makes of it. The importing text gives
//   const GROUP: u32                                   words of a group
//   const SHIFTED: bool                                whether codes lie above their value
//   fn sum_start(group: u32, b: u32, a: u32) -> vec4<i32>   then S of block b begins with this, the block of activations
//                                                      at a: minus what they lie above it, times the activations' sum
//   fn codes(group: u32, n: u32) -> Codes              pair n of the group: words n & 3 and (n & 3) + 4 of block n / 4
//   fn add_block(group: u32, g: u32, b: u32)           adds u of block b of group g, made of block_value, to value
#import tile
#import group_word
#import sum_value
#import digits_end

// v(S) of the block at hand, of four rows, for each token of the thread.
var<private> block_value: array<vec4<f32>, T>;

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

fn group_values(row: u32, g: u32) {
    let group = row + g * (GROUP * 8u);
    for (var t = 0u; t < T; t++) {
        value[t] = B4(vec4<f32>());
    }
    for (var b = 0u; b < 4u; b++) {
        for (var digit = 0u; digit < digits_end(); digit++) {
            var s: array<vec4<i32>, T>;
            if SHIFTED {
                for (var t = 0u; t < T; t++) {
                    s[t] = sum_start(group, b, act_at(t, g) + digit * ACT_BLOCK_WORDS);
                }
            }
            for (var i = 0u; i < 4u; i++) {
                let c = codes(group, 4u * b + i);
                for (var t = 0u; t < T; t++) {
                    let a = act_at(t, g) + digit * ACT_BLOCK_WORDS + 1u + 8u * b + i;
                    s[t] += dots(c.low, act_word(a)) + dots(c.high, act_word(a + 4u));
                }
            }
            for (var t = 0u; t < T; t++) {
                block_value[t] = add_digit(digit, vec4<f32>(s[t]), block_value[t]);
            }
        }
        add_block(group, g, b);
    }
}

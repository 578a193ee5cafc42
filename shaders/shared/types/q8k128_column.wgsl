// Groups of Q8K128, four rows of one token at a time: the sums of q8k128_values. A group is fetched, in two halves, before
// anything is made of it.
#import tile
#import one_token
#import fetched_group
#import act_digits

const GROUP = 33u; // words of a group
const HEAD = 1u;

fn row_words() -> u32 {
    return p.k / 128u * GROUP;
}

// Sum of code · activation over sixteen words of codes, from word i on, the block of activations at a.
fn half_sum(group: u32, i: u32, a: u32) -> vec4<i32> {
    var s = vec4<i32>();
    for (var n = i; n < i + 16u; n++) {
        s += dots(group_word(group, 1u + n), act_word(a + 1u + n));
    }
    return s;
}

fn group_values(row: u32, g: u32) {
    let group = row + g * (GROUP * 8u);
    fetch_head(group);
    var v: vec4<f32>;
    for (var digit = 0u; digit < act_digits; digit++) {
        let a = act_at(0u, g) + digit * ACT_BLOCK_WORDS;
        fetch_codes(group, 0u);
        var s = half_sum(group, 0u, a);
        fetch_codes(group, 16u);
        s += half_sum(group, 16u, a);
        v = join_digit(digit, vec4<f32>(s), v);
    }
    value[0] = B4(bitcast<vec4<f32>>(group_word(group, 0u)) * v);
}

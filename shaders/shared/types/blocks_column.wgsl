// Groups of four 32-blocks, four rows of one token at a time: the sums and orders of blocks_tile. A group is fetched before
// anything is made of it, one of 32 words of codes in two halves. The importing text gives what it gives to blocks_tile,
// unpack in place of codes, and
//   const HEAD: u32                                    words of a group before its codes
#import tile
#import one_token
#import fetched_group
#import act_digits

// v(S) of the block at hand, of four rows.
var<private> block_value: array<vec4<f32>, T>;

// v of the sum of the activations of 32-block b, as in sum_value, without a branch.
fn sum_value(a: u32, b: u32) -> f32 {
    let low = f32(sum32(a, b));
    let high = f32(sum32(a + (act_digits - 1u) * ACT_BLOCK_WORDS, b));
    return select(B(B(high * 128.0) + low), low, act_digits == 1u);
}

fn row_words() -> u32 {
    return (p.k + 127u) / 128u * GROUP;
}

// S of block b, the block of activations at a.
fn block_sum(group: u32, b: u32, a: u32) -> vec4<i32> {
    var s = vec4<i32>();
    if SHIFTED {
        s = sum_start(group, b, a);
    }
    for (var i = 0u; i < 4u; i++) {
        let c = unpack(group, 4u * b + i);
        let at = a + 1u + 8u * b + i;
        s += dots(c.low, act_word(at)) + dots(c.high, act_word(at + 4u));
    }
    return s;
}

// Adds u of blocks b and b + 1 to value.
fn add_two(group: u32, g: u32, b: u32) {
    var v: vec4<f32>;
    var next: vec4<f32>;
    for (var digit = 0u; digit < act_digits; digit++) {
        let a = act_at(0u, g) + digit * ACT_BLOCK_WORDS;
        v = join_digit(digit, vec4<f32>(block_sum(group, b, a)), v);
        next = join_digit(digit, vec4<f32>(block_sum(group, b + 1u, a)), next);
    }
    block_value[0] = v;
    add_block(group, g, b);
    block_value[0] = next;
    add_block(group, g, b + 1u);
}

fn group_values(row: u32, g: u32) {
    let group = row + g * (GROUP * 8u);
    value[0] = B4(vec4<f32>());
    fetch_head(group);
    fetch_codes(group, 0u);
    add_two(group, g, 0u);
    if GROUP - HEAD > 16u {
        fetch_codes(group, 16u);
    }
    add_two(group, g, 2u);
}

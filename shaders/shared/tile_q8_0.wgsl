// Q8_0: eight words of codes a block.
const GROUP = 34u;
#import tile_blocks

fn block_sums(group: u32, b: u32, g: u32, digit: u32) {
    for (var t = 0u; t < T; t++) {
        block_sum[t] = vec4<i32>();
    }
    for (var i = 8u * b; i < 8u * b + 8u; i++) {
        let q = w[group + (2u + i) * 8u];
        for (var t = 0u; t < T; t++) {
            block_sum[t] += dots(q, act[act_at(t, g) + digit * 37u + 1u + i]);
        }
    }
}

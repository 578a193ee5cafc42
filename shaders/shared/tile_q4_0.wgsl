// Q4_0: low nibbles are elements 0..16 of a block, high nibbles 16..32.
const GROUP = 18u;
#import tile_blocks

fn block_sums(group: u32, b: u32, g: u32, digit: u32) {
    for (var t = 0u; t < T; t++) {
        block_sum[t] = vec4<i32>(-8 * sum32(act_at(t, g) + digit * 37u, b));
    }
    for (var i = 0u; i < 4u; i++) {
        let q = w[group + (2u + 4u * b + i) * 8u];
        let low = q & vec4<u32>(0x0f0f0f0fu);
        let high = (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
        for (var t = 0u; t < T; t++) {
            let a = act_at(t, g) + digit * 37u + 1u + 8u * b + i;
            block_sum[t] += dots(low, act[a]) + dots(high, act[a + 4u]);
        }
    }
}

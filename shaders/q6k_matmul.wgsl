// y = W a, W in Q6_K, a in Q8K128 blocks: many tokens.
const T = 4u;
#import matmul
#import tile_q6k
#import tile_sum

fn row_words() -> u32 {
    return q6k_row_words();
}

fn group_values(row: u32, g: u32) {
    q6k_values(row, g);
}

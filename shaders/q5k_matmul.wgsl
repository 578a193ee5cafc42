// y = W a, W in Q5_K, a in Q8K128 blocks: many tokens.
const T = 4u;
#import matmul
#import tile_q5k
#import tile_sum

fn row_words() -> u32 {
    return k_row_words();
}

fn group_values(row: u32, g: u32) {
    k_values(row, g);
}

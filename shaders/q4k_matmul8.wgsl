// y = W a, W in Q4_K, a in Q8K128 blocks: a few tokens.
const T = 1u;
#import matmul
#import tile_q4k
#import tile_sum

fn row_words() -> u32 {
    return k_row_words();
}

fn group_values(row: u32, g: u32) {
    k_values(row, g);
}

// Decode of few rows of one type.
const T = 1u;
#import linear_params
#import parallel_main

fn first_word(row_block: u32) -> u32 {
    return row_block * row_words() * 8u;
}

fn add_one(row_block: u32, row: u32, g: u32) {
    add_group(row, g);
}

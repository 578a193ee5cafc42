// Decode of few rows of two types. The importing shader gives what it gives matvec_pair4.
const T = 1u;

#import pair_params
#import tile
#import act_direct
#import parallel_main

fn first_word(row_block: u32) -> u32 {
    let border = p.border / 32u;
    if row_block < border {
        return row_block * first_words() * 8u;
    }
    return (border * first_words() + (row_block - border) * second_words()) * 8u;
}

fn add_one(row_block: u32, row: u32, g: u32) {
    if row_block < p.border / 32u {
        first_values(row, g);
    } else {
        second_values(row, g);
    }
    add_value(g);
}

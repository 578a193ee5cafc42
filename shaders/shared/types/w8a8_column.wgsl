// Rows packed in W8A8, four of one token at a time: the sums of w8a8_tile. A group is fetched, in two halves, before anything
// is made of it.
#import fetched_group
#import w8a8_rows

const HEAD = 2u; // words before the codes

fn add_group(row: u32, g: u32) {
    let group = row + g * (GROUP * 8u);
    let a = act_at(0u, g) + 1u;
    fetch_codes(group, 0u);
    for (var i = 0u; i < 16u; i++) {
        sum[0] += dots(group_word(group, 2u + i), act_word(a + i));
    }
    fetch_codes(group, 16u);
    for (var i = 16u; i < 32u; i++) {
        sum[0] += dots(group_word(group, 2u + i), act_word(a + i));
    }
}

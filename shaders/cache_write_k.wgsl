// Keys into the cache: 32 positions side by side.
#import cache_write

fn place(head: u32, pos: u32, words: u32, i: u32) -> u32 {
    return ((head * (p.page_len / 32u) + pos / 32u) * words + i) * 32u + pos % 32u;
}

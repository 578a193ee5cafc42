// Values into the cache: position after position.
#import cache_write

fn place(head: u32, pos: u32, words: u32, i: u32) -> u32 {
    return (head * p.page_len + pos) * words + i;
}

// Keys into the cache.
#import cache_write
#import cache_places

fn place(head: u32, pos: u32, words: u32, i: u32) -> u32 {
    return key_place(head, pos, words, i);
}

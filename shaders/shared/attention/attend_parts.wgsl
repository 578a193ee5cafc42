// Where the parts of a split attention lie: those of every chunk that a step's tokens see of a page, by (token, head,
// chunk, [m, l, o[head_dim]]). With reach, whose `seen` says which chunks those are.

// The first of the chunks, and how many there are (twin: AttentionParams::chunks).
fn chunks() -> vec2<u32> {
    let first = seen(0u).start >> 6u;
    return vec2<u32>(first, ((seen(p.n_tokens - 1u).stop + 63u) >> 6u) - first);
}

// The part of a token's and head's chunk; `at` = token * p.heads + head.
fn part_at(at: u32, chunk: u32, all: vec2<u32>) -> u32 {
    return (at * all.y + chunk - all.x) * (p.head_dim + 2u);
}

// Where the parts of a split attention lie: those of every chunk that a step's tokens may see, by (token, head, chunk,
// [m, l, o[head_dim]]).

// The part of a token's and head's chunk, counted from the first position; `at` = token * p.heads + head.
fn part_at(at: u32, chunk: u32) -> u32 {
    return (at * p.chunks + chunk - p.chunk0) * (p.head_dim + 2u);
}

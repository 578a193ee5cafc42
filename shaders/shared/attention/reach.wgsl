// What a query sees, by p.scope and p.window (docs/exactness.md section 6; twin AttentionParams). The importing shader
// gives the parameters `p`.

// What p.scope says: every position up to the query's own (0); the chunks before its own; its own chunk, in a ring of
// p.page_len positions.
const SCOPE_OLDER: u32 = 1u;
const SCOPE_OWN: u32 = 2u;

struct Seen {
    // positions, from start to stop in the page; those of a ring are one chunk
    start: u32,
    stop: u32,
    // whether the first chunk that it sees at all is among them
    begins: bool,
}

// The first position of the window of a token, of whatever page.
fn reach(token: u32) -> u32 {
    let last_pos = p.pos + token;
    return select(0u, last_pos + 1u - p.window, p.window != 0u && p.window <= last_pos);
}

// The first position of a token's own chunk.
fn own_chunk(token: u32) -> u32 {
    return (p.pos + token) & ~63u;
}

// The positions that a token sees, from x to y, of whatever page: none where y is not above x.
fn span(token: u32) -> vec2<u32> {
    let own = own_chunk(token);
    let first = reach(token);
    return vec2<u32>(
        select(first, max(first, own), p.scope == SCOPE_OWN),
        select(p.pos + token + 1u, own, p.scope == SCOPE_OLDER),
    );
}

// What a token sees of this page.
fn seen(token: u32) -> Seen {
    let all = span(token);
    if p.scope == SCOPE_OWN {
        let own = own_chunk(token);
        let at = own % p.page_len;
        return Seen(at + all.x - own, at + all.y - own, own <= reach(token));
    }
    let end = p.page_first + p.page_len;
    let start = clamp(all.x, p.page_first, end);
    return Seen(start - p.page_first, clamp(all.y, p.page_first, end) - p.page_first, p.page_first <= reach(token));
}

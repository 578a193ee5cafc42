// What a query sees, by p.scope and p.window (docs/exactness.md section 6; twin AttentionParams), and where the cache has it
// (twin ops::places). The importing shader gives the parameters `p` and the binding `places`: for each token its position,
// its chunk in the ring and where its sequence's two tables begin, then the tables.

// What p.scope says: every position up to the query's own (0); the chunks before its own; its own chunk, in the ring.
const SCOPE_OLDER: u32 = 1u;
const SCOPE_OWN: u32 = 2u;
// What p.window says: the first position that a token sees stands in the place of its chunk in the ring.
const SPAN: u32 = 0xffffffffu;

// The position of a token; past the last one, that of the last.
fn position(token: u32) -> u32 {
    return places[4u * min(token, p.n_tokens - 1u)];
}

// The first position that the token at position `pos` sees.
fn reach(token: u32, pos: u32) -> u32 {
    if p.window == SPAN {
        return places[4u * min(token, p.n_tokens - 1u) + 1u];
    }
    return select(0u, pos + 1u - p.window, p.window != 0u && p.window <= pos);
}

// Whether attention of the token at position `pos` starts with the chunk that begins at `chunk`, which it sees: nothing lies
// before it, not even a sink.
fn starts_with(token: u32, pos: u32, chunk: u32) -> bool {
    return chunk <= reach(token, pos) && p.sinks == 0u;
}

// The first position of a token's own chunk.
fn own_chunk(token: u32) -> u32 {
    return position(token) & ~63u;
}

// The positions that the token at position `pos` sees, from x to y, of whatever page: none where y is not above x.
fn span_of(token: u32, pos: u32) -> vec2<u32> {
    let own = pos & ~63u;
    let first = reach(token, pos);
    return vec2<u32>(
        select(first, max(first, own), p.scope == SCOPE_OWN),
        select(pos + 1u, own, p.scope == SCOPE_OLDER),
    );
}

fn span(token: u32) -> vec2<u32> {
    return span_of(token, position(token));
}

// Index in this page of the chunk of a token's sequence that begins at position `chunk`; p.page_len or more where another
// page has it. In the ring that of the token's own chunk.
fn index_of(token: u32, chunk: u32) -> u32 {
    if p.scope == SCOPE_OWN {
        return 64u * places[4u * token + 1u];
    }
    return 64u * places[places[4u * token + 2u + p.table] + (chunk >> 6u)] - p.page_first;
}

// Whether this page has the chunk.
fn here(token: u32, chunk: u32) -> bool {
    return index_of(token, chunk) < p.page_len;
}

// Where the first chunk that a token sees of this page begins; span(token).y or more where it sees nothing of it.
fn first_here(token: u32) -> u32 {
    let all = span(token);
    for (var chunk = all.x & ~63u; chunk < all.y; chunk += 64u) {
        if here(token, chunk) {
            return chunk;
        }
    }
    // a whole chunk on
    return all.y + 63u;
}

// Whether the token sees something of this page.
fn touches(token: u32) -> bool {
    return first_here(token) < span(token).y;
}

// Whether the token's output is finished by this page.
fn finishes(token: u32) -> bool {
    return p.scope != SCOPE_OLDER && here(token, own_chunk(token));
}

// Whether no older chunk of the token's, which sees something of this page, lies in another page after it.
fn ends_older(token: u32) -> bool {
    return p.scope == SCOPE_OLDER && here(token, max(own_chunk(token), 64u) - 64u);
}

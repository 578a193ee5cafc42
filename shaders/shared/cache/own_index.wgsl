// Where a token's own position lies in a page (twin ops::places). The importing shader gives the parameters `p` and the
// binding `places`: for each token its position, its chunk in the ring and where its sequence's two tables begin, then the
// tables.

// Its index in the page; p.page_len or more where another page has it.
fn own_index(token: u32) -> u32 {
    let position = places[4u * token];
    if p.ring == 1u {
        return 64u * places[4u * token + 1u] + (position & 63u);
    }
    return 64u * places[places[4u * token + 2u + p.table] + (position >> 6u)] + (position & 63u) - p.page_first;
}

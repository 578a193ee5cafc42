// What a token sees of a page, how a chunk is joined to those before it, and what is left after the page, for a unit of
// heads and 128 lanes (docs/exactness.md section 6). The importing shader gives the parameters `p` and the binding
// `carried`.
#import exact
#import cache_types
#import unit_heads
#import rotate

override v_type: u32 = 0u;

const LANES: u32 = 128u;

// What p.scope says that a query sees: every position up to its own (0); the chunks before its own; its own chunk, in a
// ring of p.page_len positions.
const SCOPE_OLDER: u32 = 1u;
const SCOPE_OWN: u32 = 2u;

struct Seen {
    // positions, from start to stop in the page; those of a ring are one chunk
    start: u32,
    stop: u32,
    // whether the first chunk that it sees at all is among them
    begins: bool,
}

// m, l and this lane's elements of o: one, or two of a head over 128
var<private> m: f32;
var<private> l: f32;
var<private> o: array<f32, 2>;

fn seen(token: u32) -> Seen {
    let last_pos = p.pos + token;
    let own = last_pos & ~63u;
    // the first position it sees, of whatever page
    let reach = select(0u, last_pos + 1u - p.window, p.window != 0u && p.window <= last_pos);
    if p.scope == SCOPE_OWN {
        let at = own % p.page_len;
        return Seen(at + max(reach, own) - own, at + last_pos - own + 1u, own <= reach);
    }
    let end = p.page_first + p.page_len;
    let stop = clamp(select(last_pos + 1u, own, p.scope == SCOPE_OLDER), p.page_first, end);
    return Seen(clamp(reach, p.page_first, end) - p.page_first, stop - p.page_first, p.page_first <= reach);
}

// Rotations are made by 64 lanes; the others only meet their barriers.
fn rotating(lane: u32) -> u32 {
    return select(lane, 0x10000u, lane >= 64u);
}

// Heads of a unit.
fn heads_of(unit: u32) -> u32 {
    return min(unit_heads(), p.heads - unit * unit_heads());
}

// Where this lane's head, of those from `at` on, has its state.
fn state_at(lane: u32, at: u32, heads: u32) -> u32 {
    return (at + min(lane / p.head_dim, heads - 1u)) * (p.head_dim + 2u);
}

fn take_state(lane: u32, at: u32, heads: u32) {
    let state = state_at(lane, at, heads);
    m = carried[state];
    l = carried[state + 1u];
    for (var j = 0u; j < 2u; j++) {
        let e = lane + LANES * j;
        if e < heads * p.head_dim {
            o[j] = carried[state + 2u + e - min(lane / p.head_dim, heads - 1u) * p.head_dim];
        }
    }
}

// Joins a chunk's maximum, sum and values; `first`: nothing comes before it.
fn join(first: bool, mc: f32, lc: f32, oc: array<f32, 2>) {
    if first {
        m = mc;
        l = lc;
        o = oc;
        return;
    }
    let top = max(m, mc);
    let a = canon(fexp(B(m - top)));
    let b = canon(fexp(B(mc - top)));
    l = B(B(l * a) + B(lc * b));
    for (var j = 0u; j < 2u; j++) {
        o[j] = B(B(o[j] * a) + B(oc[j] * b));
    }
    m = top;
}

// After the page's last chunk. Whether `row` now holds finished outputs of the unit (rotated back, not canonicalised);
// otherwise the state is in `carried`.
fn leave(lane: u32, token: u32, at: u32, heads: u32) -> bool {
    let elements = heads * p.head_dim;
    let last_pos = p.pos + token;
    let end = p.page_first + p.page_len;
    if p.scope == SCOPE_OLDER || (p.scope != SCOPE_OWN && last_pos >= end) {
        if p.scope == SCOPE_OLDER && (last_pos & ~63u) <= end {
            // no older chunk follows
            workgroupBarrier();
            for (var j = 0u; j < 2u; j++) {
                if lane + LANES * j < elements {
                    row[lane + LANES * j] = o[j];
                }
            }
            unrotate(rotating(lane), elements, rotation(v_type, p.head_dim));
            workgroupBarrier();
            for (var j = 0u; j < 2u; j++) {
                if lane + LANES * j < elements {
                    o[j] = canon(row[lane + LANES * j]);
                }
            }
        }
        let state = state_at(lane, at, heads);
        let mine = min(lane / p.head_dim, heads - 1u);
        for (var j = 0u; j < 2u; j++) {
            let e = lane + LANES * j;
            if e < elements {
                carried[state + 2u + e - mine * p.head_dim] = o[j];
                if e == mine * p.head_dim {
                    carried[state] = m;
                    carried[state + 1u] = l;
                }
            }
        }
        return false;
    }
    // one rotation back per output, whatever the number of positions
    workgroupBarrier();
    let inv = fdiv(1.0, l);
    for (var j = 0u; j < 2u; j++) {
        if lane + LANES * j < elements {
            row[lane + LANES * j] = B(o[j] * inv);
        }
    }
    unrotate(rotating(lane), elements, rotation(v_type, p.head_dim));
    workgroupBarrier();
    return true;
}

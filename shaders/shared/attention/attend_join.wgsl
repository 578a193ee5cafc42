// How a chunk is joined to those before it, and what is left after the page, for a token, a unit of heads and 128 lanes
// (docs/exactness.md section 6). The importing shader gives the parameters `p`, the bindings
// `places` and `carried`, HEAD, and how many elements a lane has at most:
//   const MINE: u32
#import exact
#import cache_types
#import reach
#import unit_lanes
#import rotate

override v_type: u32 = 0u;
// 1: scores have a cap
override capped: u32 = 0u;

// m, l and this lane's elements of o, 128 apart
var<private> m: f32;
var<private> l: f32;
var<private> o: array<f32, MINE>;

// the chunk's sum of values, for the same elements
var<private> chunk_o: array<f32, MINE>;

// Where this lane's head, of those from `at` on, has its state.
fn state_at(lane: u32, at: u32, heads: u32) -> u32 {
    return (at + head_of(lane, heads)) * (p.head_dim + 2u);
}

fn take_state(lane: u32, at: u32, heads: u32) {
    let state = state_at(lane, at, heads);
    m = carried[state];
    l = carried[state + 1u];
    for (var j = 0u; j < MINE; j++) {
        let e = lane + LANES * j;
        if e < heads * p.head_dim {
            o[j] = carried[state + 2u + e - head_of(lane, heads) * p.head_dim];
        }
    }
}

// Joins a chunk's maximum, sum and values, the last of which are in chunk_o; `first`: nothing comes before it.
fn join(first: bool, mc: f32, lc: f32) {
    if first {
        m = mc;
        l = lc;
        o = chunk_o;
        return;
    }
    let top = greater(m, mc);
    let a = canon(fexp(B(m - top)));
    let b = canon(fexp(B(mc - top)));
    l = B(B(l * a) + B(lc * b));
    for (var j = 0u; j < MINE; j++) {
        // a may be 2^-50: without canon the products would become subnormal after some joins
        o[j] = B(canon(B(o[j] * a)) + canon(B(chunk_o[j] * b)));
    }
    m = top;
}

// After the page's last chunk. Whether `row` now holds finished outputs of the unit (rotated back, not canonicalised);
// otherwise the state is in `carried`.
fn leave(lane: u32, token: u32, at: u32, heads: u32) -> bool {
    let elements = heads * p.head_dim;
    if !finishes(token) {
        if ends_older(token) {
            workgroupBarrier();
            for (var j = 0u; j < MINE; j++) {
                if lane + LANES * j < elements {
                    row[lane + LANES * j] = o[j];
                }
            }
            unrotate(rotating(lane), elements, rotation(v_type, p.head_dim));
            workgroupBarrier();
            for (var j = 0u; j < MINE; j++) {
                if lane + LANES * j < elements {
                    o[j] = canon(row[lane + LANES * j]);
                }
            }
        }
        let state = state_at(lane, at, heads);
        let mine = head_of(lane, heads);
        for (var j = 0u; j < MINE; j++) {
            let e = lane + LANES * j;
            if e < elements {
                carried[state + 2u + e - mine * p.head_dim] = sticky(o[j]);
                if e == mine * p.head_dim {
                    carried[state] = m;
                    carried[state + 1u] = sticky(l);
                }
            }
        }
        return false;
    }
    // one rotation back per output, whatever the number of positions
    workgroupBarrier();
    let inv = fdiv(1.0, l);
    for (var j = 0u; j < MINE; j++) {
        if lane + LANES * j < elements {
            row[lane + LANES * j] = canon(B(o[j] * inv));
        }
    }
    unrotate(rotating(lane), elements, rotation(v_type, p.head_dim));
    workgroupBarrier();
    return true;
}

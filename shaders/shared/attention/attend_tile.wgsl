// Causal attention over one cache page (docs/exactness.md sections 6 and 7), for many tokens: a row is a token and a head of
// the unit (as in attend.wgsl), and keys and values are read and unpacked once for all rows. Rows lie head after head,
// tile_tokens() to a head. A lane has R neighbouring rows and, in scores, four positions, in values four elements of each
// 64 of a head. Tokens of a tile that follow each other in one sequence are made together, and so are those at one position of
// it, as an encoder's text has them. The importing shader gives the
// parameters `p`, how many 64 elements a head has at most, R (8, and 4 of heads over 256), how many quads there is room for where
// outputs are staged (512, or R tokens of such a head), and the bindings
//   const GROUPS: u32, const R: u32, const STAGED: u32
//   q: array<vec4<u32>>, k: array<vec4<u32>>, v: array<u32>, places: array<u32>, carried: array<f32>
// where `q` holds queries for keys of floats, and for others what attention_digits leaves. Heads have a multiple of 4
// elements. After `attend_tile` the outputs are taken from `stage_outputs`.
#import exact
#import vec4_exact
#import softcap
#import reach
#import unit_heads
#import tile_keys
#import tile_values
#import tile_outputs

override k_type: u32 = 0u;
override v_type: u32 = 0u;
// 1: scores have a cap
override capped: u32 = 0u;

const ROWS: u32 = 4u * R;
const LANES: u32 = 64u;

// Words of floats and of codes. Keys (tile_keys.wgsl) or values: (16 positions, 16 quads of elements); between the two,
// sums of four parts of each row, and from 128 on their maxima.
var<workgroup> tile: array<vec4<u32>, 256>;
// Scores, then probabilities: (rows, 16 quads of positions); while scores are made, queries; at the end, outputs.
var<workgroup> scores: array<vec4<u32>, STAGED>;
// m and l of each row
var<workgroup> sums: array<vec2<f32>, ROWS>;
// The bits of the weights of old and new in each row's join, or a word of those below in the place of the first; at the end
// those of what outputs are multiplied by.
var<workgroup> weights: array<vec2<u32>, ROWS>;
// The row sees nothing of the chunk; or nothing before it. No weight is one of these patterns.
const KEEPS: u32 = 0xffffffffu;
const TAKES: u32 = 0xfffffffeu;

var<private> acc: array<vec4<f32>, R>;
// outputs of the lane's rows: R of each group of 64 elements
var<private> o: array<vec4<f32>, GROUPS * R>;

var<private> token0: u32;
var<private> head0: u32;
var<private> heads: u32;
// the lane's rows: the first of them, its head in the unit and its token; and its quad
var<private> my_row: u32;
var<private> my_head: u32;
var<private> my_token: u32;
var<private> quad: u32;
// the tokens that are made together, from x to y, and the first one's position
var<private> together: vec2<u32>;
var<private> first_pos: u32;
// how far apart their positions are: 1, or 0 where they are at one
var<private> apart: u32;

// Tokens of a tile; host/variants.rs has the same.
fn tile_tokens() -> u32 {
    let unit = unit_heads();
    return select(select(ROWS / 4u, ROWS / 2u, unit == 2u), ROWS, unit == 1u);
}

// The position of a token that is made now.
fn position_of(token: u32) -> u32 {
    return first_pos + (token - together.x) * apart;
}

// The positions that a token sees which is made now; none for any other.
fn seen(token: u32) -> vec2<u32> {
    let all = span_of(token, position_of(token));
    return select(vec2<u32>(), all, token >= together.x && token < together.y);
}

// Whether the token is made now and sees something of the chunk that begins at x.
fn sees(token: u32, x: u32) -> bool {
    let all = seen(token);
    return max(all.x, x) < min(all.y, x + 64u);
}

// Whether attention of the token, which is made now, starts with the chunk that begins at x, which it sees.
fn begins(token: u32, x: u32) -> bool {
    return starts_with(token, position_of(token), x);
}

// Whether the token's outputs are finished by this page.
fn ends_here(token: u32) -> bool {
    return token < p.n_tokens && finishes(min(token, p.n_tokens - 1u));
}

// Whether the token has a state from another page, or of its sinks.
fn brings(token: u32) -> bool {
    let known = min(token, p.n_tokens - 1u);
    return token < p.n_tokens && touches(known) && !starts_with(known, position(known), first_here(known));
}

// Whether the token leaves a state to another page, and whether that is one with older chunks.
fn carries(token: u32) -> bool {
    let known = min(token, p.n_tokens - 1u);
    return token < p.n_tokens && !finishes(known) && touches(known);
}

fn carries_older(token: u32) -> bool {
    return carries(token) && !ends_older(min(token, p.n_tokens - 1u));
}

fn token_of(row: u32) -> u32 {
    return token0 + row % tile_tokens();
}

// Where the state of a token and head of the unit lies.
fn carried_at(token: u32, head: u32) -> u32 {
    return (token * p.heads + head0 + head) * (p.head_dim + 2u);
}

// Adds to each row four products after another: of tile rows 4 i.. with the row's numbers at `at`, at + stride, ...
fn add_products(i: u32, at: u32, stride: u32) {
    let t0 = bitcast<vec4<f32>>(tile[64u * i + quad]);
    let t1 = bitcast<vec4<f32>>(tile[64u * i + 16u + quad]);
    let t2 = bitcast<vec4<f32>>(tile[64u * i + 32u + quad]);
    let t3 = bitcast<vec4<f32>>(tile[64u * i + 48u + quad]);
    for (var r = 0u; r < R; r++) {
        let x = bitcast<vec4<f32>>(scores[at + r * stride]);
        acc[r] = B4(acc[r] + B4(t0 * x.x));
        acc[r] = B4(acc[r] + B4(t1 * x.y));
        acc[r] = B4(acc[r] + B4(t2 * x.z));
        acc[r] = B4(acc[r] + B4(t3 * x.w));
    }
}

fn clear() {
    for (var r = 0u; r < R; r++) {
        acc[r] = B4(vec4<f32>());
    }
}

fn canon4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(canon(x.x), canon(x.y), canon(x.z), canon(x.w));
}

fn greater4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(greater(a.x, b.x), greater(a.y, b.y), greater(a.z, b.z), greater(a.w, b.w));
}

fn fexp4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(fexp(x.x), fexp(x.y), fexp(x.z), fexp(x.w));
}

fn capped_score(s: f32) -> f32 {
    return softcap(s, p.softcap, p.inv_softcap);
}

fn score_quad(at: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(scores[at]);
}

fn part(at: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(tile[at]);
}

// The scores of the chunk that begins at position `chunk`, at index `at` of the page, with the key-value heads from x to y,
// below everything for positions that a row does not see.
fn make_scores(lane: u32, chunk: u32, at: u32, kv_heads: vec2<u32>) {
    clear();
    for (var kv_head = kv_heads.x; kv_head <= kv_heads.y; kv_head++) {
        add_keys(lane, kv_head, at, kv_head == (head0 + my_head) / (p.heads / p.kv_heads));
    }
    let pos = vec4<u32>(chunk + 4u * quad) + vec4<u32>(0u, 1u, 2u, 3u);
    // past the last head, the last
    let kv_head = min((head0 + my_head) / (p.heads / p.kv_heads), p.kv_heads - 1u);
    let poisoned = key_words(kv_head, at + 4u * quad, 0u) == vec4<u32>(POISONED);
    for (var r = 0u; r < R; r++) {
        let all = seen(my_token + r);
        let unseen = (pos >= vec4<u32>(all.y)) | (pos < vec4<u32>(all.x));
        // every score is far above what stands for a position that the row does not see
        var s = canon4(B4(acc[r] * key_scale(r)));
        if capped != 0u {
            s = vec4<f32>(capped_score(s.x), capped_score(s.y), capped_score(s.z), capped_score(s.w));
        }
        let seen = select(bitcast<vec4<u32>>(s), vec4<u32>(POISON), poisoned);
        scores[(my_row + r) * 16u + quad] = select(seen, vec4<u32>(bitcast<u32>(-3.0e38)), unseen);
    }
    workgroupBarrier();
}

fn row_max(row: u32) -> f32 {
    let a = greater(part(128u + 4u * row).x, part(129u + 4u * row).x);
    return greater(a, greater(part(130u + 4u * row).x, part(131u + 4u * row).x));
}

// Scores to probabilities, and the weights of the chunk in every row.
fn make_probabilities(lane: u32, chunk: u32) {
    for (var i = lane; i < 4u * ROWS; i += LANES) {
        let at = (i >> 2u) * 16u + (i & 3u);
        let top = greater4(
            greater4(score_quad(at), score_quad(at + 4u)),
            greater4(score_quad(at + 8u), score_quad(at + 12u)),
        );
        tile[128u + i] = vec4<u32>(bitcast<u32>(greater(greater(top.x, top.y), greater(top.z, top.w))));
    }
    workgroupBarrier();
    for (var i = lane; i < 4u * ROWS; i += LANES) {
        let at = (i >> 2u) * 16u + (i & 3u);
        let top = row_max(i >> 2u);
        var x: array<vec4<f32>, 4>;
        for (var j = 0u; j < 4u; j++) {
            // far below the maximum, a position that the row does not see gets 0
            x[j] = canon4(fexp4(B4(score_quad(at + 4u * j) - top)));
            scores[at + 4u * j] = bitcast<vec4<u32>>(x[j]);
        }
        // the halving tree over 64: quads 8 apart, then 4; below those 2 apart, then neighbours, then within the quad
        tile[i] = bitcast<vec4<u32>>(B4(B4(x[0] + x[2]) + B4(x[1] + x[3])));
    }
    workgroupBarrier();
    for (var row = lane; row < ROWS; row += LANES) {
        var w = vec2<u32>(KEEPS, 0u);
        if sees(token_of(row), chunk) {
            let y = B4(B4(part(4u * row) + part(4u * row + 2u)) + B4(part(4u * row + 1u) + part(4u * row + 3u)));
            let l = B(B(y.x + y.z) + B(y.y + y.w));
            let m = row_max(row);
            if begins(token_of(row), chunk) {
                sums[row] = vec2<f32>(m, l);
                w.x = TAKES;
            } else {
                let top = greater(sums[row].x, m);
                let a = canon(fexp(B(sums[row].x - top)));
                let b = canon(fexp(B(m - top)));
                sums[row] = vec2<f32>(top, B(B(sums[row].y * a) + B(l * b)));
                w = vec2<u32>(bitcast<u32>(a), bitcast<u32>(b));
            }
        }
        weights[row] = w;
    }
    workgroupBarrier();
}

// What row r has after the chunk whose sum is in acc. What the row sees is asked of weights: in a longer body compilers would
// not unroll the loop that calls this, and keep o in memory.
fn joined(r: u32, before: vec4<f32>) -> vec4<f32> {
    let w = weights[my_row + r];
    let both = B4(canon4(B4(before * bitcast<f32>(w.x))) + canon4(B4(acc[r] * bitcast<f32>(w.y))));
    return select(select(both, acc[r], w.x == TAKES), before, w.x == KEEPS);
}

// What row r has of group g, a constant. The index is one too, so that o lies in registers where r is none.
fn output(g: u32, r: u32) -> vec4<f32> {
    var x = o[g * R];
    for (var i = 1u; i < R; i++) {
        x = select(x, o[g * R + i], i == r);
    }
    return x;
}

// Brings what earlier pages left of the tile's rows.
fn take_states(lane: u32) {
    // rows that there are not, or that see nothing yet, are read with the others
    for (var row = lane; row < ROWS; row += LANES) {
        let token = token_of(row);
        let head = row / tile_tokens();
        var state = vec2<f32>();
        var brought = 0u;
        if head < heads && brings(token) {
            state = vec2<f32>(carried[carried_at(token, head)], carried[carried_at(token, head) + 1u]);
            brought = 1u;
        }
        sums[row] = state;
        weights[row].x = brought;
    }
    workgroupBarrier();
    // without a loop of its own, so that compilers unroll this one and keep o in registers
    for (var r = 0u; r < R; r++) {
        let at = carried_at(my_token + r, my_head) + 2u;
        if weights[my_row + r].x != 0u {
            for (var g = 0u; g < GROUPS; g++) {
                let e = at + 64u * g + 4u * quad;
                if 64u * g + 4u * quad < p.head_dim {
                    o[g * R + r] = vec4<f32>(carried[e], carried[e + 1u], carried[e + 2u], carried[e + 3u]);
                }
            }
        }
    }
    workgroupBarrier();
}

// Adds the chunk that begins at position `chunk`, at index `at` of the page, to the rows that are made now, which see the
// positions in `live` of it between them.
fn add_chunk(lane: u32, chunk: u32, at: u32, kv_heads: vec2<u32>, live: vec2<u32>) {
    make_scores(lane, chunk, at, kv_heads);
    make_probabilities(lane, chunk);
    for (var g = 0u; g < GROUPS; g++) {
        if 64u * g < p.head_dim {
            clear();
            for (var kv_head = kv_heads.x; kv_head <= kv_heads.y; kv_head++) {
                let own = kv_head == (head0 + my_head) / (p.heads / p.kv_heads);
                add_values(lane, kv_head, at, 16u * g, live, own && 64u * g + 4u * quad < p.head_dim);
            }
            // every index of o is a constant, so that o lies in registers
            for (var r = 0u; r < R; r++) {
                var before = o[r];
                for (var i = 1u; i < GROUPS; i++) {
                    before = select(before, o[i * R + r], i == g);
                }
                let after = joined(r, before);
                for (var i = 0u; i < GROUPS; i++) {
                    o[i * R + r] = select(o[i * R + r], after, i == g);
                }
            }
        }
    }
}

// How far apart the positions of `first` and the next token are, before `end`: 0 where they are equal, else 1.
fn distance_of(first: u32, end: u32) -> u32 {
    return select(1u, 0u, first + 1u < end && position(first + 1u) == position(first));
}

// How many tokens from `first` on, before `end`, are of one sequence with positions `distance` apart.
fn neighbours(first: u32, end: u32, distance: u32) -> u32 {
    let sequence = places[4u * first + 2u];
    let pos = position(first);
    for (var stop = first + 1u; stop < end; stop++) {
        if places[4u * stop + 2u] != sequence || position(stop) != pos + (stop - first) * distance {
            return stop - first;
        }
    }
    return end - first;
}

// Makes rows of the unit for the tokens from `first_token` on. Whether some are finished by this page; the states of rows
// that are not are then in `carried`.
fn attend_tile(lane: u32, unit: u32, first_token: u32) -> bool {
    token0 = first_token;
    head0 = unit * unit_heads();
    heads = heads_of(unit);
    let sharing = p.heads / p.kv_heads;
    let unit_end = min((unit + 1u) * unit_heads(), p.heads);
    let kv_heads = vec2<u32>(unit * unit_heads() / sharing, (unit_end - 1u) / sharing);
    quad = lane & 15u;
    my_row = (lane >> 4u) * R;
    my_head = my_row / tile_tokens();
    my_token = token_of(my_row);
    take_states(lane);
    let end = min(first_token + tile_tokens(), p.n_tokens);
    var n = 1u;
    for (var first = first_token; first < end; first += n) {
        // not read back from `apart`, which is no uniform value to WGSL's rules: barriers follow
        let distance = distance_of(first, end);
        n = neighbours(first, end, distance);
        apart = distance;
        let pos = position(first);
        together = vec2<u32>(first, first + n);
        first_pos = pos;
        // what they see between them
        let live = vec2<u32>(span_of(first, pos).x, span_of(first + n - 1u, pos + (n - 1u) * distance).y);
        for (var chunk = live.x & ~63u; chunk < live.y; chunk += 64u) {
            // the ring has the own chunks of its tokens alone
            let at = index_of(select(first, first + max(chunk, pos) - pos, p.scope == SCOPE_OWN), chunk);
            if at < p.page_len {
                add_chunk(lane, chunk, at, kv_heads, max(live, vec2<u32>(chunk)) - chunk);
            }
        }
    }
    workgroupBarrier();
    for (var r = 0u; r < R; r++) {
        let at = carried_at(my_token + r, my_head);
        if my_head < heads && carries_older(my_token + r) {
            for (var g = 0u; g < GROUPS; g++) {
                let x = output(g, r);
                for (var i = 0u; i < 4u; i++) {
                    if 64u * g + 4u * quad < p.head_dim {
                        carried[at + 2u + 64u * g + 4u * quad + i] = sticky(x[i]);
                    }
                }
            }
        }
        if my_head < heads && quad == 0u && carries(my_token + r) {
            carried[at] = sums[my_row + r].x;
            carried[at + 1u] = sticky(sums[my_row + r].y);
        }
    }
    for (var row = lane; row < ROWS; row += LANES) {
        weights[row].x = bitcast<u32>(1.0);
        if ends_here(token_of(row)) {
            weights[row].x = bitcast<u32>(fdiv(1.0, sums[row].y));
        }
    }
    workgroupBarrier();
    if p.scope == SCOPE_OLDER {
        carry_rotated_back(lane);
    }
    return p.scope != SCOPE_OLDER;
}

// Causal attention of 32 rows over one cache page of f32 or f16 (docs/exactness.md section 6), for many tokens: a row is
// a token and a head of the unit (as in attend.wgsl), and keys and values are read and widened once for all rows.
// Rows lie head after head, tile_tokens() to a head. A lane has R neighbouring rows and, in scores, four positions, in
// values four elements (or twice four). The importing shader gives the parameters `p` and
//   q: array<vec4<f32>>, k: array<vec4<u32>>, v: array<vec2<u32>>, carried: array<f32>
// and takes `finished` after `attend_tile`. Heads have a multiple of 4 elements, at most 128.
#import exact
#import vec4_exact
#import cache_types
#import unit_heads

override k_type: u32 = 0u;
override v_type: u32 = 0u;

const ROWS: u32 = 32u;
const R: u32 = 8u;
const LANES: u32 = 64u;

// keys: (16 elements, 16 quads of positions); values: (16 positions, 16 quads of elements); between the two, sums of four
// parts of each row, and from 128 on their maxima
var<workgroup> tile: array<vec4<f32>, 256>;
// scores, then probabilities: (rows, 16 quads of positions); while scores are made, queries: (rows, 4 quads of elements)
var<workgroup> scores: array<vec4<f32>, 512>;
// m and l of each row
var<workgroup> sums: array<vec2<f32>, 32>;
// the weights of old and new in each row's join; at the end 1 / l
var<workgroup> weights: array<vec2<f32>, 32>;

var<private> acc: array<vec4<f32>, R>;
// outputs of the lane's rows: elements 4 quad.. and 64 + 4 quad..
var<private> o: array<vec4<f32>, R>;
var<private> o_far: array<vec4<f32>, R>;

var<private> token0: u32;
var<private> head0: u32;
var<private> heads: u32;
// the lane's rows: the first of them, its head in the unit and its token; and its quad
var<private> my_row: u32;
var<private> my_head: u32;
var<private> my_token: u32;
var<private> quad: u32;

// Tokens of a tile; host/variants.rs has the same.
fn tile_tokens() -> u32 {
    let unit = unit_heads();
    return select(select(8u, 16u, unit == 2u), 32u, unit == 1u);
}

// The first position that a token sees, of whatever page.
fn reach(token: u32) -> u32 {
    let pos = p.pos + token;
    return select(0u, pos + 1u - p.window, p.window != 0u && p.window <= pos);
}

// Whether there is such a token, and it lies at or after position `first` of the page.
fn reached(token: u32, first: u32) -> bool {
    return token < p.n_tokens && p.pos + token >= p.page_first + first;
}

// Whether there is such a token, and it sees something of the positions from `first` to `end` of the page.
fn sees(token: u32, first: u32, end: u32) -> bool {
    return reached(token, first) && reach(token) < p.page_first + end;
}

// Whether no position that the token sees lies before position `first` of the page.
fn begins(token: u32, first: u32) -> bool {
    return p.page_first + first <= reach(token);
}

// Whether the token's last position lies in this page.
fn ends_here(token: u32) -> bool {
    return reached(token, 0u) && p.pos + token < p.page_first + p.page_len;
}

fn token_of(row: u32) -> u32 {
    return token0 + row % tile_tokens();
}

// Where the state of a token and head of the unit lies.
fn carried_at(token: u32, head: u32) -> u32 {
    return (token * p.heads + head0 + head) * (p.head_dim + 2u);
}

// Quads of elements e0.. of every row's query.
fn stage_queries(lane: u32, e0: u32, quads: u32) {
    let tokens = tile_tokens();
    for (var i = lane; i < ROWS * 4u; i += LANES) {
        let head = (i >> 2u) / tokens;
        let token = token_of(i >> 2u);
        var x = vec4<f32>();
        if (i & 3u) < quads && head < heads && token < p.n_tokens {
            x = q[((token * p.heads + head0 + head) * p.head_dim + e0) / 4u + (i & 3u)];
        }
        scores[i] = x;
    }
}

// Quads of elements e0.. of the keys of 64 positions.
fn stage_keys(lane: u32, kv_head: u32, chunk: u32, e0: u32, quads: u32) {
    let words = cached_words(k_type, p.head_dim);
    let per_word = select(1u, 2u, k_type == F16);
    for (var i = lane; i < quads * 64u / per_word; i += LANES) {
        let w = i >> 4u;
        let pos = chunk + 4u * (i & 15u);
        let word = k[((kv_head * (p.page_len / 32u) + pos / 32u) * words + e0 / per_word + w) * 8u + (pos % 32u) / 4u];
        if k_type == F16 {
            tile[w * 32u + (i & 15u)] = f16_to_f32_4(low_half(word));
            tile[w * 32u + 16u + (i & 15u)] = f16_to_f32_4(high_half(word));
        } else {
            tile[i] = bitcast<vec4<f32>>(word);
        }
    }
}

// 64 elements from quad `first` of the values of 16 positions; zeros for those that no row sees, outside `live`.
fn stage_values(lane: u32, kv_head: u32, start: u32, first: u32, live: vec2<u32>) {
    let words = cached_words(v_type, p.head_dim);
    for (var i = lane; i < 256u; i += LANES) {
        let pos = start + (i >> 4u);
        let e = first + (i & 15u);
        var x = vec4<f32>();
        if pos >= live.x && pos < live.y && 4u * e < p.head_dim {
            let at = (kv_head * p.page_len + pos) * words / 2u;
            if v_type == F16 {
                let w = v[at + e];
                x = f16_to_f32_4(vec4<u32>(w.x & 0xffffu, w.x >> 16u, w.y & 0xffffu, w.y >> 16u));
            } else {
                x = bitcast<vec4<f32>>(vec4<u32>(v[at + 2u * e], v[at + 2u * e + 1u]));
            }
        }
        tile[i] = x;
    }
}

// Adds to each row four products after another: of tile rows 4 i.. with the row's scores at `at`, at + stride, ...
fn add_products(i: u32, at: u32, stride: u32) {
    let t0 = tile[64u * i + quad];
    let t1 = tile[64u * i + 16u + quad];
    let t2 = tile[64u * i + 32u + quad];
    let t3 = tile[64u * i + 48u + quad];
    for (var r = 0u; r < R; r++) {
        let x = scores[at + r * stride];
        acc[r] = B4(acc[r] + B4(t0 * x.x));
        acc[r] = B4(acc[r] + B4(t1 * x.y));
        acc[r] = B4(acc[r] + B4(t2 * x.z));
        acc[r] = B4(acc[r] + B4(t3 * x.w));
    }
}

fn clear() {
    for (var r = 0u; r < R; r++) {
        acc[r] = vec4<f32>();
    }
}

fn canon4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(canon(x.x), canon(x.y), canon(x.z), canon(x.w));
}

fn fexp4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(fexp(x.x), fexp(x.y), fexp(x.z), fexp(x.w));
}

// The scores of a chunk with the key-value heads from x to y, below everything for positions that a row does not see.
fn make_scores(lane: u32, chunk: u32, kv_heads: vec2<u32>) {
    clear();
    for (var kv_head = kv_heads.x; kv_head <= kv_heads.y; kv_head++) {
        for (var e0 = 0u; e0 < p.head_dim; e0 += 16u) {
            let quads = min((p.head_dim - e0) / 4u, 4u);
            stage_queries(lane, e0, quads);
            stage_keys(lane, kv_head, chunk, e0, quads);
            workgroupBarrier();
            if kv_head == (head0 + my_head) / (p.heads / p.kv_heads) {
                for (var i = 0u; i < quads; i++) {
                    add_products(i, my_row * 4u + i, 4u);
                }
            }
            workgroupBarrier();
        }
    }
    let pos = vec4<u32>(p.page_first + chunk + 4u * quad) + vec4<u32>(0u, 1u, 2u, 3u);
    for (var r = 0u; r < R; r++) {
        let unseen = (pos > vec4<u32>(p.pos + my_token + r)) | (pos < vec4<u32>(reach(my_token + r)));
        scores[(my_row + r) * 16u + quad] = select(B4(acc[r] * p.scale), vec4<f32>(-3.0e38), unseen);
    }
    workgroupBarrier();
}

fn row_max(row: u32) -> f32 {
    let a = max(tile[128u + 4u * row].x, tile[129u + 4u * row].x);
    return max(a, max(tile[130u + 4u * row].x, tile[131u + 4u * row].x));
}

// Scores to probabilities, and the weights of the chunk in every row.
fn make_probabilities(lane: u32, chunk: u32) {
    for (var i = lane; i < 4u * ROWS; i += LANES) {
        let at = (i >> 2u) * 16u + (i & 3u);
        let top = max(max(scores[at], scores[at + 4u]), max(scores[at + 8u], scores[at + 12u]));
        tile[128u + i] = vec4<f32>(max(max(top.x, top.y), max(top.z, top.w)));
    }
    workgroupBarrier();
    for (var i = lane; i < 4u * ROWS; i += LANES) {
        let at = (i >> 2u) * 16u + (i & 3u);
        let top = row_max(i >> 2u);
        var x: array<vec4<f32>, 4>;
        for (var j = 0u; j < 4u; j++) {
            // far below the maximum, a position that the row does not see gets 0
            x[j] = canon4(fexp4(B4(scores[at + 4u * j] - top)));
            scores[at + 4u * j] = x[j];
        }
        // the halving tree over 64: quads 8 apart, then 4; below those 2 apart, then neighbours, then within the quad
        tile[i] = B4(B4(x[0] + x[2]) + B4(x[1] + x[3]));
    }
    workgroupBarrier();
    for (var row = lane; row < ROWS; row += LANES) {
        if sees(token_of(row), chunk, chunk + 64u) {
            let y = B4(B4(tile[4u * row] + tile[4u * row + 2u]) + B4(tile[4u * row + 1u] + tile[4u * row + 3u]));
            let l = B(B(y.x + y.z) + B(y.y + y.w));
            let m = row_max(row);
            if begins(token_of(row), chunk) {
                sums[row] = vec2<f32>(m, l);
            } else {
                let top = max(sums[row].x, m);
                let a = canon(fexp(B(sums[row].x - top)));
                let b = canon(fexp(B(m - top)));
                sums[row] = vec2<f32>(top, B(B(sums[row].y * a) + B(l * b)));
                weights[row] = vec2<f32>(a, b);
            }
        }
    }
    workgroupBarrier();
}

// Sums values by the probabilities of a chunk, for the 64 elements from quad `first` on.
fn add_values(lane: u32, chunk: u32, first: u32, live: vec2<u32>, kv_heads: vec2<u32>) {
    clear();
    for (var kv_head = kv_heads.x; kv_head <= kv_heads.y; kv_head++) {
        for (var i0 = 0u; i0 < min(live.y - chunk, 64u); i0 += 16u) {
            stage_values(lane, kv_head, chunk + i0, first, live);
            workgroupBarrier();
            if kv_head == (head0 + my_head) / (p.heads / p.kv_heads) && 4u * (first + quad) < p.head_dim {
                for (var i = 0u; i < 4u; i++) {
                    add_products(i, my_row * 16u + i0 / 4u + i, 16u);
                }
            }
            workgroupBarrier();
        }
    }
}

// What row r has after the chunk whose sum is in acc.
fn joined(r: u32, chunk: u32, before: vec4<f32>) -> vec4<f32> {
    let w = weights[my_row + r];
    let both = B4(B4(before * w.x) + B4(acc[r] * w.y));
    let token = my_token + r;
    return select(before, select(both, acc[r], begins(token, chunk)), sees(token, chunk, chunk + 64u));
}

// Output of row r before it is canonicalised; `far`: the element is one of those from 64 on.
fn finished(r: u32, far: bool) -> vec4<f32> {
    let x = select(o[r], o_far[r], vec4<bool>(far));
    return B4(x * weights[my_row + r].x);
}

// Makes rows of the unit for the tokens from `first_token` on; false where none of them sees the page. Rows whose token
// ends here are finished, the others' states are in `carried`.
fn attend_tile(lane: u32, unit: u32, first_token: u32) -> bool {
    token0 = first_token;
    head0 = unit * unit_heads();
    heads = min(unit_heads(), p.heads - head0);
    let last = p.pos + min(first_token + tile_tokens(), p.n_tokens) - 1u;
    if p.page_first > last || reach(first_token) >= p.page_first + p.page_len {
        return false;
    }
    let sharing = p.heads / p.kv_heads;
    let unit_end = min((unit + 1u) * unit_heads(), p.heads);
    let kv_heads = vec2<u32>(unit * unit_heads() / sharing, (unit_end - 1u) / sharing);
    quad = lane & 15u;
    my_row = (lane >> 4u) * R;
    my_head = my_row / tile_tokens();
    my_token = token_of(my_row);
    let wide = p.head_dim > 64u;
    // rows that there are not, or that see nothing yet, are read with the others
    for (var row = lane; row < ROWS; row += LANES) {
        sums[row] = vec2<f32>();
        weights[row] = vec2<f32>();
    }
    workgroupBarrier();
    if p.page_first > 0u {
        for (var row = lane; row < ROWS; row += LANES) {
            let head = row / tile_tokens();
            if head < heads && !begins(token_of(row), 0u) && reached(token_of(row), 0u) {
                let at = carried_at(token_of(row), head);
                sums[row] = vec2<f32>(carried[at], carried[at + 1u]);
            }
        }
        for (var r = 0u; r < R; r++) {
            if my_head < heads && !begins(my_token + r, 0u) && reached(my_token + r, 0u) {
                let at = carried_at(my_token + r, my_head) + 2u + 4u * quad;
                if 4u * quad < p.head_dim {
                    o[r] = vec4<f32>(carried[at], carried[at + 1u], carried[at + 2u], carried[at + 3u]);
                }
                if 64u + 4u * quad < p.head_dim {
                    o_far[r] = vec4<f32>(carried[at + 64u], carried[at + 65u], carried[at + 66u], carried[at + 67u]);
                }
            }
        }
    }
    // what the tile's rows see between them, of this page
    let live = vec2<u32>(max(reach(first_token), p.page_first), min(last + 1u, p.page_first + p.page_len)) - p.page_first;
    for (var chunk = live.x & ~63u; chunk < live.y; chunk += 64u) {
        make_scores(lane, chunk, kv_heads);
        make_probabilities(lane, chunk);
        add_values(lane, chunk, 0u, live, kv_heads);
        for (var r = 0u; r < R; r++) {
            o[r] = joined(r, chunk, o[r]);
        }
        if wide {
            add_values(lane, chunk, 16u, live, kv_heads);
            for (var r = 0u; r < R; r++) {
                o_far[r] = joined(r, chunk, o_far[r]);
            }
        }
    }
    workgroupBarrier();
    for (var r = 0u; r < R; r++) {
        let carries = reached(my_token + r, p.page_len) && sees(my_token + r, 0u, p.page_len);
        if my_head < heads && carries {
            let at = carried_at(my_token + r, my_head);
            for (var i = 0u; i < 4u; i++) {
                if 4u * quad < p.head_dim {
                    carried[at + 2u + 4u * quad + i] = o[r][i];
                }
                if 64u + 4u * quad < p.head_dim {
                    carried[at + 66u + 4u * quad + i] = o_far[r][i];
                }
            }
            if quad == 0u {
                carried[at] = sums[my_row + r].x;
                carried[at + 1u] = sums[my_row + r].y;
            }
        }
    }
    for (var row = lane; row < ROWS; row += LANES) {
        if ends_here(token_of(row)) {
            weights[row].x = fdiv(1.0, sums[row].y);
        }
    }
    workgroupBarrier();
    return true;
}

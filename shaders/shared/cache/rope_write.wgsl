// Rotary position embedding of queries and keys, keys and values into the cache: one workgroup a head of a token, key
// heads first, then value heads, then query heads (which a ring page does without). The importing shader gives the bindings
//   const HEAD: u32 (rotate.wgsl)
//   table: array<f32>, qkv: array<f32>, places: array<u32>, q: array<f32>, keys: array<u32>, values: array<u32>
// and what becomes of an element x of channel i of the key-value heads:
//   fn query(i: u32, x: f32) -> f32, fn key(i: u32, x: f32) -> f32, fn value(i: u32, x: f32) -> f32
#import cache_row
#import cache_places
#import own_index
#import rope_pair

struct Params {
    n_tokens: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    n_rot: u32,
    half_split: u32,
    page_first: u32,
    page_len: u32,
    ring: u32,
    table: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

override k_type: u32 = 0u;
override v_type: u32 = 0u;

// Whether this workgroup's head is one of values.
var<private> to_values: bool;

fn put(head: u32, pos: u32, words: u32, i: u32, word: u32) {
    if to_values {
        values[value_place(head, pos, words, i)] = word;
    } else {
        keys[key_place(head, pos, words, i)] = word;
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let pos = own_index(wid.y);
    if pos >= p.page_len {
        return;
    }
    let row_heads = p.heads + 2u * p.kv_heads;
    let is_query = wid.x >= 2u * p.kv_heads;
    let is_value = wid.x >= p.kv_heads && !is_query;
    to_values = is_value;
    // heads of a row lie in another order: queries, keys, values
    let source = select(wid.x + p.heads, wid.x - 2u * p.kv_heads, is_query);
    let start = (wid.y * row_heads + source) * p.head_dim;
    // values, and what lies past n_rot, are left as they are
    let n_rot = select(p.n_rot, 0u, is_value);
    let half = n_rot / 2u;
    for (var i = lid.x; i < half; i += 64u) {
        let at = pair_places(i, half, p.half_split);
        let t = (wid.y * half + i) * 2u;
        let turned = turn(qkv[start + at.x], qkv[start + at.y], table[t], table[t + 1u]);
        row[at.x] = turned.x;
        row[at.y] = turned.y;
    }
    for (var e = n_rot + lid.x; e < p.head_dim; e += 64u) {
        row[e] = qkv[start + e];
    }
    unmark(lid.x);
    workgroupBarrier();
    // of the head's first element, among those of the key-value heads
    let head = select(wid.x % p.kv_heads, source / (p.heads / p.kv_heads), is_query);
    let channel = head * p.head_dim;
    if is_query {
        let out = (wid.y * p.heads + source) * p.head_dim;
        for (var e = lid.x; e < p.head_dim; e += 64u) {
            q[out + e] = query(channel + e, row[e]);
        }
        return;
    }
    // the values of a key head, and those of a value head themselves
    let values_start = select(start + p.kv_heads * p.head_dim, start, is_value);
    for (var e = lid.x; e < p.head_dim; e += 64u) {
        let of_values = value(channel + e, qkv[values_start + e]);
        if is_value {
            row[e] = mark(of_values);
        } else {
            row[e] = mark(key(channel + e, row[e]));
            mark(of_values);
        }
    }
    workgroupBarrier();
    write_row(select(k_type, v_type, is_value), lid.x, head, pos, !is_value);
}

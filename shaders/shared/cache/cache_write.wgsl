// Writes rows into one cache page. The importing shader gives the bindings x, places and cache, the place of word i of a
// position's row, whether keys are written, and for keys element i of the values (0 for values):
//   x: array<f32>, places: array<u32>, cache: array<u32>
//   const HEAD: u32 (rotate.wgsl), const KEYS: bool
//   fn place(head: u32, pos: u32, words: u32, i: u32) -> u32
//   fn value_beside(i: u32) -> f32
#import cache_row
#import own_index

struct Params {
    n_tokens: u32,
    kv_heads: u32,
    head_dim: u32,
    page_first: u32,
    page_len: u32,
    ring: u32,
    table: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

override cache_type: u32 = 0u;

fn put(head: u32, pos: u32, words: u32, i: u32, word: u32) {
    cache[place(head, pos, words, i)] = word;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let pos = own_index(wid.y);
    if pos >= p.page_len {
        return;
    }
    let head = wid.x;
    let start = (wid.y * p.kv_heads + head) * p.head_dim;
    unmark(lid.x);
    workgroupBarrier();
    for (var e = lid.x; e < p.head_dim; e += 64u) {
        row[e] = mark(x[start + e]);
        mark(value_beside(start + e));
    }
    workgroupBarrier();
    write_row(cache_type, lid.x, head, pos, KEYS);
}

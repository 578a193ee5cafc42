// The kernel of attention_chunks and attention_chunks_large, the first pass of a split attention: every chunk of the page by
// itself; one workgroup a unit of heads, token and chunk. The importing shader gives HEAD and MINE.
@group(0) @binding(1) var<storage, read> q: array<f32>;           // (tokens, heads, head_dim)
@group(0) @binding(2) var<storage, read> k: array<u32>;           // (kv_heads, page_len/32, words, 32)
@group(0) @binding(3) var<storage, read> v: array<u32>;           // (kv_heads, page_len, words)
@group(0) @binding(4) var<storage, read> places: array<u32>;      // (tokens, 4), tables (reach.wgsl)
@group(0) @binding(5) var<storage, read_write> carried: array<f32>; // the parts, in the place of what is carried
@group(0) @binding(6) var<storage, read_write> out: array<u32>;   // not used: the second pass writes it

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let token = wid.y / p.chunks;
    let chunk = 64u * (p.chunk0 + wid.y % p.chunks);
    let all = span(token);
    if chunk >= all.y || chunk + 64u <= all.x {
        return;
    }
    let index = index_of(token, chunk);
    if index >= p.page_len {
        return;
    }
    let heads = heads_of(wid.x);
    let head0 = wid.x * unit_heads();
    let at = token * p.heads + head0;
    load_query(lid.x, at, heads);
    make_chunk(lid.x, head0, heads, index, vec2<u32>(max(all.x, chunk) - chunk, min(all.y - chunk, 64u)));
    let mine = head_of(lid.x, heads);
    let part = part_at(at + mine, chunk >> 6u);
    for (var j = 0u; j < MINE; j++) {
        let e = lid.x + LANES * j;
        if e < heads * p.head_dim {
            carried[part + 2u + e - mine * p.head_dim] = chunk_o[j];
            if e == mine * p.head_dim {
                carried[part] = chunk_m;
                carried[part + 1u] = chunk_l;
            }
        }
    }
}

// The first pass of a split attention: every chunk of the page by itself; one workgroup a unit of heads, token and chunk.
#import attend_chunk
#import attend_parts
#import attention_params

@group(0) @binding(1) var<storage, read> q: array<f32>;           // (tokens, heads, head_dim)
@group(0) @binding(2) var<storage, read> k: array<u32>;           // (kv_heads, page_len/32, words, 32)
@group(0) @binding(3) var<storage, read> v: array<u32>;           // (kv_heads, page_len, words)
@group(0) @binding(4) var<storage, read_write> carried: array<f32>; // the parts, in the place of what is carried
@group(0) @binding(5) var<storage, read_write> out: array<u32>;   // not used: the second pass writes it

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let all = chunks();
    let token = wid.y / all.y;
    let chunk = 64u * (all.x + wid.y % all.y);
    let sees = seen(token);
    if chunk >= sees.stop || chunk + 64u <= sees.start {
        return;
    }
    let heads = heads_of(wid.x);
    let head0 = wid.x * unit_heads();
    let at = token * p.heads + head0;
    load_query(lid.x, at, heads);
    make_chunk(lid.x, head0, heads, chunk, sees.start, sees.stop);
    let mine = head_of(lid.x, heads);
    let part = part_at(at + mine, chunk / 64u, all);
    for (var j = 0u; j < 2u; j++) {
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

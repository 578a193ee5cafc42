// Prefill: causal attention over one cache page for a tile of tokens; one workgroup a unit of heads and tile.
#import attend_tile
#import attention_params

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;     // (tokens, heads, head_dim/4)
@group(0) @binding(2) var<storage, read> k: array<vec4<u32>>;     // (kv_heads, page_len/32, words, 8)
@group(0) @binding(3) var<storage, read> v: array<vec2<u32>>;     // (kv_heads, page_len, words/2)
@group(0) @binding(4) var<storage, read_write> carried: array<f32>; // (tokens, heads, [m, l, o[head_dim]])
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>; // (tokens, heads, head_dim/4)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    if attend_tile(lid.x, wid.x, wid.y * tile_tokens()) {
        for (var r = 0u; r < R; r++) {
            if my_head < heads && ends_here(my_token + r) {
                let at = ((my_token + r) * p.heads + head0 + my_head) * (p.head_dim / 4u) + quad;
                if 4u * quad < p.head_dim {
                    out[at] = canon4(finished(r, false));
                }
                if 64u + 4u * quad < p.head_dim {
                    out[at + 16u] = canon4(finished(r, true));
                }
            }
        }
    }
}

// The kernel of attention_tile, attention_tile_wide and attention_tile_large: causal attention over one cache page for a tile
// of tokens; one workgroup a unit of heads and tile. The importing shader gives GROUPS, R and STAGED (attend_tile.wgsl).
@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>;     // queries, or attention_digits' (attend_tile.wgsl)
@group(0) @binding(2) var<storage, read> k: array<vec4<u32>>;     // (kv_heads, page_len/32, words, 8)
@group(0) @binding(3) var<storage, read> v: array<u32>;           // (kv_heads, page_len, words)
@group(0) @binding(4) var<storage, read> places: array<u32>;      // (tokens, 4), tables (reach.wgsl)
@group(0) @binding(5) var<storage, read_write> carried: array<f32>; // (tokens, heads, [m, l, o[head_dim]])
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>; // (tokens, heads, head_dim/4)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    if attend_tile(lid.x, wid.x, wid.y * tile_tokens()) {
        write_tile(lid.x);
    }
}

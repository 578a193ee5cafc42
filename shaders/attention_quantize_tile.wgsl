// Prefill: attention over one cache page for a tile of tokens, then its outputs to Q8K128 blocks: a token's unit of heads
// is one group of 128 outputs.
#import attend_tile
#import quantise
#import attention_quantize_params

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;     // (tokens, heads, head_dim/4)
@group(0) @binding(2) var<storage, read> k: array<vec4<u32>>;     // (kv_heads, page_len/32, words, 8)
@group(0) @binding(3) var<storage, read> v: array<vec2<u32>>;     // (kv_heads, page_len, words/2)
@group(0) @binding(4) var<storage, read_write> carried: array<f32>; // (tokens, heads, [m, l, o[head_dim]])
@group(0) @binding(5) var<storage, read_write> blocks: array<u32>; // (tokens, groups, digits, 37)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    if attend_tile(lid.x, wid.x, wid.y * tile_tokens()) {
        let row_of_tile = my_token - token0;
        // sixteen tokens at once, in the place of the probabilities
        for (var t0 = 0u; t0 < tile_tokens(); t0 += 16u) {
            if row_of_tile >= t0 && row_of_tile < t0 + 16u {
                for (var r = 0u; r < R; r++) {
                    let at = (row_of_tile - t0 + r) * 32u + my_head * (p.head_dim / 4u) + quad;
                    if 4u * quad < p.head_dim {
                        scores[at] = canon4(finished(r, false));
                    }
                    if 64u + 4u * quad < p.head_dim {
                        scores[at + 16u] = canon4(finished(r, true));
                    }
                }
            }
            workgroupBarrier();
            for (var t = t0; t < min(t0 + 16u, tile_tokens()); t += 2u) {
                let slot = lid.x >> 5u;
                let lane = lid.x & 31u;
                let token = token0 + t + slot;
                let block = (token * (p.heads * p.head_dim / 128u) + wid.x) * p.digits * 37u;
                quantise(slot, lane, scores[(t - t0 + slot) * 32u + lane], block, ends_here(token));
            }
            workgroupBarrier();
        }
    }
}

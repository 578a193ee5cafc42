// The kernel of attention and attention_large: causal attention over one cache page; one workgroup a unit of heads and token
// (attend.wgsl). The importing shader gives HEAD and MINE.
@group(0) @binding(1) var<storage, read> q: array<f32>;           // (tokens, heads, head_dim)
@group(0) @binding(2) var<storage, read> k: array<u32>;           // (kv_heads, page_len/32, words, 32)
@group(0) @binding(3) var<storage, read> v: array<u32>;           // (kv_heads, page_len, words)
@group(0) @binding(4) var<storage, read> places: array<u32>;      // (tokens, 4), tables (reach.wgsl)
@group(0) @binding(5) var<storage, read_write> carried: array<f32>; // (tokens, heads, [m, l, o[head_dim]])
@group(0) @binding(6) var<storage, read_write> out: array<f32>;   // (tokens, heads, head_dim)

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    if attend(lid.x, wid.x, wid.y) {
        write_unit(lid.x, wid.x, wid.y);
    }
}

// The kernel of attention_digits and attention_digits_large, the pass before a tile of attention whose keys are codes: queries
// rotated as the keys are and split into int8 digits; one workgroup a unit of heads and token. The importing shader gives
// HEAD.

// nothing is done with values and scores; the names belong to the pipelines of both passes
override v_type: u32 = 0u;
override capped: u32 = 0u;

@group(0) @binding(1) var<storage, read> q: array<f32>;           // (tokens, heads, head_dim)
@group(0) @binding(2) var<storage, read> k: array<u32>;           // not used: the second pass reads it
@group(0) @binding(3) var<storage, read> v: array<u32>;           // not used: the second pass reads it
@group(0) @binding(4) var<storage, read> places: array<u32>;      // (tokens, 4), tables (reach.wgsl)
// (tokens, heads, [head_dim/32 blocks of 8 words high and 8 low, scale, 3 not used]), in the place of what is carried
@group(0) @binding(5) var<storage, read_write> digits: array<u32>;
@group(0) @binding(6) var<storage, read_write> out: array<u32>;   // not used: the second pass writes it

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    if !touches(wid.y) {
        return;
    }
    let heads = heads_of(wid.x);
    let first = wid.y * p.heads + wid.x * unit_heads();
    load_query(lid.x, first, heads);
    let words = p.head_dim / 4u;
    for (var j = 0u; j < QUADS; j++) {
        let quad = lid.x + LANES * j;
        if quad < heads * words {
            let head = quad / words;
            let i = quad - head * words;
            let at = (first + head) * (2u * words + 4u);
            digits[at + (i >> 3u) * 16u + (i & 7u)] = high_digits[quad];
            digits[at + (i >> 3u) * 16u + 8u + (i & 7u)] = low_digits[quad];
            if i == 0u {
                digits[at + 2u * words] = bitcast<u32>(part_sum[head]);
            }
        }
    }
}

// Cached rows: f32, f16, q8_0, q4_0 (docs/exactness.md section 6; src/ops/cache.rs numbers the types).
const F32: u32 = 0u;
const F16: u32 = 1u;
const Q8_0: u32 = 2u;
const Q4_0: u32 = 3u;

// Words of f16 scales before the codes.
fn scale_words(head_dim: u32) -> u32 {
    return (head_dim / 32u + 1u) / 2u;
}

fn cached_words(t: u32, head_dim: u32) -> u32 {
    if t == F32 {
        return head_dim;
    }
    if t == F16 {
        return head_dim / 2u;
    }
    if t == Q8_0 {
        return scale_words(head_dim) + head_dim / 4u;
    }
    return scale_words(head_dim) + head_dim / 8u;
}

// Cached rows (docs/exactness.md section 6; src/ops/cache.rs numbers the types).
const F32: u32 = 0u;
const F16: u32 = 1u;
const Q8_0: u32 = 2u;
const Q4_0: u32 = 3u;
const Q8_0R: u32 = 4u;
const Q4_0R: u32 = 5u;
const TQ3_0: u32 = 6u;
const TQ3_1: u32 = 7u;
const C8: u32 = 8u;

// The first word of a row of keys that holds no numbers, or whose values do not: no f32 and no pair of f16 that is stored.
const POISONED: u32 = 0x7fc07e00u;

// Whether a row has the layout of q8_0: scales, then codes of a byte.
fn has_bytes(t: u32) -> bool {
    return t == Q8_0 || t == Q8_0R || t == C8;
}

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
    if has_bytes(t) {
        return scale_words(head_dim) + head_dim / 4u;
    }
    if t == Q4_0 || t == Q4_0R {
        return scale_words(head_dim) + head_dim / 8u;
    }
    return scale_words(head_dim) + head_dim / 32u * 3u;
}

// Elements rotated together: the largest power of two that divides the head, 32 for tq3, 0 for types that do not rotate.
fn rotation(t: u32, head_dim: u32) -> u32 {
    if t < Q8_0R || t == C8 {
        return 0u;
    }
    if t == TQ3_0 || t == TQ3_1 {
        return 32u;
    }
    return min(head_dim & (~head_dim + 1u), 256u);
}

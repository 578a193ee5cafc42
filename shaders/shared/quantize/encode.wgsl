// What the encoders of rows share: one invocation makes a unit of whole words (64 or 128 elements) and a flag, which
// says that the unit holds magnitudes outside 2^-100..2^18 and must be encoded elsewhere. Twin: src/ops/encode.rs.

struct Params {
    n_tokens: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;              // (units, elements)
@group(0) @binding(2) var<storage, read_write> blocks: array<u32>;   // (units, words and a flag)

// The first element of the largest magnitude, and that magnitude's bits.
struct Peak {
    value: f32,
    bits: u32,
}

fn peak(first: u32, n: u32) -> Peak {
    var top = Peak(0.0, 0u);
    for (var i = 0u; i < n; i++) {
        let v = x[first + i];
        let bits = bitcast<u32>(v) & 0x7fffffffu;
        if bits > top.bits {
            top = Peak(v, bits);
        }
    }
    return top;
}

fn tame(bits: u32) -> bool {
    return bits >= (27u << 23u) && bits < (145u << 23u);
}

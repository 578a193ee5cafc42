// The shapes that drivers are known to rewrite, and the shared arithmetic, over chosen inputs: a device is exact when
// every word agrees with the twin (src/ops/float_probe.rs).
#import exact

struct Params {
    n_tokens: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (rows, 4)
@group(0) @binding(2) var<storage, read_write> out: array<u32>;   // (rows, 24)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.x * 64u + lid.x;
    if row >= p.n_tokens {
        return;
    }
    let a = x[row * 4u];
    let b = x[row * 4u + 1u];
    let c = x[row * 4u + 2u];
    let d = x[row * 4u + 3u];
    let o = row * 24u;
    out[o] = bitcast<u32>(B(a + b));
    out[o + 1u] = bitcast<u32>(B(a * b));
    out[o + 2u] = bitcast<u32>(B(B(a * b) + c));
    out[o + 3u] = bitcast<u32>(B(B(a * b) - B(c * d)));
    out[o + 4u] = bitcast<u32>(B(B(a * b) + B(a * c)));
    out[o + 5u] = bitcast<u32>(B(B(a + b) - a));
    out[o + 6u] = bitcast<u32>(B(B(a * 1.1) * 1.3));
    out[o + 7u] = bitcast<u32>(B(B(a + 1.1) + 1.3));
    out[o + 8u] = bitcast<u32>(B(B(a + 12582912.0) - 12582912.0));
    var acc = 0.0;
    for (var i = 0u; i < 4u; i++) {
        acc = B(acc + B(x[row * 4u + i] * b));
    }
    out[o + 9u] = bitcast<u32>(acc);
    out[o + 10u] = bitcast<u32>(B(B(B(a + b) + c) + d));
    let two_sum = B(a + b);
    let bb = B(two_sum - a);
    out[o + 11u] = bitcast<u32>(B(B(a - B(two_sum - bb)) + B(b - bb)));
    out[o + 12u] = bitcast<u32>(fdiv(a, b));
    out[o + 13u] = bitcast<u32>(fsqrt(abs(c)));
    out[o + 14u] = bitcast<u32>(fexp(clamp(d, -100.0, 100.0)));
    out[o + 15u] = bitcast<u32>(sigmoid(clamp(a, -100.0, 100.0)));
    out[o + 16u] = f32_to_f16(a);
    out[o + 17u] = bitcast<u32>(f16_to_f32(bitcast<u32>(b) & 0x7bffu));
    out[o + 18u] = bitcast<u32>(i2f(bitcast<i32>(bitcast<u32>(a) ^ (bitcast<u32>(b) << 3u))));
    out[o + 19u] = bitcast<u32>(dot4I8Packed(bitcast<u32>(a), bitcast<u32>(b)));
    out[o + 20u] = bitcast<u32>(round_away(clamp(B(c * 3.0), -30000.0, 30000.0)));
    out[o + 21u] = bitcast<u32>(round(clamp(c, -30000.0, 30000.0)));
    out[o + 22u] = bitcast<u32>(canon(a));
    out[o + 23u] = bitcast<u32>(max(B(a * d), min(b, c)));
}

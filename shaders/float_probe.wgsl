// The shapes that drivers are known to rewrite, one for each way in which the kernels put floats together, and the shared
// arithmetic, over chosen inputs: a device is exact when every word agrees with the twin (src/ops/float_probe.rs).
//
// Compilers fuse only a product of one use, so no two words share a product.
#import exact
#import vec4_exact
#import gelu
#import gelu_erf
#import softcap

struct Params {
    n_tokens: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (rows, 16)
@group(0) @binding(2) var<storage, read_write> out: array<u32>;   // (rows, 53)

// An integer of 24 bits and its sign from the bits of an input.
fn sum_of(v: f32, shift: u32) -> i32 {
    return bitcast<i32>(bitcast<u32>(v) << shift) >> 7u;
}

// A scale as blocks have it.
fn half_of(v: f32) -> f32 {
    return f16_to_f32((bitcast<u32>(v) >> 3u) & 0x7bffu);
}

// The value of a sum taken with two digits.
fn two_digits(v: f32) -> f32 {
    return B(B(i2f(sum_of(v, 3u)) * 128.0) + i2f(sum_of(v, 11u)));
}

// Four blocks with a scale each; the loop is unrolled, and the sum starts from a literal zero.
fn blocks(first: u32, second: u32) -> f32 {
    var t = 0.0;
    for (var b = 0u; b < 4u; b++) {
        t = B(t + B(half_of(x[first + b]) * two_digits(x[second + b])));
    }
    return t;
}

// The same with minima: a sum of sums of two products.
fn blocks_with_minima(first: u32) -> f32 {
    var t = 0.0;
    for (var b = 0u; b < 4u; b++) {
        let s = B(half_of(x[first + b]) * i2f(sum_of(x[first + 4u + b], 5u)));
        let m = B(half_of(x[first + 8u + b]) * i2f(sum_of(x[first + 12u + b], 6u)));
        t = B(t + B(s + m));
    }
    return t;
}

// Segments of groups, from zeros that nobody knows.
fn segments_of(first: u32) -> f32 {
    var total = B(0.0);
    for (var s = 0u; s < 2u; s++) {
        var acc = B(0.0);
        for (var g = 0u; g < 3u; g++) {
            let i = first + 3u * s + g;
            acc = B(acc + B(x[i] * half_of(x[i + 7u])));
        }
        total = B(total + acc);
    }
    return canon(total);
}

// Four rows at a time.
fn four_rows(first: u32) -> vec4<f32> {
    var acc = vec4<f32>();
    for (var i = 0u; i < 3u; i++) {
        let codes = vec4<i32>(sum_of(x[first + i], 4u), sum_of(x[first + i], 8u), sum_of(x[first + i], 2u), -7);
        let v = B4(B4(i2f4(codes) * 128.0) + i2f4(codes >> vec4<u32>(9u)));
        acc = B4(acc + B4(x[first + 4u + i] * v));
    }
    return acc;
}

fn sum_of_squares(first: u32) -> f32 {
    var acc = 0.0;
    for (var i = 0u; i < 8u; i++) {
        let v = x[first + i];
        acc = B(acc + B(v * v));
    }
    return acc;
}

// Parts with a scale of an eighth each, less what their minima are worth.
fn parts_less_minima(first: u32) -> f32 {
    var t = B(0.0);
    for (var part = 0u; part < 2u; part++) {
        let scale = B(half_of(x[first + part]) * 0.125);
        let u = B(scale * i2f(sum_of(x[first + 2u + part], 1u)));
        t = B(t + B(u - B(half_of(x[first + 4u + part]) * i2f(sum_of(x[first + 6u + part], 7u)))));
    }
    return t;
}

// Outputs of experts by their weights, added to what there is.
fn combined(first: u32, before: f32) -> f32 {
    var acc = B(0.0);
    for (var s = 0u; s < 3u; s++) {
        acc = B(acc + B(x[first + s] * x[first + 4u + s]));
    }
    return canon(B(before + canon(acc)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.x * 64u + lid.x;
    if row >= p.n_tokens {
        return;
    }
    let i = row * 16u;
    let a = x[i];
    let b = x[i + 1u];
    let c = x[i + 2u];
    let d = x[i + 3u];
    let e = x[i + 4u];
    let f = x[i + 5u];
    let g = x[i + 6u];
    let h = x[i + 7u];
    let o = row * 53u;
    out[o] = bitcast<u32>(B(a + b));
    out[o + 1u] = bitcast<u32>(B(a * b));
    out[o + 2u] = bitcast<u32>(B(B(c * d) + e));
    out[o + 3u] = bitcast<u32>(B(B(e * f) - B(g * h)));
    out[o + 4u] = bitcast<u32>(B(B(a * c) + B(a * d)));
    out[o + 5u] = bitcast<u32>(B(B(f + g) - f));
    out[o + 6u] = bitcast<u32>(B(B(b * 1.1) * 1.3));
    out[o + 7u] = bitcast<u32>(B(B(c + 1.1) + 1.3));
    out[o + 8u] = bitcast<u32>(B(B(d + 12582912.0) - 12582912.0));
    var acc = 0.0;
    for (var j = 0u; j < 4u; j++) {
        acc = B(acc + B(x[i + j] * x[i + 8u + j]));
    }
    out[o + 9u] = bitcast<u32>(acc);
    out[o + 10u] = bitcast<u32>(B(B(B(b + c) + d) + e));
    let two_sum = B(a + h);
    let rest = B(two_sum - a);
    out[o + 11u] = bitcast<u32>(B(B(a - B(two_sum - rest)) + B(h - rest)));
    out[o + 12u] = bitcast<u32>(fdiv(a, b));
    out[o + 13u] = bitcast<u32>(fsqrt(abs(c)));
    out[o + 14u] = bitcast<u32>(fexp(clamp(d, -100.0, 100.0)));
    out[o + 15u] = bitcast<u32>(sigmoid(clamp(e, -100.0, 100.0)));
    out[o + 16u] = f32_to_f16(f);
    out[o + 17u] = bitcast<u32>(f16_to_f32(bitcast<u32>(g) & 0x7bffu));
    out[o + 18u] = bitcast<u32>(i2f(bitcast<i32>(bitcast<u32>(a) ^ (bitcast<u32>(b) << 3u))));
    out[o + 19u] = bitcast<u32>(dot4I8Packed(bitcast<u32>(a), bitcast<u32>(b)));
    out[o + 20u] = bitcast<u32>(round_away(clamp(B(h * 3.0), -30000.0, 30000.0)));
    out[o + 21u] = bitcast<u32>(round(clamp(c, -30000.0, 30000.0)));
    out[o + 22u] = bitcast<u32>(canon(a));
    out[o + 23u] = bitcast<u32>(max(B(a * e), min(b, c)));
    // barriers that meet: written so, and with a zero between them
    out[o + 24u] = bitcast<u32>(B(B(B(b * d)) + e));
    out[o + 25u] = bitcast<u32>(B(B(0.0 + B(b * e)) + f));
    out[o + 26u] = bitcast<u32>(B(B(B(b * f) * 1.0) + g));
    out[o + 27u] = bitcast<u32>(blocks(i, i + 9u));
    out[o + 28u] = bitcast<u32>(blocks_with_minima(i));
    out[o + 29u] = bitcast<u32>(B(B(half_of(c) * two_digits(f)) - B(half_of(d) * two_digits(g))));
    out[o + 30u] = bitcast<u32>(segments_of(i));
    let rows = bitcast<vec4<u32>>(four_rows(i + 8u));
    out[o + 31u] = rows.x ^ (rows.y << 1u) ^ (rows.z << 2u) ^ (rows.w << 3u);
    out[o + 32u] = bitcast<u32>(sum_of_squares(i + 8u));
    out[o + 33u] = bitcast<u32>(canon(B(B(c * g) * h)));
    // a turn, a butterfly, a join
    out[o + 34u] = bitcast<u32>(canon(B(B(a * f) - B(b * g))));
    out[o + 35u] = bitcast<u32>(B(B(a + c) - B(b + d)));
    let weight = fexp(clamp(f, -30.0, 0.0));
    out[o + 36u] = bitcast<u32>(B(canon(B(a * weight)) + canon(B(e * g))));
    let bounded = clamp(h, -80.0, 80.0);
    out[o + 37u] = bitcast<u32>(canon(B(B(bounded * sigmoid(bounded)) * g)));
    // what is not finite
    let large = B(B(abs(h) + 1.0) * 3.0e38);
    let infinite = B(large * 1.0e10);
    out[o + 38u] = bitcast<u32>(canon(infinite));
    let no_number = B(infinite - B(large * 2.0e10));
    out[o + 39u] = bitcast<u32>(canon(no_number));
    out[o + 40u] = bitcast<u32>(canon(B(no_number * B(0.0))));
    out[o + 41u] = bitcast<u32>(fexp(no_number)) ^ (bitcast<u32>(fdiv(a, no_number)) << 1u)
        ^ (bitcast<u32>(fsqrt(infinite)) << 2u) ^ (bitcast<u32>(fexp(-infinite)) << 3u);
    out[o + 42u] = bitcast<u32>(greater(greater(a, b), greater(c, d)));
    out[o + 43u] = bitcast<u32>(greater(greater(e, sticky(no_number)), f));    // activations, caps
    out[o + 44u] = bitcast<u32>(gelu_times(a, c));
    out[o + 45u] = bitcast<u32>(gelu_erf(b));
    out[o + 46u] = bitcast<u32>(ftanh(d)) ^ (bitcast<u32>(softcap(e, 30.0, 0.033333335)) << 1u);
    let gate = clamp(f, -80.0, 80.0);
    out[o + 47u] = bitcast<u32>(canon(B(B(gate * sigmoid(B(1.702 * gate))) * B(h + 1.0))));
    // a layer norm's end, a scaled residual, a row of one scale with a bias
    let centred = canon(B(x[i + 8u] - x[i + 9u]));
    out[o + 48u] = bitcast<u32>(canon(B(canon(B(B(centred * x[i + 10u]) * x[i + 11u])) + g)));
    out[o + 49u] = bitcast<u32>(canon(B(b + canon(B(h * x[i + 13u])))));
    out[o + 50u] = bitcast<u32>(B(B(B(i2f(sum_of(h, 4u)) * x[i + 12u]) * x[i + 14u]) + c));
    out[o + 51u] = bitcast<u32>(parts_less_minima(i + 8u));
    out[o + 52u] = bitcast<u32>(combined(i + 8u, d));
}

// Arithmetic every shader shares; docs/exactness.md section 1, twin src/ops/exact.rs.

// A run-time 0 no compiler knows: main sets it to workgroup_id.z of a dispatch whose z is 1.
var<private> zero: u32;

// The barrier: the rounded value, opaque to fusing and reassociation.
fn B(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ zero);
}

fn canon(x: f32) -> f32 {
    return select(x, 0.0, ((bitcast<u32>(x) >> 23u) & 255u) < 77u);
}

// f32 nearest to i: both parts and the product are exact, the sum rounds once.
fn i2f(i: i32) -> f32 {
    return B(B(f32(i >> 12u) * 4096.0) + f32(i & 4095));
}

// Correctly rounded a / b for normal b and normal or zero a, by long division of the significands.
fn fdiv(a: f32, b: f32) -> f32 {
    let ab = bitcast<u32>(a);
    let bb = bitcast<u32>(b);
    let sign = (ab ^ bb) & 0x80000000u;
    let mb = (bb & 0x7fffffu) | 0x800000u;
    var r = (ab & 0x7fffffu) | 0x800000u;
    var e = i32((ab >> 23u) & 255u) - i32((bb >> 23u) & 255u) + 127;
    if r < mb {
        r = r << 1u;
        e = e - 1;
    }
    // 24 quotient bits and one guard bit
    var q = 0u;
    for (var i = 0u; i < 25u; i++) {
        let bit = select(0u, 1u, r >= mb);
        q = (q << 1u) | bit;
        r = (r - bit * mb) << 1u;
    }
    let up = (q & 1u) & (((q >> 1u) & 1u) | select(0u, 1u, r != 0u));
    q = (q >> 1u) + up;
    if q == 0x1000000u {
        q = q >> 1u;
        e = e + 1;
    }
    var bits = sign | (u32(clamp(e, 0, 255)) << 23u) | (q & 0x7fffffu);
    bits = select(bits, sign | 0x7f7fffffu, e > 254);
    bits = select(bits, 0u, e < 7 || ((ab >> 23u) & 255u) == 0u);
    return bitcast<f32>(bits);
}

// Correctly rounded square root of a normal number or 0, two radicand bits at a time.
fn fsqrt(x: f32) -> f32 {
    let xb = bitcast<u32>(x);
    var m = (xb & 0x7fffffu) | 0x800000u;
    var e = i32((xb >> 23u) & 255u) - 127;
    if (e & 1) != 0 {
        m = m << 1u;
        e = e - 1;
    }
    var root = 0u;
    var rem = 0u;
    for (var i = 0u; i < 25u; i++) {
        // bits 2(24-i)+1 and 2(24-i) of m << 25
        let at = 48u - 2u * i;
        var pair = 0u;
        if at >= 25u {
            pair = (m >> (at - 25u)) & 3u;
        } else if at == 24u {
            pair = (m << 1u) & 3u;
        }
        rem = (rem << 2u) | pair;
        let t = (root << 2u) | 1u;
        let bit = select(0u, 1u, rem >= t);
        rem = rem - bit * t;
        root = (root << 1u) | bit;
    }
    let up = (root & 1u) & (((root >> 1u) & 1u) | select(0u, 1u, rem != 0u));
    var q = (root >> 1u) + up;
    e = (e >> 1u) + 127;
    if q == 0x1000000u {
        q = q >> 1u;
        e = e + 1;
    }
    let bits = (u32(e) << 23u) | (q & 0x7fffffu);
    return bitcast<f32>(select(bits, 0u, ((xb >> 23u) & 255u) == 0u));
}

fn fexp(x0: f32) -> f32 {
    let x = clamp(x0, -87.0, 88.0);
    let k = round(B(x * 1.4426950408889634));
    let r = B(B(x - B(k * 0.693359375)) - B(k * -2.12194440e-4));
    var p = 1.9875691500e-4;
    p = B(B(p * r) + 1.3981999507e-3);
    p = B(B(p * r) + 8.3334519073e-3);
    p = B(B(p * r) + 4.1665795894e-2);
    p = B(B(p * r) + 1.6666665459e-1);
    p = B(B(p * r) + 5.0000001201e-1);
    let y = B(B(B(p * B(r * r)) + r) + 1.0);
    let bits = bitcast<u32>(y) + (bitcast<u32>(i32(k)) << 23u);
    return select(bitcast<f32>(bits), 0.0, x0 < -87.0);
}

fn sigmoid(x: f32) -> f32 {
    let e = fexp(-abs(x));
    return fdiv(select(e, 1.0, x >= 0.0), B(1.0 + e));
}

// Integer codes, half away from zero; both the truncation and the difference are exact.
fn round_away(x: f32) -> i32 {
    let t = trunc(x);
    let up = abs(B(x - t)) >= 0.5;
    return i32(t) + select(0, select(1, -1, x < 0.0), up);
}

fn f16_to_f32(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let m = h & 1023u;
    let e = (h >> 10u) & 31u;
    let normal = ((e + 112u) << 23u) | (m << 13u);
    // m · 2^-24: the exponent of the exact f32(m) lowered by 24
    let tiny = select(bitcast<u32>(f32(m)) - (24u << 23u), 0u, m == 0u);
    return bitcast<f32>(sign | select(normal, tiny, e == 0u));
}

// Half to even; too large becomes ±65504.
fn f32_to_f16(x: f32) -> u32 {
    let b = bitcast<u32>(x);
    let sign = (b >> 16u) & 0x8000u;
    let a = b & 0x7fffffffu;
    if a >= 0x477ff000u {
        return sign | 0x7bffu;
    }
    if a >= 0x38800000u {
        return sign | ((a + 0xfffu + ((a >> 13u) & 1u) - (112u << 23u)) >> 13u);
    }
    if a <= 0x33000000u {
        return sign;
    }
    let shift = 126u - (a >> 23u);
    let m = (a & 0x7fffffu) | 0x800000u;
    let h = m >> shift;
    let rest = m & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    let up = rest > half || (rest == half && (h & 1u) == 1u);
    return sign | (h + select(0u, 1u, up));
}

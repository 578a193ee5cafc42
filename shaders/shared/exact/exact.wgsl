// Arithmetic every shader shares; docs/exactness.md section 1, twin src/ops/exact.rs.
#import base

// The barrier: the rounded value, opaque to fusing and reassociation. It is idempotent, so that two that meet leave one;
// `B(0.0)` is a zero that no compiler knows, from which sums start.
fn B(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | zero);
}

// Infinities and NaN.
fn not_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u;
}

// Infinities, NaN, and what is too large to be stored.
fn too_large(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) >= 0x5f800000u;
}

// POISON for what is not finite.
fn sticky(x: f32) -> f32 {
    return bitcast<f32>(select(bitcast<u32>(x), POISON, not_finite(x)));
}

// Whether a scale, which is not negative, is below 2^-40 and counts as 0.
fn too_small(scale: f32) -> bool {
    return bitcast<u32>(scale) < 0x2b800000u;
}

// The greater of two finite values or POISON, which is greater than all others: by the order of their bits. For -0, which
// is below +0 here, canon comes before.
fn greater(a: f32, b: f32) -> f32 {
    return bitcast<f32>(ordered(max(ordered(bitcast<i32>(a)), ordered(bitcast<i32>(b)))));
}

// The bits of a float to an integer in the float's order, and back.
fn ordered(bits: i32) -> i32 {
    return bits ^ ((bits >> 31u) & 0x7fffffff);
}

// f32 nearest to i: both parts and the product are exact, the sum rounds once.
fn i2f(i: i32) -> f32 {
    return B(B(f32(i >> 12u) * 4096.0) + f32(i & 4095));
}

// Correctly rounded a / b for normal b and normal or zero a, by long division of the significands. By 0: the largest
// number; 0 / 0: 0; POISON where an operand is not finite.
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
    // 24 quotient bits and one guard bit: the first is 1, the others come in three digits of 8 bits, of remainders below
    // 2^24
    r = r - mb;
    var q = 1u;
    for (var i = 0u; i < 3u; i++) {
        let digit = (r << 8u) / mb;
        r = (r << 8u) - digit * mb;
        q = (q << 8u) | digit;
    }
    let up = (q & 1u) & (((q >> 1u) & 1u) | select(0u, 1u, r != 0u));
    q = (q >> 1u) + up;
    if q == 0x1000000u {
        q = q >> 1u;
        e = e + 1;
    }
    var bits = sign | (u32(clamp(e, 0, 255)) << 23u) | (q & 0x7fffffu);
    bits = select(bits, sign | 0x7f7fffffu, e > 254 || ((bb >> 23u) & 255u) == 0u);
    bits = select(bits, 0u, e < 7 || ((ab >> 23u) & 255u) == 0u);
    return bitcast<f32>(select(bits, POISON, not_finite(a) || not_finite(b)));
}

// The integer part of sqrt(h) for h in 2^24 .. 2^26 - 1: a straight line is 1 part in 15 off at most, two steps of Newton
// leave one too many at most.
fn isqrt(h: u32) -> u32 {
    var s = (h >> 14u) + (h >> 16u) + 2867u;
    s = (s + h / s) >> 1u;
    s = (s + h / s) >> 1u;
    return s - select(0u, 1u, s * s > h);
}

// Correctly rounded square root of a positive normal number or 0; POISON of what is not finite. The root of the significand
// with 25 bits more comes in two halves (P. Zimmermann, Karatsuba Square Root, INRIA RR-3805, 1999): a root of the upper bits,
// and a division of what it leaves.
fn fsqrt(x: f32) -> f32 {
    let xb = bitcast<u32>(x);
    var m = (xb & 0x7fffffu) | 0x800000u;
    var e = i32((xb >> 23u) & 255u) - 127;
    if (e & 1) != 0 {
        m = m << 1u;
        e = e - 1;
    }
    // m 2^25 is h 2^24, and the integer part of its root s 2^12 + q or one less, with a guard bit at its end
    let h = m << 1u;
    let s = isqrt(h);
    let left = (h - s * s) << 12u;
    let q = left / (2u * s);
    var root = (s << 12u) + q;
    var rem = bitcast<i32>(((left - q * 2u * s) << 12u) - q * q);
    if rem < 0 {
        rem = rem + bitcast<i32>(2u * root) - 1;
        root = root - 1u;
    }
    let up = (root & 1u) & (((root >> 1u) & 1u) | select(0u, 1u, rem != 0));
    root = (root >> 1u) + up;
    e = (e >> 1u) + 127;
    if root == 0x1000000u {
        root = root >> 1u;
        e = e + 1;
    }
    let bits = (u32(e) << 23u) | (root & 0x7fffffu);
    return bitcast<f32>(select(select(bits, 0u, ((xb >> 23u) & 255u) == 0u), POISON, not_finite(x)));
}

// e^x: 0 below -87, as of 88 above it, POISON of infinity and NaN.
fn fexp(x0: f32) -> f32 {
    let bits0 = bitcast<u32>(x0);
    // by the bits: below -87, -inf too; above 88
    let low = bits0 > 0xc2ae0000u;
    let high = bitcast<i32>(bits0) > 0x42b00000;
    let x = bitcast<f32>(select(select(bits0, 0x42b00000u, high), 0u, low));
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
    return bitcast<f32>(select(select(bits, 0u, low), POISON, not_finite(x0) && bits0 != 0xff800000u));
}

// 1 / (1 + e^-x), from the half of the curve where the exponential does not overflow.
fn sigmoid(x: f32) -> f32 {
    let e = fexp(bitcast<f32>(bitcast<u32>(x) | 0x80000000u));
    return fdiv(select(e, 1.0, bitcast<i32>(x) >= 0), B(1.0 + e));
}

// Integer codes, half away from zero; both the truncation and the difference are exact.
fn round_away(x: f32) -> i32 {
    let t = trunc(x);
    let up = abs(B(x - t)) >= 0.5;
    return i32(t) + select(0, select(1, -1, x < 0.0), up);
}

// The nearest integer, half to even; ±2^15 of what lies beyond.
fn nearest(x: f32) -> i32 {
    let bits = bitcast<u32>(x);
    let beyond = (bits & 0x7fffffffu) >= 0x47000000u;
    let near = i32(round(bitcast<f32>(select(bits, 0u, beyond))));
    return select(near, select(32768, -32768, (bits >> 31u) == 1u), beyond);
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

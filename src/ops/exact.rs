//! The arithmetic every twin and every shader shares: `docs/exactness.md` section 1 in Rust.
//!
//! Plain f32, in the order written, one rounding per operation. The barrier `B` of the page is the identity here, since
//! Rust never contracts or reassociates. Nothing here may call a mathematical library: `trunc`, `round_ties_even`,
//! `abs` and `sqrt` are exact or correctly rounded everywhere, all else is built from `+ - * /`, integers and bit casts.

/// Magnitudes below this count as zero wherever a value is stored (2^-50).
pub const CANON_MIN: f32 = f32::from_bits((127 - 50) << 23);

/// Magnitudes from this on are too large to be stored (2^64).
pub const CANON_MAX: f32 = f32::from_bits((127 + 64) << 23);

/// What stands, with exactly these bits, for every value that is no number or too large to be stored.
pub const POISON: f32 = f32::from_bits(0x7fc0_0000);

/// The exponent's bits, all of them set in infinities and NaN alone.
const EXPONENT: u32 = 0x7f80_0000;

/// Scales below this count as zero when activations and cache rows are quantised (2^-40).
pub const SCALE_MIN: f32 = f32::from_bits((127 - 40) << 23);

/// Quotients below this become zero in [`fdiv`] (2^-120).
const QUOTIENT_MIN: f32 = f32::from_bits((127 - 120) << 23);

/// `x`, +0 when |x| < 2^-50, [`POISON`] when |x| >= 2^64 or `x` is a NaN. Every f32 stored in a buffer goes through this.
#[inline(always)]
pub fn canon(x: f32) -> f32 {
    let kept = if x.abs() < CANON_MIN { 0.0 } else { x };
    // what is not less is too large, or a NaN
    if x.abs() < CANON_MAX { kept } else { POISON }
}

/// `x`, or +0 when |x| < 2^-50: what is read from files, where every finite magnitude may stand.
#[inline(always)]
pub fn flush(x: f32) -> f32 {
    if x.abs() < CANON_MIN { 0.0 } else { x }
}

const SIGN: u32 = 0x8000_0000;

/// Whether `x` is an infinity or a NaN.
#[inline(always)]
pub fn not_finite(x: f32) -> bool {
    x.to_bits() & EXPONENT == EXPONENT
}

/// Whether [`canon`] makes [`POISON`] of `x`.
#[inline(always)]
pub fn too_large(x: f32) -> bool {
    x.to_bits() & !SIGN >= CANON_MAX.to_bits()
}

/// `x`, or [`POISON`] where it is not finite.
#[inline(always)]
pub fn sticky(x: f32) -> f32 {
    if not_finite(x) { POISON } else { x }
}

/// The bits of a float to an integer in the float's order, and back: [`POISON`] lies above every number, -0 below +0.
#[inline(always)]
pub fn ordered(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & 0x7fff_ffff)
}

/// The greater of two canonical values; [`POISON`] is greater than all others.
#[inline(always)]
pub fn greater(a: f32, b: f32) -> f32 {
    let key = |x: f32| ordered(x.to_bits() as i32);
    f32::from_bits(ordered(key(a).max(key(b))) as u32)
}

/// The greatest magnitude, by bits: infinities and NaN are above the numbers.
#[inline]
pub fn amax(x: &[f32]) -> f32 {
    f32::from_bits(x.iter().fold(0, |m, v| m.max(v.to_bits() & !SIGN)))
}

/// The f32 nearest to `i`, ties to even.
#[inline]
pub fn i2f(i: i32) -> f32 {
    i as f32
}

/// Correctly rounded `a / b` of normal numbers (either may be 0). Quotients of magnitude below 2^-120 become +0, as do
/// those of 0; those above the largest finite number, and of others by 0, become the largest finite number with the
/// quotient's sign. [`POISON`] where an operand is not finite.
#[inline]
pub fn fdiv(a: f32, b: f32) -> f32 {
    if not_finite(a) || not_finite(b) {
        POISON
    } else if a == 0.0 {
        0.0
    } else {
        quotient(a, b)
    }
}

/// [`fdiv`] of finite numbers that are not both 0.
#[inline(always)]
pub fn quotient(a: f32, b: f32) -> f32 {
    let q = a / b;
    if q.abs() < QUOTIENT_MIN {
        0.0
    } else if q.abs() > f32::MAX {
        f32::MAX.copysign(q)
    } else {
        q
    }
}

/// Correctly rounded square root of a positive normal number or 0; [`POISON`] of what is not finite.
#[inline]
pub fn fsqrt(x: f32) -> f32 {
    if not_finite(x) { POISON } else { x.sqrt() }
}

/// e^x: 0 below -87, e^88 above 88, elsewhere within about 2 ulp (polynomial of the Cephes library's `expf`); 0 of -inf,
/// [`POISON`] of inf and NaN.
#[allow(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "the constants as docs/exactness.md writes them"
)]
#[inline]
pub fn fexp(x: f32) -> f32 {
    if x < -87.0 {
        return 0.0;
    }
    if not_finite(x) {
        return POISON;
    }
    let x = if x > 88.0 { 88.0 } else { x };
    let k = (x * 1.4426950408889634).round_ties_even();
    let r = (x - k * 0.693359375) - k * -2.12194440e-4;
    let mut p = 1.9875691500e-4f32;
    for c in [1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1] {
        p = p * r + c;
    }
    let y = (p * (r * r) + r) + 1.0;
    // y lies in 0.70..1.42 and k in -126..=127, reaching -126 only where y >= 1: the sum stays a normal number.
    f32::from_bits(y.to_bits().wrapping_add(((k as i32) << 23) as u32))
}

/// 1 / (1 + e^-x), from the half of the curve where the exponential does not overflow. [`POISON`] of a NaN.
#[inline]
pub fn sigmoid(x: f32) -> f32 {
    let e = fexp(-x.abs());
    if x >= 0.0 { fdiv(1.0, 1.0 + e) } else { fdiv(e, 1.0 + e) }
}

/// From this magnitude on [`ftanh`] is made of an exponential.
pub const TANH_FAR: f32 = 0.625;

/// Below this magnitude (2^-12) [`ftanh`] is its argument, which the polynomial gives as well; but on the way to that it may
/// leave the normal numbers.
pub const TANH_NEAR: f32 = f32::from_bits((127 - 12) << 23);

/// tanh of what lies between [`TANH_NEAR`] and [`TANH_FAR`] (polynomial of the Cephes library's `tanhf`).
#[allow(clippy::excessive_precision, reason = "the constants as docs/exactness.md writes them")]
#[inline(always)]
pub fn tanh_polynomial(x: f32) -> f32 {
    let z = x * x;
    let mut p = -5.70498872745e-3f32;
    p = p * z + 2.06390887954e-2;
    p = p * z + -5.37397155531e-2;
    p = p * z + 1.33314422036e-1;
    p = p * z + -3.33332819422e-1;
    (p * z) * x + x
}

/// tanh x, within about 2 ulp; [`POISON`] of a NaN.
#[inline]
pub fn ftanh(x: f32) -> f32 {
    let magnitude = f32::from_bits(x.to_bits() & !SIGN);
    if x.is_nan() {
        POISON
    } else if magnitude >= TANH_FAR {
        let e = fexp(-2.0 * magnitude);
        fdiv(1.0 - e, 1.0 + e).copysign(x)
    } else if magnitude < TANH_NEAR {
        x
    } else {
        tanh_polynomial(x)
    }
}

/// The value of an IEEE binary16 bit pattern, with integer operations. Infinities and NaNs keep their payload.
#[inline]
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = ((h & 0x8000) as u32) << 16;
    let exponent = ((h >> 10) & 31) as u32;
    let mantissa = (h & 0x3ff) as u32;
    let magnitude = match exponent {
        0 if mantissa == 0 => 0,
        0 => {
            // mantissa * 2^-24: shift the leading one up to bit 23, where the addition below carries it out
            let up = mantissa.leading_zeros() - 8;
            ((127 - 24 + 23 - up - 1) << 23) + (mantissa << up)
        }
        31 => 0x7f80_0000 | (mantissa << 13),
        _ => ((exponent + 127 - 15) << 23) | (mantissa << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// The binary16 bit pattern nearest to `x`, ties to even, with integer operations. What would round past +-65504, and
/// infinities and NaNs, become +-65504.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let a = bits & 0x7fff_ffff;
    let exponent = (a >> 23) as i32 - 127;
    let magnitude = if exponent >= -14 {
        // Dropping 13 bits; a carry out of the mantissa rightly raises the exponent.
        let rebased = a - ((127 - 15) << 23);
        ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13).min(0x7bff)
    } else if exponent >= -25 {
        // A multiple of 2^-24: mantissa with its leading one, less the bits below 2^-24.
        let m = (a & 0x7f_ffff) | 0x80_0000;
        let drop = (-1 - exponent) as u32;
        let half = 1u32 << (drop - 1);
        (m + (half - 1) + ((m >> drop) & 1)) >> drop
    } else {
        0
    };
    sign | magnitude as u16
}

/// The integer nearest to `x`, halves to even; ±2^15 of what lies beyond. Not for NaN.
#[inline]
pub fn nearest(x: f32) -> i32 {
    (x.clamp(-32768.0, 32768.0)).round_ties_even() as i32
}

/// `x` rounded to an integer, halves away from zero. For |x| < 2^31.
#[inline]
pub fn round_away(x: f32) -> i32 {
    let t = x.trunc();
    let up = (x - t).abs() >= 0.5;
    (if !up {
        t
    } else if x < 0.0 {
        t - 1.0
    } else {
        t + 1.0
    }) as i32
}

/// The halving tree over `v`, in place: for s = n/2, n/4, ... 1, v\[l\] += v\[l + s\] for l < s. Returns v\[0\].
///
/// Panics unless the length is a power of two.
#[inline]
pub fn tree_sum(v: &mut [f32]) -> f32 {
    assert!(v.len().is_power_of_two(), "tree_sum: {} lanes, expected a power of two", v.len());
    let mut s = v.len() / 2;
    while s > 0 {
        for l in 0..s {
            v[l] += v[l + s];
        }
        s /= 2;
    }
    v[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    #[test]
    fn canon_leaves_magnitudes_of_two_to_the_minus_50_to_64_no_negative_zero_and_one_poison() {
        let below = f32::from_bits(CANON_MIN.to_bits() - 1);
        let last = f32::from_bits(CANON_MAX.to_bits() - 1);
        assert_eq!((CANON_MIN as f64, CANON_MAX as f64), (2f64.powi(-50), 2f64.powi(64)));
        for (x, want) in [
            (-0.0, 0.0),
            (below, 0.0),
            (-below, 0.0),
            (CANON_MIN, CANON_MIN),
            (-CANON_MIN, -CANON_MIN),
            (last, last),
            (-last, -last),
            (CANON_MAX, POISON),
            (-CANON_MAX, POISON),
            (f32::INFINITY, POISON),
            (f32::NEG_INFINITY, POISON),
            (f32::from_bits(0xffff_ffff), POISON),
            (f32::from_bits(0x7f80_0001), POISON),
        ] {
            assert_eq!(canon(x).to_bits(), f32::to_bits(want));
        }
    }

    #[test]
    fn tanh_follows_the_f64_curve_is_odd_and_rises_over_its_parts() {
        let mut worst = 0f64;
        let mut last = 0f32;
        let mut at = f32::from_bits(1);
        while at < 100.0 {
            let (found, want) = (ftanh(at), libm::tanh(f64::from(at)));
            worst = worst.max((f64::from(found) - want).abs() / want);
            assert_eq!(ftanh(-at).to_bits(), found.to_bits() | SIGN, "{at:e}");
            assert!(found >= last * (1.0 - 2e-7) && found <= 1.0, "{at:e}: {found:e} after {last:e}");
            last = found;
            at *= 1.0003;
            at = at.next_up();
        }
        assert!(worst < 2e-7, "{worst:e}");
        // the argument itself is what the polynomial gives below 2^-12
        let mut at = TANH_NEAR;
        for _ in 0..100_000 {
            at = at.next_down();
            assert_eq!(tanh_polynomial(at).to_bits(), at.to_bits(), "{at:e}");
        }
        assert_eq!((ftanh(0.0).to_bits(), ftanh(-0.0).to_bits()), (0, SIGN));
        assert_eq!((ftanh(f32::INFINITY), ftanh(f32::NEG_INFINITY), ftanh(f32::MAX)), (1.0, -1.0, 1.0));
        for nan in [f32::NAN, f32::from_bits(0xffff_ffff), f32::from_bits(0x7f80_0001)] {
            assert_eq!(ftanh(nan).to_bits(), POISON.to_bits());
        }
    }

    #[test]
    fn what_is_not_finite_stays_so_with_one_pattern() {
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)] {
            assert!(not_finite(bad));
            for got in [sticky(bad), fdiv(bad, 2.0), fdiv(2.0, bad), fdiv(bad, 0.0), fdiv(0.0, bad), fsqrt(bad)] {
                assert_eq!(got.to_bits(), POISON.to_bits());
            }
            assert!(not_finite(amax(&[1.0, bad, 2.0])));
        }
        for nan in [f32::NAN, -f32::NAN] {
            assert_eq!(sigmoid(nan).to_bits(), POISON.to_bits());
        }
        for x in [f32::MAX, f32::MIN, 0.0, CANON_MIN, -1.0] {
            assert_eq!(greater(x, POISON).to_bits(), POISON.to_bits());
            assert_eq!(greater(POISON, x).to_bits(), POISON.to_bits());
            for y in [f32::MAX, f32::MIN, 0.0, CANON_MIN, -1.0] {
                assert_eq!(greater(x, y), x.max(y));
            }
        }
    }

    #[test]
    fn fdiv_rounds_once_and_clamps_both_ends() {
        assert_eq!(fdiv(1.0, 3.0), 1.0 / 3.0);
        assert_eq!(fdiv(-1.0, 3.0), -1.0 / 3.0);
        assert_eq!(fdiv(1.0, 2f32.powi(120)).to_bits(), 2f32.powi(-120).to_bits());
        assert_eq!(fdiv(1.0, 2f32.powi(121)).to_bits(), 0);
        assert_eq!(fdiv(-1.0, 2f32.powi(121)).to_bits(), 0);
        assert_eq!(fdiv(f32::MAX, 0.5), f32::MAX);
        assert_eq!(fdiv(f32::MAX, -0.5), -f32::MAX);
        assert_eq!(fdiv(0.0, -2.0).to_bits(), 0);
        assert_eq!(fdiv(0.0, 0.0).to_bits(), 0);
        assert_eq!(fdiv(-1.0, 0.0), -f32::MAX);
    }

    #[test]
    fn fexp_is_within_two_ulp_of_the_f64_exponential() {
        let mut worst = 0f64;
        for i in 0..=1_750_000 {
            let x = -87.0 + i as f32 * 1e-4;
            let want = (x.min(88.0) as f64).exp();
            let ulp = (f32::from_bits((want as f32).to_bits() + 1) - want as f32) as f64;
            worst = worst.max((fexp(x) as f64 - want).abs() / ulp);
        }
        assert!(worst < 2.0, "{worst} ulp");
        assert_eq!(fexp(0.0), 1.0);
        assert_eq!(fexp(-87.00001), 0.0);
        assert_eq!(fexp(-1e30), 0.0);
        assert_eq!(fexp(f32::NEG_INFINITY), 0.0);
        for x in [f32::INFINITY, f32::NAN, -f32::NAN] {
            assert_eq!(fexp(x).to_bits(), POISON.to_bits());
        }
        assert_eq!(fexp(1e30), fexp(88.0));
        assert!(fexp(-87.0) >= f32::MIN_POSITIVE && fexp(88.0).is_finite());
    }

    #[test]
    fn sigmoid_follows_the_f64_curve_on_both_sides() {
        assert_eq!(sigmoid(0.0), 0.5);
        for i in -8000..=8000 {
            let x = i as f32 * 0.01;
            let want = 1.0 / (1.0 + (-x as f64).exp());
            assert!((sigmoid(x) as f64 - want).abs() <= 4e-7 * want, "{x}");
        }
    }

    #[test]
    fn every_f16_widens_to_the_value_half_gives() {
        for h in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(h), half::f16::from_bits(h).to_f32());
            if theirs.is_nan() {
                assert!(ours.is_nan());
            } else {
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{h:04x}");
                if theirs.is_finite() {
                    assert_eq!(f32_to_f16(ours), h);
                }
            }
        }
    }

    #[test]
    fn narrowing_to_f16_rounds_as_half_does_and_clamps() {
        let mut seed = 1;
        let check = |x: f32| {
            let want = half::f16::from_f32(x);
            let want = if want.is_finite() { want.to_bits() } else { 0x7bff | (want.to_bits() & 0x8000) };
            assert_eq!(f32_to_f16(x), want, "{x:e} {:08x}", x.to_bits());
        };
        for _ in 0..2_000_000 {
            let bits = random::next(&mut seed) as u32;
            check(f32::from_bits(bits));
            // the exponents an f16 has, with ties made likely
            let exponent = 127 - 27 + (bits >> 8) % 45;
            check(f32::from_bits((bits & 0x8000_0000) | (exponent << 23) | ((bits & 0xff) << 11)));
        }
        assert_eq!(f32_to_f16(f32::INFINITY), 0x7bff);
        assert_eq!(f32_to_f16(-1e30), 0xfbff);
    }

    #[test]
    fn halves_round_away_from_zero() {
        let just_below = f32::from_bits(0.5f32.to_bits() - 1);
        for (x, want) in [
            (0.5, 1),
            (-0.5, -1),
            (1.5, 2),
            (2.5, 3),
            (-2.5, -3),
            (just_below, 0),
            (-just_below, 0),
            (126.49, 126),
            (-7.0, -7),
        ] {
            assert_eq!(round_away(x), want, "{x}");
        }
    }

    #[test]
    fn the_tree_adds_the_far_half_first() {
        let mut v = [1e8f32, 1.0, -1e8, 1.0];
        assert_eq!(tree_sum(&mut v), 2.0);
        assert_eq!([1e8f32, 1.0, -1e8, 1.0].iter().sum::<f32>(), 1.0);
        assert_eq!(tree_sum(&mut [3.0]), 3.0);
    }
}

//! Student's t distribution, for the intervals of `bench --compare` and `compare`.

use std::f64::consts::PI;

/// The 97.5 % quantile of Student's t at any number of degrees of freedom (fractions too, as Welch's test has them): 95 %
/// of the distribution lies within plus and minus this. Infinite below half a degree.
///
/// With t = sqrt(n) tan(a), the probability of (-t, t) is 2 c times the integral of cos^(n-1) from 0 to a, where
/// c = gamma((n+1)/2) / (gamma(n/2) sqrt(pi)) (Abramowitz and Stegun 26.7.1, substituted); the a at which it is 0.95 is
/// found by halving. Above 10^5 degrees the first term of their series 26.7.5 is exact to ten digits.
pub fn student95(freedom: f64) -> f64 {
    const NORMAL: f64 = 1.959_963_984_540_054;
    let n = freedom;
    if n.is_nan() || n < 0.5 {
        return f64::INFINITY;
    }
    if n > 1e5 {
        return NORMAL + (NORMAL.powi(3) + NORMAL) / (4.0 * n);
    }
    let c = libm::exp(libm::lgamma((n + 1.0) / 2.0) - libm::lgamma(n / 2.0)) / PI.sqrt();
    let within = |a: f64| 2.0 * c * integral(|x| libm::pow(libm::cos(x), n - 1.0), a);
    let (mut low, mut high) = (0.0, PI / 2.0);
    // 0.5^50 of a right angle is below the last digit
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if within(middle) < 0.95 { low = middle } else { high = middle }
    }
    n.sqrt() * libm::tan((low + high) / 2.0)
}

/// The integral from 0 to `to` by Simpson's rule.
fn integral(f: impl Fn(f64) -> f64, to: f64) -> f64 {
    const STEPS: usize = 400;
    let h = to / STEPS as f64;
    let inner: f64 = (1..STEPS).map(|i| f(i as f64 * h) * if i % 2 == 0 { 2.0 } else { 4.0 }).sum();
    h / 3.0 * (f(0.0) + inner + f(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Abramowitz and Stegun, table 26.10, and more digits where the distribution has a closed form.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (n, t) in [
            (1.0, 12.706_204_736),
            (2.0, 4.302_652_730),
            (3.0, 3.182_446),
            (4.0, 2.776_445),
            (5.0, 2.570_582),
            (7.0, 2.364_624),
            (10.0, 2.228_139),
            (20.0, 2.085_963),
            (30.0, 2.042_272),
            (60.0, 2.000_298),
            (120.0, 1.979_930),
            (1e5, 1.959_988),
            (1e7, 1.959_964),
            (f64::INFINITY, 1.959_964),
        ] {
            assert!((student95(n) / t - 1.0).abs() < 1e-6, "{n}: {} for {t}", student95(n));
        }
    }

    #[test]
    fn quantiles_fall_with_the_degrees_also_between_whole_numbers() {
        let list: Vec<f64> = (10..200).map(|i| student95(f64::from(i) / 10.0)).collect();
        assert!(list.is_sorted_by(|a, b| a > b), "{list:?}");
        assert!(student95(1e5) >= student95(1.000_001e5), "the two ways meet");
        assert_eq!([student95(0.0), student95(f64::NAN)], [f64::INFINITY; 2]);
    }
}

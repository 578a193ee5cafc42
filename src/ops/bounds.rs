//! What section 8 of `docs/exactness.md` says of magnitudes, computed: no value whose bits are looked at is subnormal.
//!
//! A range is followed through an operation by three exponents. What is not asserted to be normal must be one of the three
//! kinds the page names: it meets `canon` next, or it is multiplied by something below 2^64 and meets `canon` then, or it
//! is only rounded to an integer.

/// Values that are 0, or of magnitude 2^least <= |x| < 2^most, and multiples of 2^grain.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: i32,
    most: i32,
    grain: i32,
}

/// f32 of 24 significant bits.
const fn floats(least: i32, most: i32) -> Range {
    Range { least, most, grain: least - 23 }
}

/// What a buffer holds, but for POISON.
const STORED: Range = floats(-50, 64);
/// f32 and bf16 of a file.
const FILE: Range = floats(-50, 128);
/// f16, subnormal ones too.
const F16: Range = Range { least: -24, most: 16, grain: -24 };
/// f32 scales of a file's blocks that are added up.
const BLOCK_SCALE: Range = floats(-40, 128);
/// Scales that are powers of two (MXFP4), and those of four and three bits (NVFP4).
const POWER: Range = Range { least: -50, most: 126, grain: -50 };
const EIGHT_BITS: Range = Range { least: -10, most: 9, grain: -10 };
/// An eighth of an f16 (IQ1, IQ2).
const EIGHTH: Range = Range { least: -27, most: 13, grain: -27 };
/// Integers, rounded or not.
const INTEGER: Range = Range { least: 0, most: 40, grain: 0 };
/// Probabilities and weights of a join.
const WEIGHT: Range = floats(-50, 1);
/// Scales of activations and queries.
const SCALE: Range = floats(-40, 64);

impl Range {
    /// A product, rounded.
    fn times(self, by: Range) -> Range {
        let least = self.least + by.least;
        // rounding to 24 bits leaves a multiple of what the exact product is one of
        Range { least, most: self.most + by.most, grain: (self.grain + by.grain).max(least - 23) }
    }

    /// A sum or difference of 2^terms such values in any order: what is left when they cancel is a multiple of the grain.
    fn sum(self, terms: i32) -> Range {
        Range { least: self.grain, most: self.most + terms, grain: self.grain }
    }

    fn plus(self, other: Range) -> Range {
        let grain = self.grain.min(other.grain);
        Range { least: grain, most: self.most.max(other.most) + 1, grain }
    }

    /// Its bits are looked at.
    fn seen(self) -> Range {
        assert!(self.least >= -126, "{self:?} may be subnormal");
        self
    }

    /// `canon`: what is below 2^-50, flushed or not, is 0.
    fn canon(self) -> Range {
        Range { least: self.least.max(-50), most: self.most.min(64), grain: self.grain.max(-73) }
    }

    /// It meets a factor below 2^64 and then canon: where it is subnormal, the product is 0 whatever it was.
    fn faded(self) {
        let product = floats(-149, -126).times(floats(-50, 64));
        assert!(product.most <= -50, "{product:?} may be stored");
    }
}

#[test]
fn sums_of_linears_are_normal() {
    let tail = |t: Range| SCALE.times(t.seen()).seen().sum(14).seen().canon();
    // Q8_0, Q4_0, Q5_0, IQ4_NL and the two of Q2_0: four blocks; Q4_1, Q5_1: with minima; K: a difference; Q8K128: an f32
    // scale
    let u = F16.times(INTEGER).seen();
    tail(u.sum(2));
    tail(u.plus(u).seen().sum(2));
    tail(u.plus(u));
    tail(FILE.times(INTEGER));
    // IQ1, IQ2, and so IQ3 and those of one f16; four blocks of MXFP4; eight sub-blocks of NVFP4
    tail(EIGHTH.times(INTEGER));
    tail(POWER.times(INTEGER).seen().sum(2));
    tail(EIGHT_BITS.times(INTEGER).seen().sum(3));
    // W8A8: one sum of integers, the row's scale or 1, a scale of the file
    INTEGER.times(SCALE).seen().times(FILE).seen().canon();
    // W8A16, W4A16: four blocks with f32 scales
    tail(BLOCK_SCALE.times(INTEGER).seen().sum(2));
    for w in [FILE, F16] {
        let y = w.times(STORED).seen().sum(17).seen().canon();
        y.plus(STORED).seen().canon();
    }
}

#[test]
fn norms_turns_and_gates_are_normal_where_it_counts() {
    // squares do not cancel: the mean of up to 2^17 is no less than one of them by its share
    let square = STORED.times(STORED).seen();
    let mean = floats(square.least - 17, square.most + 17).seen();
    let s = floats(-(mean.most + 1) / 2 - 1, -mean.least / 2 + 1);
    STORED.times(s).seen().times(FILE).canon();
    // RoPE's table is canonical
    let product = STORED.times(STORED).seen();
    product.plus(product).seen().canon();
    // sigmoid: quotients below 2^-120 are 0; up is stored
    STORED.times(floats(-120, 1)).faded();
    // activation codes: the inverse of a scale
    STORED.times(floats(-58, 41)).seen();
}

#[test]
fn a_mixture_of_experts_is_normal_where_it_counts() {
    // parts of a softmax and sigmoids; their sum; a quotient; times a scale
    let sum = WEIGHT.sum(9).seen();
    assert!(sum.least >= -73 && WEIGHT.least - sum.most >= -120, "{sum:?}");
    WEIGHT.times(floats(-20, 20)).canon();
    // scores with a bias of the file, and the two best of a group
    let score = WEIGHT.plus(FILE).seen().canon();
    score.plus(score).seen();
    // results times weights
    STORED.times(STORED).seen().sum(9).seen().canon().plus(STORED).seen().canon();
    // a gate: quotients below 2^-120 are 0; canon comes next
    STORED.times(floats(-120, 1)).canon();
    // gate and up clamped: up + 1 is a multiple of 2^-73
    let up = STORED.plus(floats(0, 1)).seen();
    STORED.times(floats(0, 1)).seen();
    STORED.times(floats(-120, 1)).faded();
    up.times(STORED).canon();
}

#[test]
fn layer_norms_and_gelu_are_normal_where_it_counts() {
    // the mean of up to 2^17: a sum that may cancel, times its share
    let share = floats(-17, 1);
    let mean = STORED.sum(17).seen().times(share).seen();
    let d = STORED.plus(mean).seen().canon();
    let square = d.times(d).seen();
    let variance = floats(square.least - 17, square.most + 17).seen();
    let s = floats(-(variance.most + 1) / 2 - 1, -variance.least / 2 + 1);
    let y = d.times(s).seen().times(FILE).canon();
    // the bias is flushed when it is read
    y.plus(FILE).canon();
    // t is above 2^-3, the exponential 0 or above 2^-126
    let half = floats(-3, 1).times(floats(-126, 1)).times(floats(-1, 0));
    half.faded();
    STORED.times(half).canon();
}

#[test]
fn attention_is_normal_where_it_counts() {
    let scale = floats(-4, 1);
    for k in [STORED, F16] {
        STORED.times(k).seen().sum(8).seen().times(scale).canon();
    }
    let level = Range { least: -2, most: 8, grain: -25 };
    let coded = F16.times(INTEGER.times(level).seen().sum(1).seen()).seen().sum(3).seen();
    coded.times(SCALE.times(scale).seen()).canon();
    // values as they are stored, and those of codes, which are rotated back
    for v in [STORED, F16, F16.times(level)] {
        let o = WEIGHT.times(v.seen()).seen().sum(6).seen();
        let joined = o.times(WEIGHT).canon().sum(1).seen();
        for o in [o, joined] {
            let inverse = floats(-24, 1);
            let out = o.times(inverse).canon();
            out.sum(8).seen().times(scale).canon();
        }
    }
    // states rotated back as they are: only of codes
    let o = WEIGHT.times(F16.times(level)).seen().sum(6).seen();
    o.sum(8).seen().times(scale).canon();
}

#[test]
fn caps_of_scores_and_logits_are_normal_where_it_counts() {
    // caps lie between 1e-6 and 1e6; what tanh gives of less than 2^-12 is its argument
    let cap = floats(-20, 20);
    let x = STORED.times(cap).seen();
    x.times(cap).canon();
    // the polynomial from 2^-12 on: its square, the terms of its inner sums, and its last product
    let z = floats(-12, 0).times(floats(-12, 0)).seen();
    let term = floats(-8, 0).times(z).seen();
    let p = term.plus(floats(-8, 0)).seen();
    p.times(z).seen().times(floats(-12, 0)).seen();
    // of the other branch the exponential below 0.29, and a quotient no less than 0.55
    floats(-2, 0).plus(floats(0, 1)).seen();
    floats(-1, 0).times(cap).seen().canon();
}

#[test]
fn cache_rows_are_normal_where_it_counts() {
    let rotated = STORED.sum(8).seen().times(floats(-4, 0)).seen();
    // tq3_1: elements in units of the largest, canonical; their squares; levels times them; and of gamma
    let u = floats(-50, 1);
    u.times(u).seen().sum(5).seen();
    let n = Range { least: 0, most: 7, grain: 0 }.times(u).seen().sum(5).seen();
    let s = floats(n.grain - 20, n.most);
    n.times(s).canon();
    rotated.times(floats(-16, 25)).seen().plus(INTEGER).seen();
    // tq3_0: the level beside an element
    floats(rotated.least - 1, 70).times(floats(-2, 1)).seen();
}

#[test]
fn channels_of_a_c8_cache_are_normal_where_it_counts() {
    // as the plan is checked: scales from 2^-40 to 2^40, offsets of 2^15 at most, flushed
    let (scale, offset) = (floats(-40, 41), floats(-50, 16));
    // a quotient of stored values is looked at, its sum with an offset only rounded to an integer
    floats(STORED.least - scale.most, STORED.most - scale.least).seen().plus(offset).seen();
    STORED.times(scale).seen().canon();
    STORED.plus(offset).seen().times(scale).seen().canon();
}

#[test]
fn a_gated_delta_net_is_normal_where_it_counts() {
    let share = floats(-50, 1);
    // the convolution; its result meets canon before silu
    FILE.times(STORED).seen().sum(2).seen().canon();
    // softplus: s of 0 or 2^-50 at least, its square, the series by Horner, and what A is multiplied with
    let s = floats(-50, 0);
    let z = s.times(s).seen();
    floats(-4, 0).times(z).seen();
    // no term of the series is negative, so that nothing cancels
    let p = floats(-4, 1);
    s.times(p).seen().plus(STORED).seen();
    FILE.times(STORED).seen().canon();
    // the state fades; what it gives for a key, less than which the value is more; the difference along the key
    STORED.times(share).seen().canon();
    let given = STORED.times(STORED).seen().sum(7).seen();
    STORED.plus(given).seen().canon();
    STORED.times(share).seen().canon();
    STORED.plus(STORED.times(STORED).seen()).seen().canon();
    // what the query gives is multiplied with a scale and meets canon
    given.faded();
}

#[test]
fn a_short_convolution_is_normal_where_it_counts() {
    STORED.times(STORED).seen().canon();
    // a sum of three products with what is stored; it meets canon before the gate, and the result again
    FILE.times(STORED).seen().sum(2).seen().canon();
    STORED.times(STORED).seen().canon();
}

#[test]
fn a_state_space_layer_is_normal_where_it_counts() {
    // the convolution's bias is flushed when it is read, and its sum with those of products meets canon before silu
    FILE.times(STORED).seen().sum(2).seen().plus(FILE).seen().canon();
    // softplus of a sum is as that of a delta net; its bounds are 0 or 2^-50 at least; what e is raised to
    STORED.plus(FILE).seen().canon();
    STORED.times(FILE).seen().canon();
    // a step of a channel; the state fades as the token is added along B
    STORED.times(STORED).seen().canon();
    let product = STORED.times(STORED).seen();
    product.plus(product).seen().canon();
    // what C gives of up to 2^10 elements, and a share of the channel; canon comes next
    product.sum(10).seen().plus(FILE.times(STORED).seen()).seen().canon();
    // weights of a norm in groups come behind its canon
    STORED.times(FILE).seen().canon();
}

#[test]
fn alternating_updates_are_normal_where_it_counts() {
    // mean squares as those of a norm; what is divided by is no less than the root of 1e-5, and quotients below 2^-120 are 0
    let square = STORED.times(STORED).seen();
    let mean = floats(square.least - 17, square.most + 17).seen();
    let (wanted, found) = (floats(mean.least / 2 - 1, mean.most / 2 + 1).seen(), floats(-9, mean.most / 2 + 1).seen());
    let most = wanted.most - found.least;
    assert!(most <= 127, "{wanted:?} / {found:?}");
    STORED.times(floats(-120, most)).canon();
    // a stream, and four products
    STORED.plus(square.sum(2).seen()).seen().canon();
    // what a layer changed, its share, which meets canon first, and a scale of the file
    let news = STORED.plus(STORED).seen().canon();
    let share = STORED.plus(floats(0, 1)).seen().canon();
    STORED.plus(news.times(share).seen()).seen().canon();
    STORED.times(FILE).canon();
}

#[test]
fn gates_above_a_bound_are_normal_where_it_counts() {
    // mean and variance as those of a layer norm
    let share = floats(-17, 1);
    let mean = STORED.sum(17).seen().times(share).seen();
    let d = STORED.plus(mean).seen().canon();
    let square = d.times(d).seen();
    let variance = floats(square.least - 17, square.most + 17).seen();
    let deviation = floats(variance.least / 2 - 1, variance.most / 2 + 1);
    let bound = mean.plus(deviation.times(floats(-20, 21)).seen()).seen();
    STORED.plus(bound).seen().canon();
}

/// Four blocks with f32 scales as small as values may be: what is left when they cancel, times an activation's scale, is
/// subnormal, and it is added to more.
#[test]
#[should_panic(expected = "may be subnormal")]
fn blocks_with_scales_that_are_too_small_are_found() {
    let t = FILE.times(INTEGER).seen().sum(2).seen();
    SCALE.times(t).seen().sum(14).seen();
}

/// The join of chunks whose maxima rise, as it was without canon: its products leave the normal numbers.
#[test]
#[should_panic(expected = "may be subnormal")]
fn a_join_without_canon_is_found() {
    let o = WEIGHT.times(STORED).seen().sum(6).seen();
    o.times(WEIGHT).seen();
}

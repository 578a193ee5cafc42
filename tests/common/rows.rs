//! Rows of values that encoders find hard.

use isobit::internals::blocks::BlockType;

/// The types with an encoder that loses something.
pub fn quantised() -> impl Iterator<Item = BlockType> {
    BlockType::ALL.into_iter().filter(|t| !t.is_float())
}

/// Blocks of 256: zeros, both signs of the peak, ties of rounding, and every scale a block may have.
pub fn awkward() -> Vec<f32> {
    let mut state = 12345u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let mut x = vec![0.0; 256];
    x.extend([-0.0; 256]);
    for exponent in
        [-149, -140, -127, -126, -120, -110, -101, -100, -99, -60, -24, -14, 0, 1, 15, 60, 99, 100, 101, 120]
    {
        let scale = 2f64.powi(exponent);
        x.extend((0..256).map(|_| (f64::from(random()) * scale) as f32));
    }
    // codes that lie half-way, the peak in both signs, once the negative one first
    for sign in [1.0f32, -1.0] {
        x.extend((0..256).map(|i| match i % 32 {
            3 => sign * 127.0,
            9 => sign * -127.0,
            j => (j as f32 - 16.0) + 0.5,
        }));
    }
    // a single large value, and a sub-block without a range
    x.extend((0..256).map(|i| if i == 200 { -3.0e4 } else { 1e-3 }));
    x.extend((0..256).map(|i| if i < 32 { 0.25 } else { random() }));
    x.extend((0..256).map(|i| if i % 64 < 32 { 0.0 } else { random() }));
    for _ in 0..200 {
        x.extend((0..256).map(|_| random() * random() * random()));
    }
    x
}

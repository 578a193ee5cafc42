// One rotated pair (docs/exactness.md section 5).
#import exact

// The places of pair i of a head's n_rot elements.
fn pair_places(i: u32, half: u32, half_split: u32) -> vec2<u32> {
    if half_split == 1u {
        return vec2<u32>(i, i + half);
    }
    return vec2<u32>(2u * i, 2u * i + 1u);
}

// (a, b) turned by the angle whose cosine and sine are c and s.
fn turn(a: f32, b: f32, c: f32, s: f32) -> vec2<f32> {
    return vec2<f32>(canon(B(B(a * c) - B(b * s))), canon(B(B(a * s) + B(b * c))));
}

// The types of scaled.wgsl in the frame of embed: the value of one element (docs/exactness.md section 3).
#import vec4_exact
#import dots
#import scaled
#import scaled_lane

fn width() -> u32 {
    return p.dim;
}

fn element(row: u32, e: u32) -> f32 {
    let g = e >> 7u;
    let block = row + words_before(g) * 32u;
    let half = half_of(g);
    let i = e & 127u;
    let c = unpack(block, half, pair_of(i >> 2u));
    let codes = select(c.low.x, c.high.x, ((i >> 2u) & APART) != 0u);
    let code = bitcast<i32>(codes << (24u - 8u * (i & 3u))) >> 24u;
    var d = part_scale(block, half, i * PARTS / 128u).x;
    let run = i * RUNS / 128u;
    if SCALED {
        d = B(d * f32(scale_of(scales(block, half), run)));
    }
    let value = B(d * f32(code));
    if MINIMA {
        return B(value - B(minima_scale(block, half).x * f32(minimum_of(block, half, run))));
    }
    return value;
}

// Parts without integer scales.
#import scales
#import no_minima

const SCALED = false;
const DOT_ABOVE = 0;

fn scales(block: u32, half: u32) -> Scales {
    return Scales(vec4<u32>(), vec4<u32>());
}

fn sum_start(s: Scales) -> vec4<i32> {
    return vec4<i32>();
}

fn scaled(s: Scales, run: u32, dots_above: vec4<i32>) -> vec4<i32> {
    return dots_above;
}

fn scale_of(s: Scales, run: u32) -> i32 {
    return 1;
}

// silu(gate) · up.
#import exact

fn silu_times(g: f32, u: f32) -> f32 {
    return canon(B(B(g * sigmoid(g)) * u));
}

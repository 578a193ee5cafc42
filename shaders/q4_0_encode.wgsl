// F32 to Q4_0: two blocks of 32 (9 words) and a flag an invocation.
#import exact
#import encode

var<private> halves: array<u32, 18>;

// A code by truncation; a block of zeros has id 0 and so codes 8.
fn code(v: f32, id: f32) -> u32 {
    return u32(clamp(i32(trunc(B(B(v * id) + 8.5))), 0, 15));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let unit = wid.x * 64u + lid.x;
    if unit >= p.n_tokens {
        return;
    }
    var flag = 0u;
    for (var b = 0u; b < 2u; b++) {
        let first = unit * 64u + b * 32u;
        let top = peak(first, 32u);
        // the scale of zeros is -0, as 0 / -8 has it
        var scale = 0x8000u;
        var id = 0.0;
        if tame(top.bits) {
            let d = B(top.value * -0.125);
            scale = f32_to_f16(d);
            id = fdiv(1.0, d);
        } else if top.bits != 0u {
            flag = 1u;
        }
        halves[b * 9u] = scale;
        for (var i = 0u; i < 8u; i++) {
            let at = first + 2u * i;
            let low = code(x[at], id) | (code(x[at + 16u], id) << 4u);
            let high = code(x[at + 1u], id) | (code(x[at + 17u], id) << 4u);
            halves[b * 9u + 1u + i] = low | (high << 8u);
        }
    }
    for (var w = 0u; w < 9u; w++) {
        blocks[unit * 10u + w] = halves[2u * w] | (halves[2u * w + 1u] << 16u);
    }
    blocks[unit * 10u + 9u] = flag;
}

// F32 to Q8_0: two blocks of 32 (17 words) and a flag an invocation.
#import exact
#import encode

var<private> halves: array<u32, 34>;

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
        var d = 0.0;
        var id = 0.0;
        if tame(top.bits) {
            d = fdiv(abs(top.value), 127.0);
            id = fdiv(1.0, d);
        } else if top.bits != 0u {
            flag = 1u;
        }
        halves[b * 17u] = f32_to_f16(d);
        for (var i = 0u; i < 16u; i++) {
            let low = bitcast<u32>(round_away(B(x[first + 2u * i] * id))) & 255u;
            let high = bitcast<u32>(round_away(B(x[first + 2u * i + 1u] * id))) & 255u;
            halves[b * 17u + 1u + i] = low | (high << 8u);
        }
    }
    for (var w = 0u; w < 17u; w++) {
        blocks[unit * 18u + w] = halves[2u * w] | (halves[2u * w + 1u] << 16u);
    }
    blocks[unit * 18u + 17u] = flag;
}

// F32 to Q8K128: a block of 128 (37 words) and a flag an invocation.
#import exact
#import encode
#import act_layout

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let unit = wid.x * 64u + lid.x;
    if unit >= p.n_tokens {
        return;
    }
    let first = unit * 128u;
    let out = unit * (ACT_BLOCK_WORDS + 1u);
    let top = peak(first, 128u);
    var flag = 0u;
    // the scale of zeros is 1
    var d = 1.0;
    var inv = 0.0;
    if tame(top.bits) {
        d = fdiv(abs(top.value), 127.0);
        inv = fdiv(1.0, d);
    } else if top.bits != 0u {
        flag = 1u;
    }
    blocks[out] = bitcast<u32>(d);
    for (var pair = 0u; pair < 4u; pair++) {
        var sums = 0u;
        for (var half = 0u; half < 2u; half++) {
            var sum = 0;
            for (var w = 0u; w < 4u; w++) {
                let word = pair * 8u + half * 4u + w;
                var codes = 0u;
                for (var i = 0u; i < 4u; i++) {
                    let c = clamp(round_away(B(x[first + word * 4u + i] * inv)), -127, 127);
                    sum += c;
                    codes = codes | ((bitcast<u32>(c) & 255u) << (8u * i));
                }
                blocks[out + 1u + word] = codes;
            }
            sums = sums | ((bitcast<u32>(sum) & 0xffffu) << (16u * half));
        }
        blocks[out + ACT_SUMS + pair] = sums;
    }
    blocks[out + ACT_BLOCK_WORDS] = flag;
}

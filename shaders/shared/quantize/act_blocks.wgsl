// The kernel of act_quantize; the importing shader gives `quantize`.
#import act_digits

struct Params {
    n_tokens: u32,
    k: u32,
    digits: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, k)
@group(0) @binding(2) var<storage, read_write> blocks: array<u32>; // (tokens, groups, digits, 37)

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let groups = (p.k + 127u) / 128u;
    let first = wid.x * 128u + lid.x * 4u;
    var v = vec4<f32>(0.0, 0.0, 0.0, 0.0);
    for (var i = 0u; i < 4u; i++) {
        if first + i < p.k {
            v[i] = x[wid.y * p.k + first + i];
        }
    }
    quantize(0u, lid.x, v, (wid.y * groups + wid.x) * act_digits * ACT_BLOCK_WORDS, true);
}

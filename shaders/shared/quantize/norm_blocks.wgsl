// The kernel of norm_quantize; the importing shader gives `quantize`.
#import norm

struct Params {
    n_tokens: u32,
    dim: u32,
    inv_n: f32,
    eps: f32,
    digits: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, dim)
@group(0) @binding(2) var<storage, read> w: array<f32>;           // (dim)
@group(0) @binding(3) var<storage, read_write> blocks: array<u32>; // (tokens, groups, digits, 37)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.y * p.dim;
    let s = norm_scale(row, lid.x);
    let groups = (p.dim + 127u) / 128u;
    let slot = lid.x / 32u;
    let lane = lid.x % 32u;
    for (var done = 0u; done < groups; done += 8u) {
        let first = (done + slot) * 128u + lane * 4u;
        var v = vec4<f32>(0.0, 0.0, 0.0, 0.0);
        for (var i = 0u; i < 4u; i++) {
            if first + i < p.dim {
                v[i] = normed(x[row + first + i], s, w[first + i]);
            }
        }
        quantize(slot, lane, v, (wid.y * groups + done + slot) * p.digits * ACT_BLOCK_WORDS, done + slot < groups);
    }
}

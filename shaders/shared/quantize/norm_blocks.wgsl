// The kernel of norm_quantize; the importing shader gives `quantize`.
#import norm
#import act_digits

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

// Four elements of the row at `row` from `first` on, and of the weights; past the end the last one.
fn load_four(row: u32, first: u32) -> array<vec4<f32>, 2> {
    var four: array<vec4<f32>, 2>;
    for (var i = 0u; i < 4u; i++) {
        let e = min(first + i, p.dim - 1u);
        four[0][i] = x[row + e];
        four[1][i] = w[e];
    }
    return four;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.y * p.dim;
    let groups = (p.dim + 127u) / 128u;
    let slot = lid.x / 32u;
    let lane = lid.x % 32u;
    // asked for a turn before they are needed: the first while the norm is made, the others while groups are quantised
    var next = load_four(row, slot * 128u + lane * 4u);
    let s = norm_scale(row, lid.x);
    for (var done = 0u; done < groups; done += 8u) {
        let first = (done + slot) * 128u + lane * 4u;
        let four = next;
        next = load_four(row, first + 1024u);
        var v = vec4<f32>(0.0, 0.0, 0.0, 0.0);
        for (var i = 0u; i < 4u; i++) {
            v[i] = select(0.0, normed(four[0][i], s, four[1][i]), first + i < p.dim);
        }
        quantize(slot, lane, v, (wid.y * groups + done + slot) * act_digits * ACT_BLOCK_WORDS, done + slot < groups);
    }
}

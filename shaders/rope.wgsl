// Rotary position embedding in place, one thread a pair.
#import rope_pair

struct Params {
    n_tokens: u32,
    heads: u32,
    head_dim: u32,
    n_rot: u32,
    half_split: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> table: array<f32>;       // (tokens, n_rot/2, [cos, sin])
@group(0) @binding(2) var<storage, read_write> x: array<f32>;     // (tokens, heads, head_dim)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let half = p.n_rot / 2u;
    let at = wid.x * 64u + lid.x;
    if at >= p.heads * half {
        return;
    }
    let i = at % half;
    let head = (wid.y * p.heads + at / half) * p.head_dim;
    let at_pair = head + pair_places(i, half, p.half_split);
    let c = table[(wid.y * half + i) * 2u];
    let s = table[(wid.y * half + i) * 2u + 1u];
    let turned = turn(x[at_pair.x], x[at_pair.y], c, s);
    x[at_pair.x] = turned.x;
    x[at_pair.y] = turned.y;
}

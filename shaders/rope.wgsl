// Rotary position embedding in place, one thread a pair.
#import exact

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
    var ia = head + 2u * i;
    var ib = ia + 1u;
    if p.half_split == 1u {
        ia = head + i;
        ib = ia + half;
    }
    let c = table[(wid.y * half + i) * 2u];
    let s = table[(wid.y * half + i) * 2u + 1u];
    let a = x[ia];
    let b = x[ib];
    x[ia] = canon(B(B(a * c) - B(b * s)));
    x[ib] = canon(B(B(a * s) + B(b * c)));
}

// The streams of a token after a layer: each moves by its share of what the layer changed, and a becomes the layers' own times
// a scale.
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> c: array<f32>;           // (tokens, 4)
@group(0) @binding(2) var<storage, read> scale: array<f32>;       // (dim)
@group(0) @binding(3) var<storage, read_write> a: array<f32>;     // (tokens, dim)
@group(0) @binding(4) var<storage, read_write> x: array<f32>;     // (tokens, dim)
@group(0) @binding(5) var<storage, read_write> others: array<f32>; // (tokens, 3, dim)

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let e = wid.x * 256u + lid.x;
    if e < p.dim {
        let at = wid.y * p.dim + e;
        let news = canon(B(a[at] - x[at]));
        let own = corrected(x[at], wid.y * 4u, news);
        x[at] = own;
        a[at] = canon(B(own * scale[e]));
        for (var i = 0u; i < 3u; i++) {
            let other = (wid.y * 3u + i) * p.dim + e;
            others[other] = corrected(others[other], wid.y * 4u + 1u + i, news);
        }
    }
}

// An element of a stream whose coefficient is at `coefficient`.
fn corrected(own: f32, coefficient: u32, news: f32) -> f32 {
    return canon(B(own + B(canon(B(c[coefficient] + 1.0)) * news)));
}

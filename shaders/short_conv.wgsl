// A causal convolution over three products of two parts, times a third: a lane a channel, which walks the tokens of a strand
// (twin ops::strands).
#import exact

struct Params {
    n_tokens: u32,
    strands: u32,
    dim: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, 3, dim)
@group(0) @binding(2) var<storage, read> w: array<f32>;           // (dim, 3)
@group(0) @binding(3) var<storage, read> strands: array<u32>;     // (strands, 4), tokens
@group(0) @binding(4) var<storage, read_write> kept: array<f32>;  // (slots, 2, dim)
@group(0) @binding(5) var<storage, read_write> y: array<f32>;     // (tokens, dim)

const FRESH = 0xffffffffu;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let c = wid.x * 64u + lid.x;
    if c >= p.dim {
        return;
    }
    let first = strands[4u * wid.y];
    let count = strands[4u * wid.y + 1u];
    let source = strands[4u * wid.y + 2u];
    let written = strands[4u * wid.y + 3u] * 2u * p.dim + c;
    let fresh = source == FRESH;
    let loaded = select(source * 2u * p.dim + c, written, fresh);
    // what of the two tokens before is nothing
    let none = vec2<bool>(fresh);
    let before = vec2<f32>(kept[loaded], kept[loaded + p.dim]);
    var seen = select(before, vec2<f32>(0.0), none);
    for (var i = 0u; i < count; i++) {
        let t = strands[first + i];
        let at = 3u * t * p.dim + c;
        let own = canon(B(x[at] * x[at + 2u * p.dim]));
        var acc = B(B(0.0) + B(w[3u * c] * seen.x));
        acc = B(acc + B(w[3u * c + 1u] * seen.y));
        acc = B(acc + B(w[3u * c + 2u] * own));
        y[t * p.dim + c] = canon(B(x[at + p.dim] * canon(acc)));
        seen = vec2<f32>(seen.y, own);
    }
    kept[written] = seen.x;
    kept[written + p.dim] = seen.y;
}

// silu of a causal convolution over four tokens: a lane a channel, which walks the tokens of a strand (twin ops::strands).
#import exact

struct Params {
    n_tokens: u32,
    strands: u32,
    front: u32,
    channels: u32,
    biased: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> u: array<f32>;           // (tokens, channels)
@group(0) @binding(2) var<storage, read> w: array<f32>;           // (channels, 4), and (channels) where it is biased
@group(0) @binding(3) var<storage, read> strands: array<u32>;     // (strands, 4), tokens
@group(0) @binding(4) var<storage, read_write> kept: array<f32>;  // (slots, 3, channels)
@group(0) @binding(5) var<storage, read_write> qk: array<f32>;    // (tokens, front)
@group(0) @binding(6) var<storage, read_write> v: array<f32>;     // (tokens, channels - front)

const FRESH = 0xffffffffu;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let c = wid.x * 64u + lid.x;
    if c >= p.channels {
        return;
    }
    let first = strands[4u * wid.y];
    let count = strands[4u * wid.y + 1u];
    let source = strands[4u * wid.y + 2u];
    let written = strands[4u * wid.y + 3u] * 3u * p.channels + c;
    let fresh = source == FRESH;
    let loaded = select(source * 3u * p.channels + c, written, fresh);
    // what of the three tokens before is nothing
    let none = vec3<bool>(fresh);
    let before = vec3<f32>(kept[loaded], kept[loaded + p.channels], kept[loaded + 2u * p.channels]);
    var seen = select(before, vec3<f32>(0.0), none);
    for (var i = 0u; i < count; i++) {
        let t = strands[first + i];
        let own = u[t * p.channels + c];
        var acc = B(B(0.0) + B(w[4u * c] * seen.x));
        acc = B(acc + B(w[4u * c + 1u] * seen.y));
        acc = B(acc + B(w[4u * c + 2u] * seen.z));
        acc = B(acc + B(w[4u * c + 3u] * own));
        if p.biased == 1u {
            acc = B(acc + w[4u * p.channels + c]);
        }
        let x = canon(acc);
        let y = canon(B(x * sigmoid(x)));
        if c < p.front {
            qk[t * p.front + c] = y;
        } else {
            v[t * (p.channels - p.front) + c - p.front] = y;
        }
        seen = vec3<f32>(seen.y, seen.z, own);
    }
    kept[written] = seen.x;
    kept[written + p.channels] = seen.y;
    kept[written + 2u * p.channels] = seen.z;
}

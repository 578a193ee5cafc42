// The gated delta rule: a lane owns a column of a head's matrix and walks the tokens of a strand (twin ops::strands). No lane
// reads what another writes.
#import exact
#import vec4_exact

struct Params {
    n_tokens: u32,
    strands: u32,
    heads: u32,
    key_heads: u32,
    size: u32,
    tiled: u32,
    scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qk: array<vec4<f32>>;    // (tokens, 2, key_heads, size)
@group(0) @binding(2) var<storage, read> v: array<f32>;           // (tokens, heads, size)
@group(0) @binding(3) var<storage, read> gates: array<f32>;       // (tokens, 2, heads)
@group(0) @binding(4) var<storage, read> strands: array<u32>;     // (strands, 4), tokens
@group(0) @binding(5) var<storage, read_write> memory: array<f32>; // (slots, heads, size, size)
@group(0) @binding(6) var<storage, read_write> o: array<f32>;     // (tokens, heads, size)

const FRESH = 0xffffffffu;

// Four rows of a column.
fn rows(at: u32) -> vec4<f32> {
    return vec4<f32>(memory[at], memory[at + p.size], memory[at + 2u * p.size], memory[at + 3u * p.size]);
}

fn put_rows(at: u32, m: vec4<f32>) {
    memory[at] = m.x;
    memory[at + p.size] = m.y;
    memory[at + 2u * p.size] = m.z;
    memory[at + 3u * p.size] = m.w;
}

fn canon4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(canon(x.x), canon(x.y), canon(x.z), canon(x.w));
}

// The four partial sums as one.
fn join(parts: vec4<f32>) -> f32 {
    return B(B(parts.x + parts.z) + B(parts.y + parts.w));
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let blocks = p.size / 32u;
    let head = wid.x / blocks;
    let j = wid.x % blocks * 32u + lid.x;
    let key_head = select(head / (p.heads / p.key_heads), head % p.key_heads, p.tiled == 1u);
    let first = strands[4u * wid.y];
    let count = strands[4u * wid.y + 1u];
    let source = strands[4u * wid.y + 2u];
    let column = head * p.size * p.size + j;
    let whole = p.heads * p.size * p.size;
    let written = strands[4u * wid.y + 3u] * whole + column;
    for (var n = 0u; n < count; n++) {
        let t = strands[first + n];
        let fresh = n == 0u && source == FRESH;
        let loaded = select(written, source * whole + column, n == 0u && source != FRESH);
        let query = (t * 2u * p.key_heads + key_head) * p.size / 4u;
        let key = query + p.key_heads * p.size / 4u;
        let gate = t * 2u * p.heads + head;
        let gamma = gates[gate + p.heads];
        var parts = B4(vec4<f32>(0.0));
        for (var i = 0u; i < p.size; i += 4u) {
            let before = select(rows(loaded + i * p.size), vec4<f32>(0.0), vec4<bool>(fresh));
            let m = canon4(B4(before * gamma));
            put_rows(written + i * p.size, m);
            parts = B4(parts + B4(m * qk[key + i / 4u]));
        }
        let own = (t * p.heads + head) * p.size + j;
        let d = canon(B(canon(B(v[own] - join(parts))) * gates[gate]));
        parts = B4(vec4<f32>(0.0));
        for (var i = 0u; i < p.size; i += 4u) {
            let m = canon4(B4(rows(written + i * p.size) + B4(qk[key + i / 4u] * d)));
            put_rows(written + i * p.size, m);
            parts = B4(parts + B4(m * qk[query + i / 4u]));
        }
        o[own] = canon(B(join(parts) * p.scale));
    }
}

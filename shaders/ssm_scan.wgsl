// The recurrence of a state space layer: a lane keeps 16 elements of a channel's state and walks the tokens of a strand (twin
// ops::strands); lanes of one channel lie 32 apart, and the first adds up what they give. What the state is between tokens
// stays in registers. No lane reads what another writes but those sums.
#import exact
#import vec4_exact

struct Params {
    n_tokens: u32,
    strands: u32,
    heads: u32,
    groups: u32,
    head_dim: u32,
    state: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;           // (tokens, heads, head_dim)
@group(0) @binding(2) var<storage, read> bc: array<vec4<f32>>;    // (tokens, 2, groups, state)
@group(0) @binding(3) var<storage, read> gates: array<f32>;       // (tokens, 2, heads)
@group(0) @binding(4) var<storage, read> d: array<f32>;           // (heads)
@group(0) @binding(5) var<storage, read> strands: array<u32>;     // (strands, 4), tokens
@group(0) @binding(6) var<storage, read_write> memory: array<f32>; // (slots, heads, state, head_dim)
@group(0) @binding(7) var<storage, read_write> y: array<f32>;     // (tokens, heads, head_dim)

const FRESH = 0xffffffffu;
const COLUMNS = 32u;
// of a channel in a workgroup, each of 16 elements
const SEGMENTS = 8u;

// by turns, so that one barrier a token is enough
var<workgroup> sums: array<f32, 512>;

// Four elements of a column.
fn elements(at: u32) -> vec4<f32> {
    return vec4<f32>(memory[at], memory[at + p.head_dim], memory[at + 2u * p.head_dim], memory[at + 3u * p.head_dim]);
}

fn put_elements(at: u32, m: vec4<f32>) {
    memory[at] = m.x;
    memory[at + p.head_dim] = m.y;
    memory[at + 2u * p.head_dim] = m.z;
    memory[at + 3u * p.head_dim] = m.w;
}

fn canon4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(canon(x.x), canon(x.y), canon(x.z), canon(x.w));
}

// Four elements one token on.
fn next(m: vec4<f32>, gamma: f32, b: vec4<f32>, step: f32) -> vec4<f32> {
    return canon4(B4(B4(m * gamma) + B4(b * step)));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let inner = p.heads * p.head_dim;
    let column = wid.x * COLUMNS + lid.x % COLUMNS;
    let inside = column < inner;
    let segment = lid.x / COLUMNS;
    let head = min(column, inner - 1u) / p.head_dim;
    let group = head / (p.heads / p.groups);
    let count = strands[4u * wid.y + 1u];
    let first = strands[4u * wid.y];
    let source = strands[4u * wid.y + 2u];
    let none = vec4<bool>(source == FRESH);
    let whole = inner * p.state;
    let own = head * p.state * p.head_dim + min(column, inner - 1u) % p.head_dim;
    var turn = 0u;
    // elements of all segments of a round
    for (var round = 0u; round < p.state; round += SEGMENTS * 16u) {
        let element = round + segment * 16u;
        let some = inside && element < p.state;
        let written = strands[4u * wid.y + 3u] * whole + own + element * p.head_dim;
        var m: array<vec4<f32>, 4>;
        if some {
            let loaded = select(source * whole + own + element * p.head_dim, written, source == FRESH);
            m[0] = select(elements(loaded), vec4<f32>(0.0), none);
            m[1] = select(elements(loaded + 4u * p.head_dim), vec4<f32>(0.0), none);
            m[2] = select(elements(loaded + 8u * p.head_dim), vec4<f32>(0.0), none);
            m[3] = select(elements(loaded + 12u * p.head_dim), vec4<f32>(0.0), none);
        }
        let used = min((p.state - round) / 16u, SEGMENTS);
        for (var i = 0u; i < count; i++) {
            let t = strands[first + i];
            let place = t * inner + column;
            if some {
                let gamma = gates[(2u * t + 1u) * p.heads + head];
                let step = canon(B(x[place] * gates[2u * t * p.heads + head]));
                let b = ((2u * t * p.groups + group) * p.state + element) / 4u;
                let c = b + p.groups * p.state / 4u;
                m[0] = next(m[0], gamma, bc[b], step);
                m[1] = next(m[1], gamma, bc[b + 1u], step);
                m[2] = next(m[2], gamma, bc[b + 2u], step);
                m[3] = next(m[3], gamma, bc[b + 3u], step);
                var parts = B4(B4(vec4<f32>(0.0)) + B4(m[0] * bc[c]));
                parts = B4(parts + B4(m[1] * bc[c + 1u]));
                parts = B4(parts + B4(m[2] * bc[c + 2u]));
                parts = B4(parts + B4(m[3] * bc[c + 3u]));
                sums[turn + lid.x] = B(B(parts.x + parts.z) + B(parts.y + parts.w));
            }
            workgroupBarrier();
            if segment == 0u && inside {
                var sum = sums[turn + lid.x];
                if round > 0u {
                    sum = B(y[place] + sum);
                }
                for (var s = 1u; s < used; s++) {
                    sum = B(sum + sums[turn + s * COLUMNS + lid.x]);
                }
                if round + SEGMENTS * 16u >= p.state {
                    sum = canon(B(sum + B(d[head] * x[place])));
                }
                y[place] = sum;
            }
            turn = 256u - turn;
        }
        if some {
            put_elements(written, m[0]);
            put_elements(written + 4u * p.head_dim, m[1]);
            put_elements(written + 8u * p.head_dim, m[2]);
            put_elements(written + 12u * p.head_dim, m[3]);
        }
    }
}

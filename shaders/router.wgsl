// The experts of a token, best first, and their weights.
//
// A lane counts the experts that go before its own: the order is one of integers, so it does not matter who counts what.
#import exact

struct Params {
    n_tokens: u32,
    experts: u32,
    used: u32,
    kind: u32,
    normalise: u32,
    scale: f32,
    groups: u32,
    groups_used: u32,
    biased: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;        // (tokens, experts)
@group(0) @binding(2) var<storage, read> bias: array<f32>;          // (experts)
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;     // (tokens, used)
@group(0) @binding(4) var<storage, read_write> weights: array<f32>; // (tokens, used)

const LANES = 256u;
const MOST = 512u;
const SOFTMAX = 0u;
const SIGMOID = 1u;

// logits, or their sigmoids
var<workgroup> values: array<f32, MOST>;
// what experts are chosen by, and its place in the order
var<workgroup> scores: array<f32, MOST>;
var<workgroup> keys: array<u32, MOST>;
var<workgroup> group_keys: array<u32, LANES>;
// by slot: the expert, and its weight before it is divided
var<workgroup> chosen: array<u32, MOST>;
var<workgroup> parts: array<f32, MOST>;

// finite values in their order, both zeros alike; above them all that is not finite
fn key(x: f32) -> u32 {
    let b = bitcast<u32>(x);
    if (b & 0x7f800000u) == 0x7f800000u {
        return 0xffffffffu;
    }
    if (b & 0x80000000u) == 0u || b == 0x80000000u {
        return b | 0x80000000u;
    }
    return ~b;
}

// Leaves only the experts of some groups: of sigmoids those with the greatest sums of two scores, else those with the best.
fn keep_groups(lane: u32) {
    let size = p.experts / p.groups;
    if lane < p.groups {
        var a = lane * size;
        var b = a + 1u;
        if keys[b] > keys[a] {
            b = a;
            a = b + 1u;
        }
        for (var e = lane * size + 2u; e < (lane + 1u) * size; e++) {
            if keys[e] > keys[a] {
                b = a;
                a = e;
            } else if keys[e] > keys[b] {
                b = e;
            }
        }
        group_keys[lane] = select(keys[a], key(B(scores[a] + scores[b])), p.kind == SIGMOID);
    }
    workgroupBarrier();
    for (var e = lane; e < p.experts; e += LANES) {
        let own = e / size;
        var place = 0u;
        for (var g = 0u; g < p.groups; g++) {
            let before = group_keys[g] > group_keys[own] || (group_keys[g] == group_keys[own] && g < own);
            place += select(0u, 1u, before);
        }
        if place >= p.groups_used {
            keys[e] = 0u;
        }
    }
    workgroupBarrier();
}

fn part(logit: f32, most: f32) -> f32 {
    return canon(fexp(B(logit - most)));
}

// The sum of the parts of all experts; what it is made of takes the place of the scores.
fn sum_of_all(lane: u32, most: f32) -> f32 {
    let lanes = 1u << (32u - countLeadingZeros(p.experts - 1u));
    for (var e = lane; e < lanes; e += LANES) {
        var x = 0.0;
        if e < p.experts {
            x = part(values[e], most);
        }
        scores[e] = x;
    }
    workgroupBarrier();
    for (var s = lanes >> 1u; s > 0u; s = s >> 1u) {
        for (var l = lane; l < s; l += LANES) {
            scores[l] = B(scores[l] + scores[l + s]);
        }
        workgroupBarrier();
    }
    return scores[0];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let lane = lid.x;
    for (var e = lane; e < p.experts; e += LANES) {
        var value = logits[wid.y * p.experts + e];
        if p.kind == SIGMOID {
            value = canon(sigmoid(value));
        }
        var score = value;
        if p.biased == 1u {
            score = canon(B(value + bias[e]));
        }
        values[e] = value;
        scores[e] = score;
        keys[e] = key(score);
    }
    workgroupBarrier();
    if p.groups > 1u {
        keep_groups(lane);
    }
    for (var e = lane; e < p.experts; e += LANES) {
        var place = 0u;
        for (var j = 0u; j < p.experts; j++) {
            place += select(0u, 1u, keys[j] > keys[e] || (keys[j] == keys[e] && j < e));
        }
        if place < p.used {
            chosen[place] = e;
        }
    }
    workgroupBarrier();
    // of softmax the first is the greatest
    let most = values[chosen[0]];
    for (var s = lane; s < p.used; s += LANES) {
        var x = values[chosen[s]];
        if p.kind != SIGMOID {
            x = part(x, most);
        }
        parts[s] = x;
    }
    workgroupBarrier();
    var sum = B(0.0);
    for (var s = 0u; s < p.used; s++) {
        sum = B(sum + parts[s]);
    }
    if p.kind == SIGMOID {
        // 2^-14 at least; a NaN stays one
        sum = bitcast<f32>(max(bitcast<u32>(sum), 0x38800000u));
    }
    if p.kind == SOFTMAX && p.normalise == 0u {
        sum = sum_of_all(lane, most);
    }
    for (var s = lane; s < p.used; s += LANES) {
        var x = parts[s];
        if p.kind != SIGMOID || p.normalise == 1u {
            x = canon(fdiv(x, sum));
        }
        ids[wid.y * p.used + s] = chosen[s];
        weights[wid.y * p.used + s] = canon(B(x * p.scale));
    }
}

// Pairs of token and slot by their experts, those of one expert in their own order: a workgroup an expert, whose lanes look
// through runs of pairs.

struct Params {
    n_tokens: u32,
    experts: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> ids: array<u32>;         // (pairs)
@group(0) @binding(2) var<storage, read_write> order: array<u32>; // (experts + 1), then (pairs)

const LANES = 256u;

// of each lane: pairs of experts before this one, and of this one
var<workgroup> less: array<u32, LANES>;
var<workgroup> own: array<u32, LANES>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let lane = lid.x;
    let expert = wid.x;
    let run = (p.n_tokens + LANES - 1u) / LANES;
    let end = min((lane + 1u) * run, p.n_tokens);
    var before = 0u;
    var here = 0u;
    for (var i = lane * run; i < end; i++) {
        before += select(0u, 1u, ids[i] < expert);
        here += select(0u, 1u, ids[i] == expert);
    }
    less[lane] = before;
    own[lane] = here;
    workgroupBarrier();
    var at = 0u;
    for (var l = 0u; l < LANES; l++) {
        at += less[l] + select(0u, own[l], l < lane);
    }
    if lane == 0u {
        order[expert] = at;
        if expert == p.experts - 1u {
            order[p.experts] = p.n_tokens;
        }
    }
    for (var i = lane * run; i < end; i++) {
        if ids[i] == expert {
            order[p.experts + 1u + at] = i;
            at++;
        }
    }
}

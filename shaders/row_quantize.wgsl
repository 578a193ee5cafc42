// Activations to blocks with one scale for all of a row, one workgroup a row (docs/exactness.md section 2).
#import exact
#import act_layout
#import pack_codes

struct Params {
    n_tokens: u32,
    k: u32,
    limit: u32,
    scale: f32,
    offset: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;            // (tokens, k)
@group(0) @binding(2) var<storage, read_write> blocks: array<u32>; // (tokens, groups, 1, 37)

var<workgroup> lane_max: array<u32, 256>;
var<workgroup> lane_sum: array<i32, 256>;

// The bits of the greatest magnitude of the row that starts at `row`; every lane calls.
fn row_max(row: u32, lane: u32) -> u32 {
    var top = 0u;
    for (var i = lane; i < p.k; i += 256u) {
        top = max(top, bitcast<u32>(x[row + i]) & 0x7fffffffu);
    }
    lane_max[lane] = top;
    workgroupBarrier();
    for (var s = 128u; s > 0u; s = s >> 1u) {
        if lane < s {
            lane_max[lane] = max(lane_max[lane], lane_max[lane + s]);
        }
        workgroupBarrier();
    }
    return lane_max[0];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let row = wid.y * p.k;
    let amax = bitcast<f32>(row_max(row, lid.x));
    let bad = not_finite(amax);
    // of a fixed scale 1 is left: it is in the weights
    let fixed = p.limit == 0u;
    var d = 1.0;
    var divisor = p.scale;
    var low = -128;
    var high = 127;
    if !fixed {
        d = fdiv(amax, f32(p.limit));
        if too_small(d) {
            d = 0.0;
        }
        divisor = d;
        high = bitcast<i32>(p.limit);
        low = -high;
    }
    let d_bits = select(bitcast<u32>(d), POISON, bad);
    let live = !bad && d_bits != 0u;
    let groups = (p.k + 127u) / 128u;
    let slot = lid.x / 32u;
    let lane = lid.x % 32u;
    for (var done = 0u; done < groups; done += 8u) {
        let g = done + slot;
        var codes = vec4<i32>();
        for (var i = 0u; i < 4u; i++) {
            let e = g * 128u + lane * 4u + i;
            if live && e < p.k {
                codes[i] = clamp(nearest(B(fdiv(x[row + e], divisor) + p.offset)), low, high);
            }
        }
        lane_sum[lid.x] = codes.x + codes.y + codes.z + codes.w;
        workgroupBarrier();
        if g < groups {
            let block = (wid.y * groups + g) * ACT_BLOCK_WORDS;
            blocks[block + 1u + lane] = pack_codes(codes);
            if lane == 0u {
                blocks[block] = d_bits;
            }
            if lane < 4u {
                // sixteenths 2·lane and 2·lane + 1: four lanes each
                var even = 0;
                var odd = 0;
                for (var i = 0u; i < 4u; i++) {
                    even += lane_sum[slot * 32u + 8u * lane + i];
                    odd += lane_sum[slot * 32u + 8u * lane + 4u + i];
                }
                blocks[block + ACT_SUMS + lane] = (bitcast<u32>(even) & 0xffffu) | (bitcast<u32>(odd) << 16u);
            }
        }
        // the sums have been read before the next ones are written
        workgroupBarrier();
    }
}

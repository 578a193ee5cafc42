// Activations to Q8K128 blocks (docs/exactness.md section 2): 32 lanes a group of 128, four values a lane, up to eight
// groups at once. The importing shader gives the parameters `p` (with `digits`), `group_max` and the buffer:
//   var<storage, read_write> blocks: array<u32>    // (tokens, groups, digits, 37)
#import exact
#import act_layout
#import pack_codes
#import act_digits

var<workgroup> lane_sum: array<vec2<i32>, 256>;

// Group `slot` of those at once, whose first block is at word `block`. Every lane of the workgroup calls; `live` says
// whether there is such a group.
fn quantize(slot: u32, lane: u32, v: vec4<f32>, block: u32, live: bool) {
    let me = slot * 32u + lane;
    // magnitudes in the order of their bits, infinities and NaN above the numbers
    let m = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    let top = select(16256, 127, act_digits == 1u);
    // its workgroup memory is written again only after the barrier below
    var d = fdiv(bitcast<f32>(group_max(slot, lane, max(max(m.x, m.y), max(m.z, m.w)))), f32(top));
    // the scale of such a group is POISON and its codes are 0
    let bad = not_finite(d);
    let x = bitcast<vec4<f32>>(select(bitcast<vec4<u32>>(v), vec4<u32>(), vec4<bool>(bad)));
    var inv = 0.0;
    if too_small(d) {
        d = 0.0;
    } else if !bad {
        inv = fdiv(1.0, d);
    }
    var low = vec4<i32>(0, 0, 0, 0);
    var high = vec4<i32>(0, 0, 0, 0);
    for (var i = 0u; i < 4u; i++) {
        low[i] = clamp(round_away(B(x[i] * inv)), -top, top);
    }
    if act_digits == 2u {
        high = (low + 64) >> vec4<u32>(7u, 7u, 7u, 7u);
        low = low - 128 * high;
    }
    lane_sum[me] = vec2<i32>(low.x + low.y + low.z + low.w, high.x + high.y + high.z + high.w);
    workgroupBarrier();
    if !live {
        return;
    }
    blocks[block + 1u + lane] = pack_codes(low);
    if act_digits == 2u {
        blocks[block + (ACT_BLOCK_WORDS + 1u) + lane] = pack_codes(high);
    }
    if lane == 0u {
        blocks[block] = bitcast<u32>(d);
        if act_digits == 2u {
            blocks[block + ACT_BLOCK_WORDS] = bitcast<u32>(d);
        }
    }
    if lane < 4u {
        // sixteenths 2·lane and 2·lane + 1: four lanes each
        var even = vec2<i32>(0, 0);
        var odd = vec2<i32>(0, 0);
        for (var i = 0u; i < 4u; i++) {
            even += lane_sum[slot * 32u + 8u * lane + i];
            odd += lane_sum[slot * 32u + 8u * lane + 4u + i];
        }
        blocks[block + ACT_SUMS + lane] = (bitcast<u32>(even.x) & 0xffffu) | (bitcast<u32>(odd.x) << 16u);
        if act_digits == 2u {
            blocks[block + (ACT_BLOCK_WORDS + ACT_SUMS) + lane] = (bitcast<u32>(even.y) & 0xffffu) | (bitcast<u32>(odd.y) << 16u);
        }
    }
}

// The outputs of a unit of heads, as attend leaves them in row, to its groups of Q8K128 blocks.
#import quantize
#import act_digits

fn quantize_unit(thread: u32, unit: u32, token: u32) {
    let per_unit = unit_heads() * p.head_dim / 128u;
    let slot = thread / 32u;
    let lane = thread % 32u;
    let live = slot < per_unit;
    var x = vec4<f32>(0.0, 0.0, 0.0, 0.0);
    for (var i = 0u; i < 4u; i++) {
        if live {
            x[i] = canon(row[thread * 4u + i]);
        }
    }
    let group = token * (p.heads * p.head_dim / 128u) + unit * per_unit + slot;
    quantize(slot, lane, x, group * act_digits * ACT_BLOCK_WORDS, live);
}

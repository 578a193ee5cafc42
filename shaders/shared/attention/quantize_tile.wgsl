// The outputs of a tile of attention to Q8K128 blocks: a token's unit of heads is one group of 128 outputs, or two.
#import quantize
#import act_digits

fn quantize_tile(thread: u32, unit: u32) {
    let per_unit = unit_quads() / 32u;
    let slot = thread >> 5u;
    let lane = thread & 31u;
    for (var t0 = 0u; t0 < tile_tokens(); t0 += tokens_at_once()) {
        stage_outputs(thread, t0);
        for (var first = 0u; first < tokens_at_once() * per_unit; first += 2u) {
            let group = first + slot;
            let token = token0 + t0 + group / per_unit;
            let at = token * (p.heads * p.head_dim / 128u) + unit * per_unit + group % per_unit;
            quantize(slot, lane, canon4(score_quad(group * 32u + lane)), at * act_digits * ACT_BLOCK_WORDS, ends_here(token));
        }
    }
}

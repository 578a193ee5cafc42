// Gate and up rows times one token's activations, SwiGLU, and the 128 results to a Q8K128 block, in one workgroup: a
// lane owns a row and walks all segments (docs/exactness.md section 4). The importing shader gives row_words, group_value
// and prepare as for `matvec`.
#import exact

#import gate_up_params
#import matvec_io
@group(0) @binding(3) var<storage, read_write> blocks: array<u32>; // (tokens, groups of dim, digits, 37)
#import silu
#import quantize
#import act_digits

// 128 gate values, then the up values beside them; later the results
var<workgroup> values: array<f32, 256>;

// Row `row` counted in words, times the activations of a token: segments in order, groups in order.
fn row_dot(row: u32, token: u32) -> f32 {
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    var total = B(0.0);
    for (var first = 0u; first < groups; first += seg) {
        let end = min(first + seg, groups);
        var acc = B(0.0);
        for (var g = first; g < end; g++) {
            let a = (token * groups + g) * act_digits * ACT_BLOCK_WORDS;
            acc = B(acc + B(bitcast<f32>(act[a]) * group_value(row, g, a)));
        }
        total = B(total + acc);
    }
    return canon(total);
}

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let me = lid.y * 32u + lid.x;
    prepare(me, 256u);
    let row_blocks = p.dim / 32u;
    let gate = wid.x * 4u + (lid.y & 3u);
    var dot = 0.0;
    if gate < row_blocks {
        let row_block = gate + (lid.y >> 2u) * row_blocks;
        dot = row_dot(row_block * row_words() * 32u + lid.x, wid.y);
    }
    values[me] = dot;
    workgroupBarrier();
    if me < 128u {
        values[me] = silu_times(values[me], values[me + 128u]);
    }
    workgroupBarrier();
    let at = lid.x * 4u;
    let v = vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]);
    let groups = (p.dim + 127u) / 128u;
    quantize(lid.y, lid.x, v, (wid.y * groups + wid.x) * act_digits * ACT_BLOCK_WORDS, lid.y == 0u);
}

// The kernel of gate_up with four rows a thread, which walks all segments: 128 gate rows and the 128 up rows beside them in a
// workgroup of 64.
const T = 1u;

#import gate_up_params
#import tile
@group(0) @binding(3) var<storage, read_write> blocks: array<u32>; // (tokens, groups of dim, digits, 37)
#import silu
#import quantize
#import act_digits

// 128 gate values, then the up values beside them; later the results
var<workgroup> values: array<f32, 256>;

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = wid.y;
    let row_blocks = p.dim / 32u;
    let gate = wid.x * 4u + (lid.y & 3u);
    var dot = B4(vec4<f32>());
    if gate < row_blocks {
        let row = (gate + (lid.y >> 2u) * row_blocks) * row_words() * 8u + lid.x;
        let groups = (p.k + 127u) / 128u;
        let seg = (groups + 7u) / 8u;
        for (var start = 0u; start < groups; start += seg) {
            acc[0] = B4(vec4<f32>());
            for (var g = start; g < min(start + seg, groups); g++) {
                add_group(row, g);
            }
            dot = B4(dot + acc[0]);
        }
    }
    let mine = lid.y * 32u + lid.x * 4u;
    values[mine] = canon(dot.x);
    values[mine + 1u] = canon(dot.y);
    values[mine + 2u] = canon(dot.z);
    values[mine + 3u] = canon(dot.w);
    workgroupBarrier();
    let me = lid.y * 8u + lid.x;
    values[me] = silu_times(values[me], values[me + 128u]);
    values[me + 64u] = silu_times(values[me + 64u], values[me + 192u]);
    workgroupBarrier();
    let lane = me & 31u;
    let at = lane * 4u;
    let v = vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]);
    let groups_out = (p.dim + 127u) / 128u;
    quantize(me >> 5u, lane, v, (wid.y * groups_out + wid.x) * act_digits * ACT_BLOCK_WORDS, me < 32u);
}

// Linear whose sums are integers over all of k: a lane owns a row, a thread one segment (docs/exactness.md section 4).
// The importing shader gives:
//   fn row_words() -> u32                              words of one packed row
//   fn group_sum(row: u32, g: u32, a: u32) -> i32      row: index of the row's word 0; a: index of the activation block
//   fn row_value(row: u32, sum: i32, da: f32) -> f32   what the sum over k is worth
#import linear_params
#import matvec_io
#import tile_store

var<workgroup> sums: array<i32, 256>; // (segments, lanes)

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = wid.x * row_words() * 32u + lid.x;
    let act_row = wid.y * groups * ACT_BLOCK_WORDS;
    let end = min((lid.y + 1u) * seg, groups);
    var sum = 0;
    for (var g = lid.y * seg; g < end; g++) {
        sum += group_sum(row, g, act_row + g * ACT_BLOCK_WORDS);
    }
    sums[lid.y * 32u + lid.x] = sum;
    workgroupBarrier();
    if lid.y == 0u {
        var total = 0;
        for (var s = 0u; s < 8u; s++) {
            total += sums[s * 32u + lid.x];
        }
        let at = wid.x * 32u + lid.x;
        store_row(at, wid.y * p.y_stride + p.y_offset + at, row_value(row, total, bitcast<f32>(act[act_row])));
    }
}

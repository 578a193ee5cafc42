// Quantized linear: a lane owns a row, a thread one segment of k (docs/exactness.md section 4).
// The importing shader gives ROW_WORDS-dependent addressing and the value of one group:
//   fn row_words() -> u32                              words of one packed row
//   fn group_value(row: u32, g: u32, a: u32) -> f32    row: index of the row's word 0; a: index of the activation block
//   fn prepare(thread: u32, threads: u32)              makes what the type reads of workgroup memory, and waits for it
#import exact
#import linear_params
#import matvec_io
#import segments
#import act_digits

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    prepare(lid.y * 32u + lid.x, 256u);
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = wid.x * row_words() * 32u + lid.x;
    let end = min((lid.y + 1u) * seg, groups);
    var acc = B(0.0);
    for (var g = lid.y * seg; g < end; g++) {
        let a = (wid.y * groups + g) * act_digits * ACT_BLOCK_WORDS;
        acc = B(acc + B(bitcast<f32>(act[a]) * group_value(row, g, a)));
    }
    join_segments(wid.x, lid.x, lid.y, wid.y, acc);
}

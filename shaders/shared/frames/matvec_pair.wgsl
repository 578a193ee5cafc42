// Quantized linear with rows of two types, the second type's after `border` rows of the first: workgroups below the
// border take one branch, those above it the other. Lanes, segments and order are those of `matvec`. The importing
// shader gives, for both types:
//   fn first_words() -> u32, fn second_words() -> u32         words of one packed row
//   fn first_value(row: u32, g: u32, a: u32) -> f32, fn second_value likewise
#import exact

#import pair_params
#import matvec_io
#import segments
#import act_digits

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let end = min((lid.y + 1u) * seg, groups);
    let border = p.border / 32u;
    var acc = B(0.0);
    if wid.x < border {
        let row = wid.x * first_words() * 32u + lid.x;
        for (var g = lid.y * seg; g < end; g++) {
            let a = (wid.y * groups + g) * act_digits * ACT_BLOCK_WORDS;
            acc = B(acc + B(bitcast<f32>(act[a]) * first_value(row, g, a)));
        }
    } else {
        let row = (border * first_words() + (wid.x - border) * second_words()) * 32u + lid.x;
        for (var g = lid.y * seg; g < end; g++) {
            let a = (wid.y * groups + g) * act_digits * ACT_BLOCK_WORDS;
            acc = B(acc + B(bitcast<f32>(act[a]) * second_value(row, g, a)));
        }
    }
    join_segments(wid.x, lid.x, lid.y, wid.y, acc);
}

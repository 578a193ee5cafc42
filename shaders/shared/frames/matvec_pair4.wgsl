// The kernel of matvec_pair with four rows a thread. The importing shader gives, for both types:
//   fn first_words() -> u32, fn second_words() -> u32         words of one packed row
//   fn first_values(row: u32, g: u32), fn second_values       fill value
const T = 1u;

#import pair_params
#import tile
#import act_direct
#import join4

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = wid.y;
    acc[0] = B4(vec4<f32>());
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let end = min((lid.y + 1u) * seg, groups);
    let border = p.border / 32u;
    if wid.x < border {
        let row = wid.x * first_words() * 8u + lid.x;
        for (var g = lid.y * seg; g < end; g++) {
            first_values(row, g);
            add_value(g);
        }
    } else {
        let row = (border * first_words() + (wid.x - border) * second_words()) * 8u + lid.x;
        for (var g = lid.y * seg; g < end; g++) {
            second_values(row, g);
            add_value(g);
        }
    }
    join4(wid.x, lid.x, lid.y, wid.y);
}

// The kernel of matvec_pair with four rows a thread. The importing shader gives, for both types:
//   fn first_words() -> u32, fn second_words() -> u32         words of one packed row
//   fn first_values(row: u32, g: u32), fn second_values       fill value
const T = 1u;

struct Params {
    n_tokens: u32,
    k: u32,
    rows: u32,
    digits: u32,
    y_stride: u32,
    y_offset: u32,
    residual: u32,
    border: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
#import tile
#import tile_store

var<workgroup> sums: array<vec4<f32>, 64>; // (segments, lanes)

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    first = wid.y;
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
    sums[lid.y * 8u + lid.x] = acc[0];
    workgroupBarrier();
    if lid.y == 0u {
        var total = vec4<f32>();
        for (var s = 0u; s < 8u; s++) {
            total = B4(total + sums[s * 8u + lid.x]);
        }
        store(wid.x * 32u + lid.x * 4u, wid.y, total);
    }
}

// Float linear: the same rows, lanes and segments; each product is rounded, element after element.
// The importing shader gives:
//   fn row_words() -> u32
//   fn weight(row: u32, e: u32) -> f32
#import exact
#import linear_params
#import segments

@group(0) @binding(1) var<storage, read> w: array<u32>;           // (row_blocks, row_words, 32)
@group(0) @binding(2) var<storage, read> x: array<f32>;           // (tokens, k)

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u * 128u;
    let row = wid.x * row_words() * 32u + lid.x;
    let end = min((lid.y + 1u) * seg, p.k);
    var acc = B(0.0);
    for (var e = lid.y * seg; e < end; e++) {
        acc = B(acc + B(weight(row, e) * x[wid.y * p.k + e]));
    }
    join_segments(wid.x, lid.x, lid.y, wid.y, acc);
}

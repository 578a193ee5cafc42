// Quantised linear: a lane owns a row, a thread one segment of k (docs/exactness.md section 4).
// The importing shader gives ROW_WORDS-dependent addressing and the value of one group:
//   fn row_words() -> u32                              words of one packed row
//   fn group_value(row: u32, g: u32, a: u32) -> f32    row: index of the row's word 0; a: index of the activation block
#import exact
#import linear_params
#import segments

@group(0) @binding(1) var<storage, read> w: array<u32>;           // (row_blocks, row_words, 32)
@group(0) @binding(2) var<storage, read> act: array<u32>;         // (tokens, groups, digits, 37)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // (tokens, y_stride)

// The value of an integer sum taken with each digit of the activations.
fn digits_value(low: i32, high: i32) -> f32 {
    if p.digits == 1u {
        return i2f(low);
    }
    return B(B(i2f(high) * 128.0) + i2f(low));
}

// Sum of the activation codes of sixteenth i of the block at a.
fn sum16(a: u32, i: u32) -> i32 {
    let pair = bitcast<i32>(act[a + 33u + (i >> 1u)]);
    return select((pair << 16u) >> 16u, pair >> 16u, (i & 1u) == 1u);
}

// Sum of the activation codes of 32-block b of the block at a.
fn sum32(a: u32, b: u32) -> i32 {
    let pair = bitcast<i32>(act[a + 33u + b]);
    return ((pair << 16u) >> 16u) + (pair >> 16u);
}

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = wid.x * row_words() * 32u + lid.x;
    let end = min((lid.y + 1u) * seg, groups);
    var acc = 0.0;
    for (var g = lid.y * seg; g < end; g++) {
        let a = (wid.y * groups + g) * p.digits * 37u;
        acc = B(acc + B(bitcast<f32>(act[a]) * group_value(row, g, a)));
    }
    join_segments(wid.x, lid.x, lid.y, wid.y, acc);
}

// Linear with four rows and T tokens a thread: what every weight type shares (docs/exactness.md section 4).
// The importing shader gives T and the parameters p (with n_tokens, k and digits), the rest of its text the type:
//   fn row_words() -> u32                      words of one packed row
//   fn group_values(row: u32, g: u32)          fills value; row: index in w of the first word of the thread's rows
// (two of them, under other names, where a matrix has rows of two types).
// Four rows side by side are one vec4 of w, so a lane's load is 16 bytes and eight lanes hold the 32 rows.
#import exact

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;     // (row_blocks, row_words, 8)
@group(0) @binding(2) var<storage, read> act: array<u32>;         // (tokens, groups, digits, 37)

// The value t(g) of the group at hand, of four rows, for each token of the thread.
var<private> value: array<vec4<f32>, T>;
var<private> acc: array<vec4<f32>, T>;
// First token of the thread.
var<private> first: u32;

#import vec4_exact

// Index of the activation block of token t of the thread and group g; past the last token, the last.
fn act_at(t: u32, g: u32) -> u32 {
    return (min(first + t, p.n_tokens - 1u) * ((p.k + 127u) / 128u) + g) * p.digits * 37u;
}

// The dot products of four rows' codes with four activation codes.
fn dots(codes: vec4<u32>, a: u32) -> vec4<i32> {
    return vec4<i32>(
        dot4I8Packed(codes.x, a), dot4I8Packed(codes.y, a), dot4I8Packed(codes.z, a), dot4I8Packed(codes.w, a),
    );
}

// v(S) digit by digit, low first: before is what the digits below gave.
fn add_digit(digit: u32, sum: vec4<i32>, before: vec4<f32>) -> vec4<f32> {
    let v = i2f4(sum);
    if digit == 0u {
        return v;
    }
    return B4(B4(v * 128.0) + before);
}

#import act_sums

// Adds the value of group g to the sum of the segment.
fn add_value(g: u32) {
    for (var t = 0u; t < T; t++) {
        acc[t] = B4(acc[t] + B4(bitcast<f32>(act[act_at(t, g)]) * value[t]));
    }
}

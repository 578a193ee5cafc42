// Linear with four rows and T tokens a thread: what every weight type shares (docs/exactness.md section 4).
// The importing shader gives T, the parameters p (with n_tokens, k and digits) and where activations are read:
//   fn act_at(t: u32, g: u32) -> u32           index of the block of token t of the thread and group g
//   fn act_word(i: u32) -> u32                 a word of a block
// The rest of its text is the type:
//   fn row_words() -> u32                      words of one packed row
//   fn group_values(row: u32, g: u32)          fills value; row: index in w of the first word of the thread's rows
//   fn prepare(thread: u32, threads: u32)      where it is a frame of one type: makes what the type reads of workgroup memory,
//                                              and waits for it
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

#import dots

// v(S) digit by digit, low first: v is that of this digit, before what the digits below gave. A sum below 2^24 is a float
// as it is; i2f4 is for those that may be greater.
fn add_digit(digit: u32, v: vec4<f32>, before: vec4<f32>) -> vec4<f32> {
    if digit == 0u {
        return v;
    }
    return B4(B4(v * 128.0) + before);
}

#import codes

#import act_sums
#import act_layout

// Adds the value of group g to the sum of the segment.
fn add_value(g: u32) {
    for (var t = 0u; t < T; t++) {
        acc[t] = B4(acc[t] + B4(bitcast<f32>(act_word(act_at(t, g))) * value[t]));
    }
}

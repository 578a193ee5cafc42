// Linear whose sums are integers over all of k, with four rows and T tokens a thread: what its frames share. The importing
// shader gives T, the parameters p, and the type:
//   fn row_words() -> u32                      words of one packed row
//   fn add_group(row: u32, g: u32)             adds group g to sum; row: index in w of the first word of the thread's rows
//   fn row_values(row: u32, sum: vec4<i32>, da: f32) -> vec4<f32>      what sums over k are worth
#import exact

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;     // (row_blocks, row_words, 8)
@group(0) @binding(2) var<storage, read> act: array<u32>;         // (tokens, groups, digits, 37)

// Sums so far of four rows, for each token of the thread.
var<private> sum: array<vec4<i32>, T>;
// First token of the thread.
var<private> first: u32;

#import vec4_exact
#import dots
#import act_layout
#import act_direct

// The scale of the row of token t of the thread.
fn row_scale(t: u32) -> f32 {
    return bitcast<f32>(act_word(act_at(t, 0u)));
}

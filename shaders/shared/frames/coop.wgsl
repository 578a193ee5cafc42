// Prefill on matrix units: the 128 threads of a workgroup make 64 rows of 32 tokens. Weights, as codes or as codes times their
// integer scales, and activations lie in workgroup memory as integers in f16, 32 elements of a row at a time. The bounds of
// docs/exactness.md section 11 keep every sum below 2^24, so that the units' f32 sums are those integers, whatever order they
// add in. What becomes of the sums, and the order of that, is the tile's (tile.wgsl). Activations of one digit.
//
// The importing shader gives the size S of the matrices and their types (coop8, coop16), and the rest of its text is the type:
//   const PARTS: u32                           sums that a group takes, one after another
//   const STEPS: u32                           32-blocks that go into each
//   fn row_words() -> u32                      words of one packed row
//   fn block_of(part: u32, step: u32) -> u32   which 32-block of the group is a step
//   fn entries(row: u32, g: u32, part: u32, step: u32, i: u32) -> Entries      elements 4 i .. 4 i + 3 of it, for the matrix
//   fn take(row: u32, g: u32, part: u32)       makes value of sum(t)
// where row is the index in w of the first word of the thread's rows.
enable subgroups;
enable f16;
enable wgpu_cooperative_matrix;
#import base
#import linear_params
#import vec4_exact
#import dots
#import act_layout

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;     // (row_blocks, row_words, 8)
@group(0) @binding(2) var<storage, read> act: array<u32>;         // (tokens, groups, 37)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // (tokens, y_stride)

const ROWS = 64u;
const TOKENS = 32u;
// Tokens of a thread.
const T = 4u;
// Places from one row or token to the next: more than there are, so that what matrices take lies in different banks.
const PITCH = 40u;
const SUMS_PITCH = 68u;
// Matrices of a workgroup's tokens, and of the rows of one of at least two subgroups.
const ACROSS = TOKENS / S;
const DOWN = ROWS / S / 2u;

var<workgroup> codes: array<f16, ROWS * PITCH>;
var<workgroup> acts: array<f16, TOKENS * PITCH>;
var<workgroup> sums: array<f32, TOKENS * SUMS_PITCH>;

// The value t(g) of the group at hand, of four rows, for each token of the thread.
var<private> value: array<vec4<f32>, T>;
var<private> acc: array<vec4<f32>, T>;
// The thread's four rows among the sixteen of the workgroup, and the first of its tokens, which are eight apart.
var<private> quad: u32;
var<private> column: u32;
// First token of the workgroup.
var<private> first: u32;

// Four elements each of four rows.
struct Entries {
    x: vec4<i32>,
    y: vec4<i32>,
    z: vec4<i32>,
    w: vec4<i32>,
}

// The block of activations of a token of the workgroup and group g; past the last token, the last.
fn act_of(token: u32, g: u32) -> u32 {
    return (min(first + token, p.n_tokens - 1u) * ((p.k + 127u) / 128u) + g) * ACT_BLOCK_WORDS;
}

// That of the thread's token t.
fn act_at(t: u32, g: u32) -> u32 {
    return act_of(column + 8u * t, g);
}

fn act_word(i: u32) -> u32 {
    return act[i];
}

// The sums of the thread's rows and token t.
fn sum(t: u32) -> vec4<f32> {
    let at = (column + 8u * t) * SUMS_PITCH + 4u * quad;
    return B4(vec4<f32>(sums[at], sums[at + 1u], sums[at + 2u], sums[at + 3u]));
}

fn put_codes(at: u32, v: vec4<i32>) {
    codes[at] = f16(v.x);
    codes[at + 1u] = f16(v.y);
    codes[at + 2u] = f16(v.z);
    codes[at + 3u] = f16(v.w);
}

fn put_acts(at: u32, word: u32) {
    let v = unpack4xI8(word);
    acts[at] = f16(v.x);
    acts[at + 1u] = f16(v.y);
    acts[at + 2u] = f16(v.z);
    acts[at + 3u] = f16(v.w);
}

// A 32-block of 64 rows and 32 tokens to workgroup memory. Everything is asked for before anything is waited for.
fn stage(row: u32, lane: u32, g: u32, part: u32, step: u32) {
    let i = lane & 7u;
    let token = lane >> 3u;
    let word = 1u + 8u * block_of(part, step) + i;
    let a = act_word(act_of(token, g) + word);
    let b = act_word(act_of(token + 16u, g) + word);
    let e = entries(row, g, part, step, column);
    let at = 4u * (quad * PITCH + column);
    put_codes(at, e.x);
    put_codes(at + PITCH, e.y);
    put_codes(at + 2u * PITCH, e.z);
    put_codes(at + 3u * PITCH, e.w);
    put_acts(token * PITCH + 4u * i, a);
    put_acts((token + 16u) * PITCH + 4u * i, b);
}

// Writes the results of four rows of one token, or adds them to the residual stream.
fn store(row: u32, token: u32, total: vec4<f32>) {
    let at = token * p.y_stride + p.y_offset + row;
    for (var i = 0u; i < 4u; i++) {
        if row + i < p.rows {
            var result = canon(total[i]);
            if p.residual == 1u {
                result = canon(B4(vec4<f32>(y[at + i] + result)).x);
            }
            y[at + i] = result;
        }
    }
}

// Every subgroup takes rows of matrices in turn, all of whose lanes agree on them: naga cannot know that they do, hence the
// diagnostic, by whose name it also means this rule.
@compute @workgroup_size(128)
@diagnostic(off, derivative_uniformity)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    zero = wid.z;
    quad = lane & 15u;
    column = lane >> 4u;
    first = wid.y * TOKENS;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    // past the last block of rows, the last
    let block = min(2u * wid.x + (quad >> 3u), (p.rows + 31u) / 32u - 1u);
    let row = block * row_words() * 8u + (quad & 7u);
    var total: array<vec4<f32>, T>;
    for (var t = 0u; t < T; t++) {
        total[t] = B4(vec4<f32>());
    }
    for (var start = 0u; start < groups; start += seg) {
        for (var t = 0u; t < T; t++) {
            acc[t] = B4(vec4<f32>());
        }
        for (var g = start; g < min(start + seg, groups); g++) {
            // of one digit: a number that compilers do not know, so that they leave a loop of sums a loop; in one piece it takes
            // twice the registers
            for (var part = 0u; part < select(1u, PARTS * p.digits, PARTS > 1u); part++) {
                var m: array<MatrixC, ACROSS * DOWN>;
                for (var step = 0u; step < STEPS; step++) {
                    // what was there has been read by all
                    workgroupBarrier();
                    stage(row, lane, g, part, step);
                    workgroupBarrier();
                    for (var k = 0u; k < 32u; k += S) {
                        var b: array<MatrixB, ACROSS>;
                        for (var c = 0u; c < ACROSS; c++) {
                            b[c] = coopLoad<MatrixB>(&acts[c * (S * PITCH) + k], PITCH);
                        }
                        for (var r = 0u; r < DOWN; r++) {
                            let down = subgroup + r * subgroups;
                            if down < ROWS / S {
                                let a = coopLoadT<MatrixA>(&codes[down * (S * PITCH) + k], PITCH);
                                for (var c = 0u; c < ACROSS; c++) {
                                    m[r * ACROSS + c] = coopMultiplyAdd(a, b[c], m[r * ACROSS + c]);
                                }
                            }
                        }
                    }
                }
                for (var r = 0u; r < DOWN; r++) {
                    let down = subgroup + r * subgroups;
                    if down < ROWS / S {
                        for (var c = 0u; c < ACROSS; c++) {
                            coopStore(m[r * ACROSS + c], &sums[c * (S * SUMS_PITCH) + down * S], SUMS_PITCH);
                        }
                    }
                }
                workgroupBarrier();
                take(row, g, part);
            }
            for (var t = 0u; t < T; t++) {
                acc[t] = B4(acc[t] + B4(bitcast<f32>(act_word(act_at(t, g))) * value[t]));
            }
        }
        for (var t = 0u; t < T; t++) {
            total[t] = B4(total[t] + acc[t]);
        }
    }
    for (var t = 0u; t < T; t++) {
        let token = first + column + 8u * t;
        if token < p.n_tokens {
            store(wid.x * ROWS + quad * 4u, token, total[t]);
        }
    }
}

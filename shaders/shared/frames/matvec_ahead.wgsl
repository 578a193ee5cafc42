// Float linear of one token and few rows: a lane for a row and a segment as in matvec_float, but with the words of 64 elements
// of its row under way at once, none of them waited for before the last is asked for. What they are multiplied with lies in
// workgroup memory, brought by the lanes of the segment, an element a row.
// The importing shader gives what it gives to float_tile.
#import exact
#import linear_params
#import segments

@group(0) @binding(1) var<storage, read> w: array<u32>;           // (row_blocks, row_words, 32)
@group(0) @binding(2) var<storage, read> x: array<f32>;           // (tokens, k)

#import vec4_exact

// Elements of a segment at a time, and its words by four.
const STEP = 64u;
const QUADS = 16u / PER;

// Two steps, so that the next is brought while a lane is at work on this one.
var<workgroup> xs: array<f32, 1024>; // (2, segments, STEP)

fn row_words() -> u32 {
    return (p.k + PER - 1u) / PER;
}

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u * 128u;
    let row = wid.x * row_words() * 32u + lid.x;
    let end = min((lid.y + 1u) * seg, p.k);
    let token = wid.y * p.k;
    var acc = B(0.0);
    for (var step = 0u; step < seg; step += STEP) {
        let first = lid.y * seg + step;
        let whole = first + STEP <= end;
        var words: array<vec4<u32>, QUADS>;
        if whole {
            for (var i = 0u; i < QUADS; i++) {
                let at = row + (first / PER + i * 4u) * 32u;
                words[i] = vec4<u32>(w[at], w[at + 32u], w[at + 64u], w[at + 96u]);
            }
        }
        let mine = (step & STEP) * 8u + lid.y * STEP;
        for (var e = lid.x; e < STEP; e += 32u) {
            if first + e < end {
                xs[mine + e] = x[token + first + e];
            }
        }
        workgroupBarrier();
        if whole {
            for (var i = 0u; i < QUADS; i++) {
                let pair = elements(words[i]);
                for (var j = 0u; j < 4u; j++) {
                    let at = mine + (i * 4u + j) * PER;
                    acc = B(acc + B(pair[0][j] * xs[at]));
                    if PER == 2u {
                        acc = B(acc + B(pair[1][j] * xs[at + 1u]));
                    }
                }
            }
        } else {
            for (var e = first; e < end; e++) {
                let pair = elements(vec4<u32>(w[row + e / PER * 32u]));
                acc = B(acc + B(select(pair[1].x, pair[0].x, e % PER == 0u) * xs[mine + e - first]));
            }
        }
    }
    join_segments(wid.x, lid.x, lid.y, wid.y, acc);
}

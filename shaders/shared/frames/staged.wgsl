// Prefill through workgroup memory: the 64 threads of a workgroup unpack the codes of 32 rows once for 32 tokens, and
// fetch the tokens' activations beside them, a group at a time. Tiles and sums are those of matmul.
// The importing shader brings the tile of its type, and
//   fn stage(row: u32, g: u32, n: u32) -> Codes        pair n (0..16) of the group, unpacked
//   fn place(n: u32) -> u32                            the word of the group where its first codes belong
//   const APART: u32                                   and how many words on the second
const T = 4u;
#import linear_params
#import tile
#import tile_store
#import act_digits

var<workgroup> code_words: array<vec4<u32>, 256>;  // (32 words, 8 lanes)
var<workgroup> act_words: array<u32, 32u * 2u * ACT_BLOCK_WORDS>; // (32 tokens, 2 digits, 37)

// The thread among the 64.
var<private> lane: u32;
var<private> tokens: u32;

// Pair n of the group at hand, of the thread's rows.
fn staged(n: u32) -> Codes {
    let at = place(n) * 8u + lane;
    return Codes(code_words[at], code_words[at + APART * 8u]);
}

// Activations of the group at hand: block of token t of the thread.
fn act_at(t: u32, g: u32) -> u32 {
    return (tokens * T + t) * act_digits * ACT_BLOCK_WORDS;
}

fn act_word(i: u32) -> u32 {
    return act_words[i];
}

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    lane = lid.x;
    tokens = lid.y;
    prepare(lid.y * 8u + lid.x, 64u);
    first = (wid.y * 8u + lid.y) * T;
    let groups = (p.k + 127u) / 128u;
    let seg = (groups + 7u) / 8u;
    let row = wid.x * row_words() * 8u + lane;
    let words = act_digits * ACT_BLOCK_WORDS;
    var total: array<vec4<f32>, T>;
    for (var t = 0u; t < T; t++) {
        total[t] = B4(vec4<f32>());
    }
    for (var start = 0u; start < groups; start += seg) {
        for (var t = 0u; t < T; t++) {
            acc[t] = B4(vec4<f32>());
        }
        for (var g = start; g < min(start + seg, groups); g++) {
            // the group before has been read by all
            workgroupBarrier();
            for (var n = tokens; n < 16u; n += 8u) {
                let c = stage(row, g, n);
                let at = place(n) * 8u + lane;
                code_words[at] = c.low;
                code_words[at + APART * 8u] = c.high;
            }
            for (var t = 0u; t < T; t++) {
                // past the last token, the last
                let read_at = (min(first + t, p.n_tokens - 1u) * groups + g) * words;
                let write_at = act_at(t, g);
                for (var i = lane; i < words; i += 8u) {
                    act_words[write_at + i] = act[read_at + i];
                }
            }
            workgroupBarrier();
            group_values(row, g);
            add_value(g);
        }
        for (var t = 0u; t < T; t++) {
            total[t] = B4(total[t] + acc[t]);
        }
    }
    for (var t = 0u; t < T; t++) {
        if first + t < p.n_tokens {
            store(wid.x * 32u + lane * 4u, first + t, total[t]);
        }
    }
}

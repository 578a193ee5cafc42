// Float linear with four rows and T tokens a thread; each product is rounded, element after element.
// The importing shader gives T and the parameters p (with n_tokens and k), the rest of its text the type:
//   const PER: u32                                                     elements in a word, 1 or 2
//   fn elements(words: vec4<u32>) -> array<vec4<f32>, 2>               those of four rows
#import exact

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;     // (row_blocks, row_words, 8)
@group(0) @binding(2) var<storage, read> x: array<f32>;           // (tokens, k)

var<private> acc: array<vec4<f32>, T>;
// First token of the thread.
var<private> first: u32;

#import vec4_exact

fn row_words() -> u32 {
    return (p.k + PER - 1u) / PER;
}

// Adds 128 elements (or what is left of the row) to the sum of the segment.
fn add_group(row: u32, g: u32) {
    let end = min((g + 1u) * 128u, p.k);
    for (var e = g * 128u; e < end; e += PER) {
        let pair = elements(w[row + e / PER * 8u]);
        for (var t = 0u; t < T; t++) {
            acc[t] = B4(acc[t] + B4(pair[0] * x[min(first + t, p.n_tokens - 1u) * p.k + e]));
        }
        if PER == 2u && e + 1u < end {
            for (var t = 0u; t < T; t++) {
                acc[t] = B4(acc[t] + B4(pair[1] * x[min(first + t, p.n_tokens - 1u) * p.k + e + 1u]));
            }
        }
    }
}

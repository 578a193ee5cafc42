// Embedding lookup. The importing shader gives:
//   fn row_words() -> u32
//   fn element(row: u32, e: u32) -> f32     row: index of the row's word 0
//   fn prepare(thread: u32, threads: u32)   makes what the type reads of workgroup memory, and waits for it
#import exact

struct Params {
    n_tokens: u32,
    dim: u32,
    row0: u32,
    rows: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> ids: array<u32>;         // (tokens)
@group(0) @binding(2) var<storage, read> w: array<u32>;           // (row_blocks, row_words, 32)
@group(0) @binding(3) var<storage, read_write> x: array<f32>;     // (tokens, dim)

// Byte i counted from word `first` of the row.
fn byte(row: u32, first: u32, i: u32) -> u32 {
    return (w[row + (first + (i >> 2u)) * 32u] >> (8u * (i & 3u))) & 255u;
}

fn signed_byte(row: u32, first: u32, i: u32) -> f32 {
    return f32(bitcast<i32>(byte(row, first, i) << 24u) >> 24u);
}

// f16 number i counted from word `first` of the row.
fn half_at(row: u32, first: u32, i: u32) -> f32 {
    return f16_to_f32((w[row + (first + (i >> 1u)) * 32u] >> (16u * (i & 1u))) & 0xffffu);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    zero = wid.z;
    prepare(lid.x, 256u);
    let row = ids[wid.y] - p.row0;
    let e = wid.x * 256u + lid.x;
    if row < p.rows && e < p.dim {
        x[wid.y * p.dim + e] = canon(element((row >> 5u) * row_words() * 32u + (row & 31u), e));
    }
}

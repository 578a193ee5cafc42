// Sums of products on matrix units, of integers in f16 to f32 as the kernels of coop.wgsl take them, for the host to compare
// (host/matrices.rs). A workgroup makes the tiles of 64 rows. The importing shader gives the size S of the matrices and their
// types.
enable subgroups;
enable f16;
enable wgpu_cooperative_matrix;

struct Params {
    n_tiles: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<i32>;           // (tiles, S · 32 of rows, S · 32 of columns, S · S)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;     // (tiles, S columns, S rows)

const TILES = 64u / S;
// Elements of a row.
const DEPTH = 32u;
const STRIDE = S * (2u * DEPTH + S);
const PITCH = 40u;

var<workgroup> rows: array<f16, 64u * PITCH>;
var<workgroup> columns: array<f16, 64u * PITCH>;
var<workgroup> sums: array<f32, 64u * S>;

// All lanes of a subgroup agree on its tile, which naga cannot know: hence the diagnostic, as in coop.wgsl.
@compute @workgroup_size(128)
@diagnostic(off, derivative_uniformity)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    let first = wid.x * TILES;
    for (var i = lane; i < 64u * DEPTH; i += 128u) {
        let at = min(first + i / (S * DEPTH), p.n_tiles - 1u) * STRIDE + i % (S * DEPTH);
        let place = i / DEPTH * PITCH + i % DEPTH;
        rows[place] = f16(x[at]);
        columns[place] = f16(x[at + S * DEPTH]);
    }
    for (var i = lane; i < 64u * S; i += 128u) {
        let at = min(first + i / (S * S), p.n_tiles - 1u) * STRIDE + 2u * S * DEPTH + i % (S * S);
        sums[i] = f32(x[at]);
    }
    workgroupBarrier();
    for (var tile = subgroup; tile < TILES; tile += subgroups) {
        var c = coopLoad<MatrixC>(&sums[tile * (S * S)], S);
        for (var k = 0u; k < DEPTH; k += S) {
            let a = coopLoadT<MatrixA>(&rows[tile * (S * PITCH) + k], PITCH);
            let b = coopLoad<MatrixB>(&columns[tile * (S * PITCH) + k], PITCH);
            c = coopMultiplyAdd(a, b, c);
        }
        coopStore(c, &sums[tile * (S * S)], S);
    }
    workgroupBarrier();
    for (var i = lane; i < 64u * S; i += 128u) {
        let tile = first + i / (S * S);
        if tile < p.n_tiles {
            y[tile * (S * S) + i % (S * S)] = sums[i];
        }
    }
}

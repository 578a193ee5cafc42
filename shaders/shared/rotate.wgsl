// Walsh-Hadamard rotation of a head in workgroup memory by 64 lanes; twin src/ops/tq3.rs.
// `row` holds the head, in pieces of n elements that are rotated apart. Every lane calls.
var<workgroup> row: array<f32, 256>;

// Bit j of word j / 32 is set where element j of a piece changes sign.
fn sign_word(word: u32) -> u32 {
    switch word {
        case 0u: { return 0xb1a6d4b2u; }
        case 1u: { return 0xaa47e31cu; }
        case 2u: { return 0xc9167e19u; }
        case 3u: { return 0xab155b91u; }
        case 4u: { return 0x813f3c93u; }
        case 5u: { return 0x2781afb1u; }
        case 6u: { return 0xfc9a8998u; }
        default: { return 0x1956686fu; }
    }
}

// x with its sign flipped where element j of a piece asks for it.
fn flip(x: f32, j: u32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ (((sign_word(j >> 5u) >> (j & 31u)) & 1u) << 31u));
}

// f32(1 / sqrt(n))
fn rotation_norm(n: u32) -> f32 {
    switch n {
        case 32u: { return 0.17677669529663688; }
        case 64u: { return 0.125; }
        case 128u: { return 0.08838834764831845; }
        default: { return 0.0625; }
    }
}

fn butterflies(lane: u32, len: u32, n: u32) {
    workgroupBarrier();
    for (var step = 1u; step < n; step = step << 1u) {
        for (var i = lane; i < len / 2u; i += 64u) {
            let j = (i - (i & (step - 1u))) * 2u + (i & (step - 1u));
            let a = row[j];
            let b = row[j + step];
            row[j] = B(a + b);
            row[j + step] = B(a - b);
        }
        workgroupBarrier();
    }
}

// Rotates len elements in pieces of n; n = 0 leaves them alone.
fn rotate(lane: u32, len: u32, n: u32) {
    if n == 0u {
        return;
    }
    workgroupBarrier();
    for (var e = lane; e < len; e += 64u) {
        row[e] = flip(row[e], e & (n - 1u));
    }
    butterflies(lane, len, n);
    for (var e = lane; e < len; e += 64u) {
        row[e] = B(row[e] * rotation_norm(n));
    }
    workgroupBarrier();
}

// The inverse of rotate.
fn unrotate(lane: u32, len: u32, n: u32) {
    if n == 0u {
        return;
    }
    butterflies(lane, len, n);
    for (var e = lane; e < len; e += 64u) {
        row[e] = B(row[e] * flip(rotation_norm(n), e & (n - 1u)));
    }
    workgroupBarrier();
}

// Signs and norms of the Walsh-Hadamard rotation of pieces of a head; twin src/ops/tq3.rs.

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

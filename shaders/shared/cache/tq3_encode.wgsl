// Encoders of tq3_0 and tq3_1 for the 32 rotated elements at row[at]; twin src/ops/tq3.rs.
struct Block {
    qs0: u32,
    qs1: u32,
    qr: u32,
    gamma: u32,
}

fn block_amax(at: u32) -> f32 {
    var amax = 0u;
    for (var j = 0u; j < 32u; j++) {
        amax = max(amax, bitcast<u32>(row[at + j]) & 0x7fffffffu);
    }
    return bitcast<f32>(amax);
}

fn tq3_0_encode(at: u32) -> Block {
    let d = fdiv(block_amax(at), TQ3_0_OUTER);
    if d == 0.0 {
        return Block(0xaaaaaaaau, 0xaaaaaaaau, 0xffffffffu, 0u);
    }
    let id = fdiv(1.0, d);
    var qs = vec2<u32>(0u, 0u);
    var qr = 0u;
    for (var j = 0u; j < 32u; j++) {
        let v = row[at + j];
        let u = canon(B(v * id));
        let code = select(select(3u, 2u, u < 0.9814), select(1u, 0u, u < -0.9814), u < 0.0);
        qs[j >> 4u] |= code << (2u * (j & 15u));
        qr |= select(0u, 1u, v >= B(d * tq3_0_level(code))) << j;
    }
    return Block(qs.x, qs.y, qr, f32_to_f16(d));
}

// The code of the level nearest to x, in units of gamma.
fn tq3_1_code(x: f32) -> u32 {
    let v = B(x - f32(SHIFT));
    let a = abs(v);
    let index = select(0u, 1u, a >= 26.0) + select(0u, 1u, a >= 53.5) + select(0u, 1u, a >= 89.5);
    return index | select(0u, 4u, v < 0.0);
}

// Scales tried, 1 / gamma in units of 1 / RMS.
fn tq3_1_try(i: u32) -> f32 {
    switch i {
        case 0u: { return 45.0; }
        case 1u: { return -45.0; }
        case 2u: { return 54.0; }
        case 3u: { return -54.0; }
        case 4u: { return 64.0; }
        default: { return -64.0; }
    }
}

fn tq3_1_encode(at: u32) -> Block {
    let amax = block_amax(at);
    if too_small(amax) {
        return Block(0u, 0u, 0u, 0u);
    }
    let base = min(amax, 1.2676506002282294e30);
    let inv = fdiv(1.0, base);
    var energy = B(0.0);
    for (var j = 0u; j < 32u; j++) {
        let u = canon(B(row[at + j] * inv));
        energy = B(energy + B(u * u));
    }
    let inv_rms = fdiv(1.0, fsqrt(B(energy * 0.03125)));
    // with the levels L of a trial the best scale is n / d, n = sum L u, d = sum L², and n² / d the error it takes away
    var best = 0.0;
    var scale = 0.0;
    for (var m = 0u; m < 6u; m++) {
        let k = B(inv_rms * tq3_1_try(m));
        var n = B(0.0);
        var d = 0;
        for (var j = 0u; j < 32u; j++) {
            let u = canon(B(row[at + j] * inv));
            let level = tq3_1_level(tq3_1_code(B(u * k)));
            n = B(n + B(f32(level) * u));
            d += level * level;
        }
        let s = fdiv(n, f32(d));
        let gain = canon(B(n * s));
        if gain > best {
            best = gain;
            scale = s;
        }
    }
    let gamma = f32_to_f16(B(base * scale));
    if (gamma & 0x7fffu) == 0u {
        return Block(0u, 0u, 0u, 0u);
    }
    let id = fdiv(1.0, f16_to_f32(gamma));
    var qs = vec2<u32>(0u, 0u);
    var qr = 0u;
    for (var j = 0u; j < 32u; j++) {
        let code = tq3_1_code(B(row[at + j] * id));
        qs[j >> 4u] |= (code & 3u) << (2u * (j & 15u));
        qr |= (code >> 2u) << j;
    }
    return Block(qs.x, qs.y, qr, gamma);
}

// tq3_0 (published) and tq3_1 (ours): levels and packed codes; twin src/ops/tq3.rs.
const TQ3_0_INNER: f32 = 0.4528;
const TQ3_0_OUTER: f32 = 1.510;

// Four two-bit codes in the low byte, to one per byte.
fn spread2(codes: u32) -> u32 {
    let pairs = (codes | (codes << 12u)) & 0x000f000fu;
    return (pairs | (pairs << 6u)) & 0x03030303u;
}

fn tq3_0_level(code2: u32) -> f32 {
    let magnitude = select(TQ3_0_INNER, TQ3_0_OUTER, code2 == 0u || code2 == 3u);
    return select(magnitude, -magnitude, code2 < 2u);
}

// Four tq3_0 codes as signed bytes: x the signs, y the signs of those on the outer level and 0 elsewhere.
fn tq3_0_packed(codes: u32) -> vec2<u32> {
    let low = codes & 0x01010101u;
    let high = (codes >> 1u) & 0x01010101u;
    let outer = low ^ high ^ 0x01010101u;
    let signs = 0x01010101u + (high ^ 0x01010101u) * 0xfeu;
    return vec2<u32>(signs, signs & (outer * 0xffu));
}

// tq3_1's level: magnitude index in bits 0 and 1, bit 2 set where negative.
fn tq3_1_level(code3: u32) -> i32 {
    let magnitude = select(select(L0, L1, (code3 & 1u) == 1u), select(L2, L3, (code3 & 1u) == 1u), (code3 & 2u) == 2u);
    return select(magnitude, -magnitude, (code3 & 4u) == 4u);
}

const L0: i32 = 14;
const L1: i32 = 44;
const L2: i32 = 79;
const L3: i32 = 127;

// Four tq3_1 levels as signed bytes, from four index pairs one per byte and four sign bits.
fn tq3_1_packed(codes: u32, signs: u32) -> u32 {
    let low = codes & 0x01010101u;
    let high = (codes >> 1u) & 0x01010101u;
    let magnitudes = u32(L0) * 0x01010101u + low * u32(L1 - L0) + high * u32(L2 - L0) + (low & high) * bitcast<u32>(L3 - L2 - L1 + L0);
    let negative = ((signs & 15u) * 0x00204081u) & 0x01010101u;
    return (magnitudes ^ (negative * 0xffu)) + negative;
}

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

// tq3_1's levels lie at these distances on both sides of the shift.
const SHIFT: i32 = 11;
const D0: i32 = 13;
const D1: i32 = 39;
const D2: i32 = 68;
const D3: i32 = 111;

// tq3_1's level: distance index in bits 0 and 1, bit 2 set where below the shift.
fn tq3_1_level(code3: u32) -> i32 {
    let odd = (code3 & 1u) == 1u;
    let distance = select(select(D0, D1, odd), select(D2, D3, odd), (code3 & 2u) == 2u);
    return select(SHIFT + distance, SHIFT - distance, (code3 & 4u) == 4u);
}

// Four tq3_1 levels as signed bytes, from four index pairs one per byte and four bits of "below".
fn tq3_1_packed(codes: u32, bits: u32) -> u32 {
    let low = codes & 0x01010101u;
    let high = (codes >> 1u) & 0x01010101u;
    let below = ((bits & 15u) * 0x00204081u) & 0x01010101u;
    let magnitudes = u32(D0 + SHIFT) * 0x01010101u - below * u32(2 * SHIFT) + low * u32(D1 - D0) + high * u32(D2 - D0)
        + (low & high) * bitcast<u32>(D3 - D2 - D1 + D0);
    return (magnitudes ^ (below * 0xffu)) + below;
}

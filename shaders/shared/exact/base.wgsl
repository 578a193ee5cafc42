// What exact.wgsl is made on and has no barrier in it. Alone where a shader may not name anything B, which is a role of
// matrices there: its barriers are those of vec4_exact.wgsl.

// A run-time 0 no compiler knows: main sets it to workgroup_id.z of a dispatch whose z is 1.
var<private> zero: u32;

// What stands for every value that is no number or too large to be stored.
const POISON: u32 = 0x7fc00000u;

// 0 below 2^-50, POISON from 2^64 on.
fn canon(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let e = (bits >> 23u) & 255u;
    return bitcast<f32>(select(select(bits, 0u, e < 77u), POISON, e > 190u));
}

fn f16_to_f32(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let m = h & 1023u;
    let e = (h >> 10u) & 31u;
    let normal = ((e + 112u) << 23u) | (m << 13u);
    // m · 2^-24: the exponent of the exact f32(m) lowered by 24
    let tiny = select(bitcast<u32>(f32(m)) - (24u << 23u), 0u, m == 0u);
    return bitcast<f32>(sign | select(normal, tiny, e == 0u));
}

// Four codes to a word, the first in the low byte.
fn pack_codes(c: vec4<i32>) -> u32 {
    let u = bitcast<vec4<u32>>(c) & vec4<u32>(255u, 255u, 255u, 255u);
    return u.x | (u.y << 8u) | (u.z << 16u) | (u.w << 24u);
}

// The dot products of four rows' codes with four activation codes.
fn dots(codes: vec4<u32>, a: u32) -> vec4<i32> {
    return vec4<i32>(
        dot4I8Packed(codes.x, a), dot4I8Packed(codes.y, a), dot4I8Packed(codes.z, a), dot4I8Packed(codes.w, a),
    );
}

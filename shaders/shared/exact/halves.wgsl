// The two f16 of a word, each below infinity, as f32. Where a probe found `unpack2x16float` to give the same for every one of
// them, the host has that in the place of these integers (host/halves.rs).
#import base

fn halves(word: u32) -> vec2<f32> {
    return vec2<f32>(f16_to_f32(word & 0xffffu), f16_to_f32(word >> 16u));
}

// Scales of a nibble to 16 elements, those of a half in the second word that a type names.
#import integer_scales
#import no_minima
#import spread

fn scales(block: u32, half: u32) -> Scales {
    let nibbles = head_word(block, half, 1u);
    return Scales(odd(spread_nibbles(nibbles & vec4<u32>(0xffffu))), odd(spread_nibbles(nibbles >> vec4<u32>(16u))));
}

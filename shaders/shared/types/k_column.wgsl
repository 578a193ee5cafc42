// Groups of Q4_K and Q5_K, four rows of one token at a time: the sums and orders of k_tile. A step of one token waits for
// memory, and a compiler has no more loads under way than stand before the first that is waited for; so all words of a group
// are asked for before anything is made of them. The importing text gives what it gives to k_tile, unpack in place of
// k_codes.
#import tile
#import k_bytes
#import one_token
#import act_digits

// Whether all words of codes are asked for at once: with fifth bits beside them they would be too many registers.
const AT_ONCE = CODES == 4u;

// Words of the group at hand. Every index is known when a shader is compiled, so that they are registers.
var<private> code: array<vec4<u32>, 16>;
var<private> fifth: array<vec4<u32>, 8>;

fn code_word(row: u32, half: u32, n: u32) -> vec4<u32> {
    return code[n];
}

fn fifth_word(row: u32, n: u32) -> vec4<u32> {
    return fifth[n];
}

// Asks for words start .. end of the codes.
fn fetch(row: u32, half: u32, start: u32, end: u32) {
    for (var i = start; i < end; i++) {
        code[i] = w[row + (CODES + 16u * half + i) * 8u];
    }
}

// Sum of scale · dot over sub-blocks j and j + 1 and what it lies above that (sum_start), the block of activations at a.
fn scaled_dots(row: u32, half: u32, j: u32, a: u32, scales: vec4<u32>) -> vec4<i32> {
    var even = vec4<i32>(DOT_ABOVE);
    var odd = vec4<i32>(DOT_ABOVE);
    for (var i = 0u; i < 8u; i++) {
        let c = unpack(row, half, 4u * j + i);
        let at = a + 1u + 8u * j + i;
        even += dots(c.low, act_word(at));
        odd += dots(c.high, act_word(at + 8u));
    }
    return scaled(scales, j, even) + scaled(scales, j + 1u, odd);
}

fn k_values(rows: u32, g: u32) {
    let row = rows + (g >> 1u) * (BLOCK * 8u);
    let half = g & 1u;
    let dw = w[row];
    let u0 = w[row + 8u];
    let u1 = w[row + 16u];
    let u2 = w[row + 24u];
    for (var n = 0u; n < CODES - 4u; n++) {
        fifth[n] = w[row + (4u + n) * 8u];
    }
    if AT_ONCE {
        fetch(row, half, 0u, 16u);
    }
    // scales and minima of the four sub-blocks, a byte each
    let first_half = half == 0u;
    let scales_high = (u2 & vec4<u32>(0x0f0f0f0fu)) | (((u0 >> vec4<u32>(6u)) & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
    let minima_high = ((u2 >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu))
        | (((u1 >> vec4<u32>(6u)) & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
    let scales = select(scales_high, u0 & vec4<u32>(0x3f3f3f3fu), first_half);
    let minima = select(minima_high, u1 & vec4<u32>(0x3f3f3f3fu), first_half);
    let above = sum_start(scales, DOT_ABOVE);
    let minima_above = sum_start(minima, SUM_ABOVE);
    var vs: vec4<f32>;
    var vm: vec4<f32>;
    for (var digit = 0u; digit < act_digits; digit++) {
        let a = act_at(0u, g) + digit * ACT_BLOCK_WORDS;
        if !AT_ONCE {
            fetch(row, half, 0u, 8u);
        }
        var s = above + scaled_dots(row, half, 0u, a, scales);
        if !AT_ONCE {
            fetch(row, half, 8u, 16u);
        }
        s += scaled_dots(row, half, 2u, a, scales);
        var m = minima_above;
        for (var j = 0u; j < 4u; j++) {
            m += lowered(minima, j, a);
        }
        vs = join_digit(digit, scales_value(s), vs);
        vm = join_digit(digit, minima_value(m), vm);
    }
    let d = f16_to_f32_4(low_half(dw));
    let dmin = f16_to_f32_4(high_half(dw));
    value[0] = B4(B4(d * vs) - B4(dmin * vm));
}

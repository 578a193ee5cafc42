// Words of a group in registers. A step of one token waits for memory, and a compiler has no more loads under way than stand
// before the first that is waited for; so words are asked for before anything is made of them. The importing text gives
//   const HEAD: u32                                    words of a group before its codes, of which there are 16 or 32
// Every index is known when a shader is compiled, so that the arrays are registers; compilers leave longer ones in memory.
var<private> head: array<vec4<u32>, HEAD>;
var<private> code: array<vec4<u32>, 16>;

// Asks for what lies before the codes of the group.
fn fetch_head(group: u32) {
    for (var i = 0u; i < HEAD; i++) {
        head[i] = w[group + i * 8u];
    }
}

// Asks for sixteen words of codes of the group, from the first on or from the seventeenth.
fn fetch_codes(group: u32, start: u32) {
    for (var i = 0u; i < 16u; i++) {
        code[i] = w[group + (HEAD + start + i) * 8u];
    }
}

// Word i of the group, which has been asked for.
fn group_word(group: u32, i: u32) -> vec4<u32> {
    if i < HEAD {
        return head[i];
    }
    return code[(i - HEAD) & 15u];
}

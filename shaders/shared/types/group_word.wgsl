// Words of a group where they lie, in the buffer.

// Word i of the group of four rows.
fn group_word(group: u32, i: u32) -> vec4<u32> {
    return w[group + i * 8u];
}

// Codes as they are packed, four signed bytes a word, as entries of a matrix.
fn code_entries(words: vec4<u32>) -> Entries {
    return Entries(unpack4xI8(words.x), unpack4xI8(words.y), unpack4xI8(words.z), unpack4xI8(words.w));
}

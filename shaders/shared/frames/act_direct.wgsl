// Activation blocks where they lie, in the buffer.
#import act_word
#import act_digits

// Index of the activation block of token t of the thread and group g; past the last token, the last.
fn act_at(t: u32, g: u32) -> u32 {
    return (min(first + t, p.n_tokens - 1u) * ((p.k + 127u) / 128u) + g) * act_digits * ACT_BLOCK_WORDS;
}

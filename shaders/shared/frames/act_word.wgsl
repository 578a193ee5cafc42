// A word of the activation blocks. The importing shader gives `act`.
fn act_word(i: u32) -> u32 {
    return act[i];
}

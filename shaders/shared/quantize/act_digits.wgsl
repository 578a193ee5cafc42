// Digits of an activation: 1 (8 bits) or 2 (15 bits). Parameters have the number too; as a constant a compiler makes no loop
// of one digit, and needs no registers for the other. The importing shader gives the parameters `p`.
override act_digits: u32 = 1u;

// Where a loop over digits ends: of two a number that compilers do not know, so that they leave it a loop. In one piece a
// tile would need more registers than there are.
fn digits_end() -> u32 {
    return select(p.digits, 1u, act_digits == 1u);
}

// Digits of an activation: 1 (8 bits) or 2 (15 bits). Parameters have the number too; as a constant a compiler makes no loop
// of one digit, and needs no registers for the other.
override act_digits: u32 = 1u;

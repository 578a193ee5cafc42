// Code of element e of a group of Q5_0 or Q5_1 whose fifth bits start at word high of it; the nibbles follow.
fn five_bits(group: u32, high: u32, e: u32) -> u32 {
    let b = e >> 5u;
    let nibble = (byte(group, high + 4u + 4u * b, e & 15u) >> (4u * ((e >> 4u) & 1u))) & 15u;
    let fifth = (w[group + (high + b) * 32u] >> (8u * (e & 3u) + ((e & 31u) >> 2u))) & 1u;
    return nibble | (fifth << 4u);
}

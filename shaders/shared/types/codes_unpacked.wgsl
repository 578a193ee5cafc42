// Codes unpacked by every thread that meets them; the importing text brings unpack.
fn codes(group: u32, n: u32) -> Codes {
    return unpack(group, n);
}

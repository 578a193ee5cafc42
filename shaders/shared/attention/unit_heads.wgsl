// Heads that a workgroup of attention has: as many neighbours as make 128 outputs (twin: ops::attention::unit_heads).
fn unit_heads() -> u32 {
    return clamp(128u / p.head_dim, 1u, 4u);
}

// Those of a unit: the last one may have fewer.
fn heads_of(unit: u32) -> u32 {
    return min(unit_heads(), p.heads - unit * unit_heads());
}

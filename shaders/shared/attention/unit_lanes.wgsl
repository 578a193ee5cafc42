// The lanes of a workgroup that has a token and a unit of heads: an element of the unit each, or several, 128 apart, of a head
// over 128.
#import unit_heads

const LANES: u32 = 128u;

// The head of the unit whose elements a lane has.
fn head_of(lane: u32, heads: u32) -> u32 {
    return min(lane / p.head_dim, heads - 1u);
}

// Rotations are made by 64 lanes; the others only meet their barriers.
fn rotating(lane: u32) -> u32 {
    return select(lane, 0x10000u, lane >= 64u);
}

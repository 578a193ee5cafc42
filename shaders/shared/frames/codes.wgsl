// Four codes each of four rows, from two places of a group.
struct Codes {
    low: vec4<u32>,
    high: vec4<u32>,
}

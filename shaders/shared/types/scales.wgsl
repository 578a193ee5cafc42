// Integer scales of the runs of a group, a byte each: of runs 0..4 and 4..8.
struct Scales {
    low: vec4<u32>,
    high: vec4<u32>,
}

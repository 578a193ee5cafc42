// The greatest of the 32 integers of each slot of lanes, by a halving tree in workgroup memory.

var<workgroup> lane_max: array<u32, 256>;

// Every lane of the workgroup calls, with its slot's number, its place in it and its value; each gets its slot's greatest.
fn group_max(slot: u32, lane: u32, x: u32) -> u32 {
    let me = slot * 32u + lane;
    lane_max[me] = x;
    workgroupBarrier();
    for (var s = 16u; s > 0u; s = s >> 1u) {
        if lane < s {
            lane_max[me] = max(lane_max[me], lane_max[me + s]);
        }
        workgroupBarrier();
    }
    return lane_max[slot * 32u];
}

// The greatest of the 32 integers of each slot of lanes, by subgroups: the same as max_tree with two barriers for six.
//
// Nothing is taken for granted of subgroups: neither their size nor which lanes are in one.
enable subgroups;

var<workgroup> slot_max: array<atomic<u32>, 8>;

// Every lane of the workgroup calls, with its slot's number, its place in it and its value; each gets its slot's greatest.
fn group_max(slot: u32, lane: u32, x: u32) -> u32 {
    if lane == 0u {
        atomicStore(&slot_max[slot], 0u);
    }
    workgroupBarrier();
    let me = slot * 32u + lane;
    let one = subgroupBroadcastFirst(me) == me;
    // the slots a subgroup has lanes of: mostly one, and two where it has 64 lanes in order
    let least = subgroupMin(slot);
    let most = subgroupMax(slot);
    let no_other = subgroupAll(slot == least || slot == most);
    let of_least = subgroupMax(select(0u, x, slot == least));
    let of_most = subgroupMax(select(0u, x, slot == most));
    if !no_other {
        atomicMax(&slot_max[slot], x);
    } else if one {
        atomicMax(&slot_max[least], of_least);
        atomicMax(&slot_max[most], of_most);
    }
    workgroupBarrier();
    return atomicLoad(&slot_max[slot]);
}

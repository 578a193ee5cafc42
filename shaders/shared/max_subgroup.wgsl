// The greatest of the 32 values of each slot of lanes, by subgroups: the same as max_tree with two barriers for six.
//
// Nothing is taken for granted of subgroups: neither their size nor which lanes are in one. Values are magnitudes, whose
// bits as integers have their order, so that every maximum is one of integers and exact in any order.

var<workgroup> slot_max: array<atomic<u32>, 8>;

// Every lane of the workgroup calls, with its slot's number, its place in it and its value, no less than 0 and no NaN;
// each gets its slot's greatest.
fn group_max(slot: u32, lane: u32, x: f32) -> f32 {
    if lane == 0u {
        atomicStore(&slot_max[slot], 0u);
    }
    workgroupBarrier();
    let bits = bitcast<u32>(x);
    let me = slot * 32u + lane;
    let one = subgroupBroadcastFirst(me) == me;
    // the slots a subgroup has lanes of: mostly one, and two where it has 64 lanes in order
    let least = subgroupMin(slot);
    let most = subgroupMax(slot);
    let no_other = subgroupAll(slot == least || slot == most);
    let of_least = subgroupMax(select(0u, bits, slot == least));
    let of_most = subgroupMax(select(0u, bits, slot == most));
    if !no_other {
        atomicMax(&slot_max[slot], bits);
    } else if one {
        atomicMax(&slot_max[least], of_least);
        atomicMax(&slot_max[most], of_most);
    }
    workgroupBarrier();
    return bitcast<f32>(atomicLoad(&slot_max[slot]));
}

// The k best of every slice of a row, best first: greatest logit first, then lowest id.
//
// The k-th of the lanes' own maxima is a bar that at least k entries reach and few others do. Those are taken a tile at
// a time, behind the best so far: sorted in runs of k, and the runs halved in number until one is left. Of two sorted
// runs the better of entry i of one and entry k-1-i of the other are the k best, in an order that log2(k) steps sort.
// Entries have a total order, so the result does not depend on how they are shared out.

struct Params {
    n_tokens: u32,
    n: u32,
    k: u32,
    slice: u32,
    lists: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<u32>;           // (rows, n), or (rows, n, 2): entries
@group(0) @binding(2) var<storage, read_write> y: array<u32>;     // (rows, lists, k, 2)

const LANES = 128u;
const TILE = 256u;
const ABSENT = 0xffffffffu;

var<workgroup> bits: array<u32, TILE>;
var<workgroup> ids: array<u32, TILE>;
// of each lane: the greatest key, then how many entries reach the bar
var<workgroup> shares: array<u32, LANES>;
var<workgroup> bar: u32;
var<workgroup> total: u32;

// what entries are ordered by, the greatest first
fn key(b: u32, id: u32) -> u32 {
    if id == ABSENT {
        return 0u;
    }
    if (b & 0x7f800000u) == 0x7f800000u {
        return 0xffffffffu;
    }
    if (b & 0x80000000u) == 0u || b == 0x80000000u {
        return b | 0x80000000u;
    }
    return ~b;
}

// entry e of a row
fn bits_of(row: u32, e: u32) -> u32 {
    return x[(row * p.n + e) * select(2u, 1u, p.lists == 0u)];
}

fn id_of(row: u32, e: u32) -> u32 {
    if p.lists == 0u {
        return e;
    }
    return x[(row * p.n + e) * 2u + 1u];
}

// whether entry j of the tile goes before entry i
fn behind(i: u32, j: u32) -> bool {
    let a = key(bits[i], ids[i]);
    let b = key(bits[j], ids[j]);
    return b > a || (b == a && ids[j] < ids[i]);
}

// entries i < j in order, the better first
fn exchange(i: u32, j: u32) {
    if behind(i, j) {
        let b = bits[i];
        let id = ids[i];
        bits[i] = bits[j];
        ids[i] = ids[j];
        bits[j] = b;
        ids[j] = id;
    }
}

// sorts the first `count` entries, in runs of 2 * step that rise and then fall
fn settle(lane: u32, count: u32, step: u32) {
    for (var h = step; h > 0u; h = h >> 1u) {
        for (var t = lane; t < count / 2u; t += LANES) {
            let i = ((t & ~(h - 1u)) << 1u) | (t & (h - 1u));
            exchange(i, i + h);
        }
        workgroupBarrier();
    }
}

// sorts the tile in runs of k, and leaves the k best in front
fn reduce(lane: u32) {
    // runs of `size`, each from two sorted halves of which the second is read backwards
    for (var size = 2u; size <= p.k; size = size << 1u) {
        let half = size >> 1u;
        for (var t = lane; t < TILE / 2u; t += LANES) {
            let run = (t & ~(half - 1u)) << 1u;
            let i = t & (half - 1u);
            exchange(run + i, run + size - 1u - i);
        }
        workgroupBarrier();
        settle(lane, TILE, half >> 1u);
    }
    for (var count = TILE >> 1u; count >= p.k; count = count >> 1u) {
        for (var i = lane; i < count; i += LANES) {
            let j = count + (i & ~(p.k - 1u)) + (p.k - 1u - (i & (p.k - 1u)));
            if behind(i, j) {
                bits[i] = bits[j];
                ids[i] = ids[j];
            }
        }
        workgroupBarrier();
        settle(lane, count, p.k >> 1u);
    }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let lane = lid.x;
    let row = wid.y;
    let first = wid.x * p.slice + lane;
    let end = min(wid.x * p.slice + p.slice, p.n);

    var most = 0u;
    for (var e = first; e < end; e += LANES) {
        most = max(most, key(bits_of(row, e), id_of(row, e)));
    }
    shares[lane] = most;
    workgroupBarrier();
    // as many as LANES, which no compiler knows: all of them unrolled ask for more masks than there are registers
    let lanes = LANES | wid.z;
    var place = 0u;
    for (var first_lane = 0u; first_lane < lanes; first_lane += 8u) {
        for (var i = 0u; i < 8u; i++) {
            let m = first_lane + i;
            place += select(0u, 1u, shares[m] > most || (shares[m] == most && m < lane));
        }
    }
    if place == p.k - 1u {
        // not what stands for nothing
        bar = max(most, 1u);
    }
    let least = workgroupUniformLoad(&bar);

    var own = 0u;
    for (var e = first; e < end; e += LANES) {
        if key(bits_of(row, e), id_of(row, e)) >= least {
            own++;
        }
    }
    shares[lane] = own;
    workgroupBarrier();
    var before = 0u;
    for (var first_lane = 0u; first_lane < lanes; first_lane += 8u) {
        for (var i = 0u; i < 8u; i++) {
            let m = first_lane + i;
            before += select(0u, shares[m], m < lane);
        }
    }
    if lane == LANES - 1u {
        total = before + own;
    }
    let all = workgroupUniformLoad(&total);

    // entries of the tile's front that are the best so far, and entries taken
    var held = 0u;
    var taken = 0u;
    loop {
        for (var i = held + lane; i < TILE; i += LANES) {
            bits[i] = 0u;
            ids[i] = ABSENT;
        }
        workgroupBarrier();
        var number = before;
        for (var e = first; e < end; e += LANES) {
            if key(bits_of(row, e), id_of(row, e)) >= least {
                if number >= taken && number - taken < TILE - held {
                    bits[held + number - taken] = bits_of(row, e);
                    ids[held + number - taken] = id_of(row, e);
                }
                number++;
            }
        }
        workgroupBarrier();
        reduce(lane);
        taken += TILE - held;
        held = p.k;
        if taken >= all {
            break;
        }
    }

    let list = (row * ((p.n + p.slice - 1u) / p.slice) + wid.x) * p.k;
    for (var i = lane; i < p.k; i += LANES) {
        y[(list + i) * 2u] = bits[i];
        y[(list + i) * 2u + 1u] = ids[i];
    }
}

// The k best of every slice of a row, best first: greatest logit first, then lowest id.
//
// A tile is taken as lists of k entries: sorted (unless they are already), then halved in number until one is left. Of
// two sorted lists the better of entry i of one and entry k-1-i of the other are the k best, in an order that log2(k)
// steps sort. With k = 1 that is a plain tree. The list that is left leads the next tile of the slice.

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
const TILE = 1024u;
const ABSENT = 0xffffffffu;

var<workgroup> bits: array<u32, TILE>;
var<workgroup> ids: array<u32, TILE>;

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

// whether entry j goes before entry i
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

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let lane = lid.x;
    let first = wid.x * p.slice;
    let end = min(first + p.slice, p.n);
    // entries of the tile's front that are the best so far
    var held = 0u;
    for (var at = first; at < end; at += TILE - held) {
        if at > first {
            held = p.k;
        }
        for (var i = held + lane; i < TILE; i += LANES) {
            let e = at + i - held;
            bits[i] = 0u;
            ids[i] = ABSENT;
            if e < end {
                if p.lists == 0u {
                    bits[i] = x[wid.y * p.n + e];
                    ids[i] = e;
                } else {
                    bits[i] = x[(wid.y * p.n + e) * 2u];
                    ids[i] = x[(wid.y * p.n + e) * 2u + 1u];
                }
            }
        }
        workgroupBarrier();
        if p.lists == 0u {
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
    let list = (wid.y * ((p.n + p.slice - 1u) / p.slice) + wid.x) * p.k;
    for (var i = lane; i < p.k; i += LANES) {
        y[(list + i) * 2u] = bits[i];
        y[(list + i) * 2u + 1u] = ids[i];
    }
}

// Walsh-Hadamard rotation of a head in workgroup memory by 64 lanes; twin src/ops/tq3.rs.
// `row` holds the head, in pieces of n elements that are rotated apart. Every lane calls. The importing shader gives how many
// elements there are at most:
//   const HEAD: u32
#import rotation_signs

var<workgroup> row: array<f32, HEAD>;

fn butterflies(lane: u32, len: u32, n: u32) {
    workgroupBarrier();
    for (var step = 1u; step < n; step = step << 1u) {
        for (var i = lane; i < len / 2u; i += 64u) {
            let j = (i - (i & (step - 1u))) * 2u + (i & (step - 1u));
            let a = row[j];
            let b = row[j + step];
            row[j] = B(a + b);
            row[j + step] = B(a - b);
        }
        workgroupBarrier();
    }
}

// Rotates len elements in pieces of n; n = 0 leaves them alone.
fn rotate(lane: u32, len: u32, n: u32) {
    if n == 0u {
        return;
    }
    workgroupBarrier();
    for (var e = lane; e < len; e += 64u) {
        row[e] = flip(row[e], e & (n - 1u));
    }
    butterflies(lane, len, n);
    for (var e = lane; e < len; e += 64u) {
        row[e] = B(row[e] * rotation_norm(n));
    }
    workgroupBarrier();
}

// The inverse of rotate.
fn unrotate(lane: u32, len: u32, n: u32) {
    if n == 0u {
        return;
    }
    butterflies(lane, len, n);
    for (var e = lane; e < len; e += 64u) {
        row[e] = B(row[e] * flip(rotation_norm(n), e & (n - 1u)));
    }
    workgroupBarrier();
}

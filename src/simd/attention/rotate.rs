//! The rotation of cached rows (`ops::tq3::rotate` and its inverse) in vectors. Element by element the operations are the
//! twin's; a flipped sign is a product with -1.

use super::BLOCK;
use super::RowLanes;
use crate::ops::cache::CacheType;
use crate::ops::tq3::{SIGNS, norm};

/// `ops::tq3::SIGNS` as factors.
static FACTORS: [[f32; BLOCK]; SIGNS.len()] = {
    let mut t = [[1.0; BLOCK]; SIGNS.len()];
    let mut i = 0;
    while i < SIGNS.len() * BLOCK {
        if SIGNS[i / BLOCK] >> (i % BLOCK) & 1 == 1 {
            t[i / BLOCK][i % BLOCK] = -1.0;
        }
        i += 1;
    }
    t
};

/// -1 in the lanes of a step's second operands.
const fn second<const S: usize>() -> [u32; BLOCK] {
    let mut t = [1f32.to_bits(); BLOCK];
    let mut l = 0;
    while l < BLOCK {
        if l & S != 0 {
            t[l] = (-1f32).to_bits();
        }
        l += 1;
    }
    t
}

/// `ops::cache::CacheType::rotate`, always inlined.
#[inline(always)]
pub(crate) fn rotate<V: RowLanes>(v: V, t: CacheType, row: &mut [f32]) {
    let n = t.rotation(row.len());
    if n < BLOCK {
        // heads that are no multiple of 32: nothing to hurry for
        return t.rotate(row);
    }
    for piece in row.chunks_exact_mut(n) {
        let (blocks, _) = piece.as_chunks_mut::<BLOCK>();
        for (x, factors) in blocks.iter_mut().zip(&FACTORS) {
            scale(v, x, 1.0, factors);
        }
        butterflies(v, blocks);
        for x in blocks {
            scale(v, x, norm(n), &[1.0; BLOCK]);
        }
    }
}

/// `ops::cache::CacheType::unrotate`, always inlined.
#[inline(always)]
pub(crate) fn unrotate<V: RowLanes>(v: V, t: CacheType, row: &mut [f32]) {
    let n = t.rotation(row.len());
    if n < BLOCK {
        return t.unrotate(row);
    }
    for piece in row.chunks_exact_mut(n) {
        let (blocks, _) = piece.as_chunks_mut::<BLOCK>();
        butterflies(v, blocks);
        for (x, factors) in blocks.iter_mut().zip(&FACTORS) {
            scale(v, x, norm(n), factors);
        }
    }
}

#[inline(always)]
fn load<V: RowLanes>(v: V, x: &[f32; BLOCK], part: usize) -> V::F {
    v.f32_row(&bytemuck::cast_ref::<_, [u32; BLOCK]>(x)[part * V::N..])
}

/// x times c, in the signs of `factors`.
#[inline(always)]
fn scale<V: RowLanes>(v: V, x: &mut [f32; BLOCK], c: f32, factors: &[f32; BLOCK]) {
    for part in 0..BLOCK / V::N {
        let by = v.mul_f(v.float(c), load(v, factors, part));
        v.store(v.mul_f(load(v, x, part), by), x, part);
    }
}

/// Within blocks of 32, then between them.
#[inline(always)]
fn butterflies<V: RowLanes>(v: V, blocks: &mut [[f32; BLOCK]]) {
    for x in blocks.iter_mut() {
        let parts = BLOCK / V::N;
        let mut f = [v.float(0.0); 8];
        for i in 0..parts {
            f[i] = load(v, x, i);
            f[i] = step::<V, 1>(v, f[i]);
            f[i] = step::<V, 2>(v, f[i]);
            if V::N > 4 {
                f[i] = step::<V, 4>(v, f[i]);
            }
            if V::N > 8 {
                f[i] = step::<V, 8>(v, f[i]);
            }
        }
        let mut distance = 1;
        while distance < parts {
            for i in 0..parts {
                if i & distance == 0 {
                    let (a, b) = (f[i], f[i + distance]);
                    f[i] = v.add_f(a, b);
                    f[i + distance] = v.sub_f(a, b);
                }
            }
            distance *= 2;
        }
        for i in 0..parts {
            v.store(f[i], x, i);
        }
    }
    let mut distance = 1;
    while distance < blocks.len() {
        for i in (0..blocks.len()).filter(|i| i & distance == 0) {
            for part in 0..BLOCK / V::N {
                let (a, b) = (load(v, &blocks[i], part), load(v, &blocks[i + distance], part));
                v.store(v.add_f(a, b), &mut blocks[i], part);
                v.store(v.sub_f(a, b), &mut blocks[i + distance], part);
            }
        }
        distance *= 2;
    }
}

/// One step inside a vector: a + b in the lanes of the first operands, -b + a (which is a - b) in those of the second.
#[inline(always)]
fn step<V: RowLanes, const S: usize>(v: V, x: V::F) -> V::F {
    v.add_f(v.mul_f(x, v.f32_row(const { &second::<S>() })), v.swap::<S>(x))
}

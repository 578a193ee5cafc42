//! Packing: file rows to the layout the kernels read (`docs/exactness.md` section 3).
//!
//! 32 rows lie side by side, so that a lane owns a row: word i of row r is
//! `w[((r/32) * words_per_row + i) * 32 + r%32]`. Words are the file's, apart from what cannot be computed with exactly:
//! f32 and bf16 values and f32 scales below 2^-50 become 0, and values or scales that are NaN or infinite are refused.
//!
//! Nothing here reads files or starts threads: a caller with many rows may pack runs of 32 in parallel.

use super::BlockType;
use std::fmt;

/// Rows lying side by side.
pub const ROW_BLOCK: usize = 32;

/// The bit pattern of 2^-50; smaller magnitudes are packed as 0.
const CANON_MIN_BITS: u32 = (127 - 50) << 23;

/// A value or scale that cannot be computed with, the first of its rows in packing order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackError {
    /// the format of the rows
    pub t: BlockType,
    /// row, counted from the first row given
    pub row: usize,
    /// block within the row; for F32, F16 and BF16 the element
    pub block: usize,
    /// what is not finite: `value`, `scale d`, `scale dmin` or `minimum m`
    pub what: &'static str,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let unit = if self.t.elems() == 1 { "element" } else { "block" };
        write!(
            f,
            "{} row {}, {unit} {}: {} is NaN or infinite, expected a finite number",
            self.t.name(),
            self.row,
            self.block,
            self.what
        )
    }
}

impl std::error::Error for PackError {}

/// The format a matrix of format `t` is packed as: Q8_K becomes Q8K128, all others stay.
pub const fn packed_type(t: BlockType) -> BlockType {
    match t {
        BlockType::Q8_K => BlockType::Q8K128,
        other => other,
    }
}

/// Words of one packed row of `k` elements of format `t` (before or after [`packed_type`]).
///
/// `k` must be a multiple of the format's block.
pub const fn words_per_row(t: BlockType, k: usize) -> usize {
    match t {
        BlockType::F32 => k,
        BlockType::F16 | BlockType::BF16 => k.div_ceil(2),
        BlockType::Q8_0 => k.div_ceil(128) * 34,
        BlockType::Q4_0 => k.div_ceil(128) * 18,
        BlockType::Q5_0 => k.div_ceil(128) * 22,
        BlockType::Q5_1 => k.div_ceil(128) * 24,
        BlockType::Q4_K => k / 256 * 36,
        BlockType::Q5_K => k / 256 * 44,
        BlockType::Q6_K => k / 256 * 53,
        BlockType::Q8_K | BlockType::Q8K128 => k / 128 * 33,
    }
}

/// Words of a packed matrix of `rows` x `k`: the rows are rounded up to a multiple of 32.
pub const fn packed_words(t: BlockType, rows: usize, k: usize) -> usize {
    rows.next_multiple_of(ROW_BLOCK) * words_per_row(t, k)
}

/// Where word `i` of row `row` lies in a packed matrix.
pub const fn word_index(words_per_row: usize, row: usize, i: usize) -> usize {
    (row / ROW_BLOCK * words_per_row + i) * ROW_BLOCK + row % ROW_BLOCK
}

/// Packs `rows` consecutive file rows of `k` elements of format `t`.
///
/// `bytes` holds exactly the rows, `out` exactly [`packed_words`]; every word of `out` is written. Panics when a length
/// or `k` does not fit the format; errs at a NaN or infinite value or scale, `out` then being partly written.
pub fn pack_rows(t: BlockType, k: usize, rows: usize, bytes: &[u8], out: &mut [u32]) -> Result<(), PackError> {
    assert!(k.is_multiple_of(t.elems()), "pack_rows: k {k} is no multiple of {} for {}", t.elems(), t.name());
    let row_bytes = k / t.elems() * t.bytes();
    assert_eq!(bytes.len(), rows * row_bytes, "pack_rows: bytes of {rows} {} rows of {k}", t.name());
    assert_eq!(out.len(), packed_words(t, rows, k), "pack_rows: words of {rows} {} rows of {k}", t.name());
    if rows == 0 || k == 0 {
        return Ok(());
    }
    let per_row = words_per_row(t, k);
    for (b, out) in out.chunks_exact_mut(per_row * ROW_BLOCK).enumerate() {
        let first = b * ROW_BLOCK;
        let count = ROW_BLOCK.min(rows - first);
        let bytes = &bytes[first * row_bytes..(first + count) * row_bytes];
        let result = match t {
            BlockType::F32 => row_block(t, FLOAT_WORDS, row_bytes, bytes, out, f32_words),
            BlockType::F16 => row_block(t, 2 * FLOAT_WORDS, row_bytes, bytes, out, f16_words),
            BlockType::BF16 => row_block(t, 2 * FLOAT_WORDS, row_bytes, bytes, out, bf16_words),
            BlockType::Q8_0 => row_block(t, 4, row_bytes, bytes, out, q8_0_words),
            BlockType::Q4_0 => row_block(t, 4, row_bytes, bytes, out, q4_0_words),
            BlockType::Q5_0 => row_block(t, 4, row_bytes, bytes, out, q5_0_words),
            BlockType::Q5_1 => row_block(t, 4, row_bytes, bytes, out, q5_1_words),
            BlockType::Q4_K => row_block(t, 1, row_bytes, bytes, out, q4k_words),
            BlockType::Q5_K => row_block(t, 1, row_bytes, bytes, out, q5k_words),
            BlockType::Q6_K => row_block(t, 1, row_bytes, bytes, out, q6k_words),
            BlockType::Q8_K => row_block(t, 1, row_bytes, bytes, out, q8_k_words),
            BlockType::Q8K128 => row_block(t, 1, row_bytes, bytes, out, q8k128_words),
        };
        result.map_err(|e| PackError { row: first + e.row, ..e })?;
    }
    Ok(())
}

/// Words of one piece of a row of floats.
const FLOAT_WORDS: usize = 16;

/// What a piece holds that cannot be packed: which block (element) of the piece, and what it is.
type Refused = (usize, &'static str);

/// Transposes one row block in pieces: `N` words of a row come from `blocks` file blocks (fewer at its end). What 32 rows
/// give between two steps along k stays in the cache.
fn row_block<const N: usize>(
    t: BlockType,
    blocks: usize,
    row_bytes: usize,
    bytes: &[u8],
    out: &mut [u32],
    words: fn(&[u8], &mut [u32; N]) -> Result<(), Refused>,
) -> Result<(), PackError> {
    /// Bytes of a row read in one run, at least: shorter runs wait for memory.
    const RUN: usize = 256;

    let lanes = bytes.len() / row_bytes;
    let piece = blocks * t.bytes();
    let run = RUN.div_ceil(piece);
    for (i, out) in out.chunks_mut(run * N * ROW_BLOCK).enumerate() {
        if lanes < ROW_BLOCK {
            out.fill(0);
        }
        for row in 0..lanes {
            for (j, out) in out.chunks_mut(N * ROW_BLOCK).enumerate() {
                let from = (i * run + j) * piece;
                let to = row_bytes.min(from + piece);
                let first = (i * run + j) * blocks;
                let mut w = [0u32; N];
                words(&bytes[row * row_bytes + from..row * row_bytes + to], &mut w)
                    .map_err(|(block, what)| PackError { t, row, block: first + block, what })?;
                for (out, w) in out.chunks_exact_mut(ROW_BLOCK).zip(w) {
                    out[row] = w;
                }
            }
        }
    }
    Ok(())
}

fn u16_at(b: &[u8], at: usize) -> u32 {
    u16::from_le_bytes([b[at], b[at + 1]]) as u32
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Bytes to words, four to a word, low byte first; `out` may be longer.
fn copy_words(b: &[u8], out: &mut [u32]) {
    for (out, b) in out.iter_mut().zip(b.chunks_exact(4)) {
        *out = u32_at(b, 0);
    }
}

const fn f16_is_finite(h: u32) -> bool {
    h & 0x7c00 != 0x7c00
}

/// The bits of a finite f32, 0 when its magnitude is below 2^-50.
const fn canon_bits(bits: u32) -> Option<u32> {
    match bits & 0x7fff_ffff {
        0x7f80_0000.. => None,
        0..CANON_MIN_BITS => Some(0),
        _ => Some(bits),
    }
}

// The float formats copy and check whole pieces without a branch per element; a refused piece is searched afterwards.

fn f32_words(b: &[u8], w: &mut [u32; FLOAT_WORDS]) -> Result<(), Refused> {
    copy_words(b, w);
    let mut refused = false;
    for w in w.iter_mut() {
        let magnitude = *w & 0x7fff_ffff;
        refused |= magnitude >= 0x7f80_0000;
        *w = if magnitude < CANON_MIN_BITS { 0 } else { *w };
    }
    if refused { Err(first_refused(b, 4, |b| canon_bits(u32_at(b, 0)).is_none())) } else { Ok(()) }
}

fn f16_words(b: &[u8], w: &mut [u32; FLOAT_WORDS]) -> Result<(), Refused> {
    copy_halves(b, w);
    let mut refused = false;
    for w in w.iter_mut() {
        refused |= *w & 0x7c00 == 0x7c00 || *w & 0x7c00_0000 == 0x7c00_0000;
        // the smallest f16 is 2^-24: only the negative zero is not canonical
        let low = if *w & 0xffff == 0x8000 { 0 } else { *w & 0xffff };
        let high = if *w >> 16 == 0x8000 { 0 } else { *w & 0xffff_0000 };
        *w = low | high;
    }
    if refused { Err(first_refused(b, 2, |b| !f16_is_finite(u16_at(b, 0)))) } else { Ok(()) }
}

fn bf16_words(b: &[u8], w: &mut [u32; FLOAT_WORDS]) -> Result<(), Refused> {
    copy_halves(b, w);
    let mut refused = false;
    for w in w.iter_mut() {
        let (low, high) = (*w << 16, *w & 0xffff_0000);
        refused |= low & 0x7fff_ffff >= 0x7f80_0000 || high & 0x7fff_ffff >= 0x7f80_0000;
        let low = if low & 0x7fff_ffff < CANON_MIN_BITS { 0 } else { low >> 16 };
        let high = if high & 0x7fff_ffff < CANON_MIN_BITS { 0 } else { high };
        *w = low | high;
    }
    if refused { Err(first_refused(b, 2, |b| canon_bits(u16_at(b, 0) << 16).is_none())) } else { Ok(()) }
}

/// The first element of `bytes` that `bad` finds, there being one.
fn first_refused(b: &[u8], bytes: usize, bad: impl Fn(&[u8]) -> bool) -> Refused {
    (b.chunks_exact(bytes).position(bad).unwrap_or(0), "value")
}

/// Two halves to a word; the last may be alone.
fn copy_halves(b: &[u8], w: &mut [u32]) {
    copy_words(b, w);
    if let [low, high] = b.as_chunks::<4>().1 {
        w[b.len() / 4] = u32::from_le_bytes([*low, *high, 0, 0]);
    }
}

/// Up to four blocks: their f16 scales in two words, then `n` words of codes for each.
fn scales_apart(b: &[u8], w: &mut [u32], n: usize) -> Result<(), Refused> {
    for (i, b) in b.chunks_exact(2 + 4 * n).enumerate() {
        let d = u16_at(b, 0);
        if !f16_is_finite(d) {
            return Err((i, "scale d"));
        }
        w[i / 2] |= d << (16 * (i % 2));
        copy_words(&b[2..], &mut w[2 + i * n..2 + (i + 1) * n]);
    }
    Ok(())
}

fn q8_0_words(b: &[u8], w: &mut [u32; 34]) -> Result<(), Refused> {
    scales_apart(b, w, 8)
}

fn q4_0_words(b: &[u8], w: &mut [u32; 18]) -> Result<(), Refused> {
    scales_apart(b, w, 4)
}

/// The fifth bits of a block of 32 for the kernels: bit n of byte j belongs to element 4n + j, so that a shift brings those
/// of four neighbouring elements, which meet one word of activations, to one place of the four bytes.
fn fifth_bits(qh: u32) -> u32 {
    // bits 0..4 times this constant come to lie at bit 0 of the bytes, and others where the mask has none
    (0..8).fold(0, |bits, n| bits | (((qh >> (4 * n) & 15) * 0x0020_4081) & 0x0101_0101) << n)
}

/// Up to four blocks: their f16 scales in two words, then a word of fifth bits each, then four words of nibbles each.
fn q5_0_words(b: &[u8], w: &mut [u32; 22]) -> Result<(), Refused> {
    for (i, b) in b.chunks_exact(22).enumerate() {
        let d = u16_at(b, 0);
        if !f16_is_finite(d) {
            return Err((i, "scale d"));
        }
        w[i / 2] |= d << (16 * (i % 2));
        w[2 + i] = fifth_bits(u32_at(b, 2));
        copy_words(&b[6..], &mut w[6 + 4 * i..10 + 4 * i]);
    }
    Ok(())
}

/// Up to four blocks: a word with scale and minimum each, then as Q5_0.
fn q5_1_words(b: &[u8], w: &mut [u32; 24]) -> Result<(), Refused> {
    for (i, b) in b.chunks_exact(24).enumerate() {
        for (at, what) in [(0, "scale d"), (2, "minimum m")] {
            if !f16_is_finite(u16_at(b, at)) {
                return Err((i, what));
            }
        }
        w[i] = u32_at(b, 0);
        w[4 + i] = fifth_bits(u32_at(b, 4));
        copy_words(&b[8..], &mut w[8 + 4 * i..12 + 4 * i]);
    }
    Ok(())
}

fn d_and_dmin_are_finite(b: &[u8]) -> Result<(), Refused> {
    if !f16_is_finite(u16_at(b, 0)) {
        return Err((0, "scale d"));
    }
    if !f16_is_finite(u16_at(b, 2)) {
        return Err((0, "scale dmin"));
    }
    Ok(())
}

fn q4k_words(b: &[u8], w: &mut [u32; 36]) -> Result<(), Refused> {
    copy_words(b, w);
    d_and_dmin_are_finite(b)
}

fn q5k_words(b: &[u8], w: &mut [u32; 44]) -> Result<(), Refused> {
    copy_words(b, w);
    d_and_dmin_are_finite(b)
}

/// File: ql 128, qh 64, scales 16, d. Packed: d, scales, ql, qh.
fn q6k_words(b: &[u8], w: &mut [u32; 53]) -> Result<(), Refused> {
    w[0] = u16_at(b, 208);
    copy_words(&b[192..208], &mut w[1..5]);
    copy_words(&b[..192], &mut w[5..]);
    if f16_is_finite(w[0]) { Ok(()) } else { Err((0, "scale d")) }
}

/// One block of 256 becomes two of 128 with the same d.
fn q8_k_words(b: &[u8], w: &mut [u32; 66]) -> Result<(), Refused> {
    let d = canon_bits(u32_at(b, 0)).ok_or((0, "scale d"))?;
    w[0] = d;
    copy_words(&b[4..132], &mut w[1..33]);
    w[33] = d;
    copy_words(&b[132..260], &mut w[34..66]);
    Ok(())
}

fn q8k128_words(b: &[u8], w: &mut [u32; 33]) -> Result<(), Refused> {
    copy_words(&b[..132], w);
    w[0] = canon_bits(w[0]).ok_or((0, "scale d"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a repeating pattern of prime period whose 16-bit and 32-bit fields are finite and not tiny: every
    /// fourth byte of an aligned word and every second byte of a half has a middling exponent.
    fn file_rows(t: BlockType, k: usize, rows: usize) -> Vec<u8> {
        let n = rows * k / t.elems() * t.bytes();
        let mut bytes: Vec<u8> = (0..n).map(|i| ((i % 251) * 7 + i / 251) as u8).collect();
        let scales: &[usize] = match t {
            BlockType::F32 | BlockType::Q8_K | BlockType::Q8K128 => &[3],
            BlockType::F16 | BlockType::BF16 | BlockType::Q8_0 | BlockType::Q4_0 | BlockType::Q5_0 => &[1],
            BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[1, 3],
            BlockType::Q6_K => &[209],
        };
        for block in bytes.chunks_exact_mut(t.bytes()) {
            for &s in scales {
                block[s] = 0x30 | (block[s] & 0x81);
            }
        }
        bytes
    }

    /// The words of one row by the table of docs/exactness.md, written apart from the packing code.
    fn expected_row(t: BlockType, k: usize, row: &[u8]) -> Vec<u32> {
        let halves = |b: &[u8]| {
            let mut b = b.to_vec();
            b.resize(b.len().next_multiple_of(4), 0);
            b.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect::<Vec<_>>()
        };
        let mut w = Vec::new();
        match t {
            BlockType::F32 | BlockType::F16 | BlockType::BF16 | BlockType::Q4_K | BlockType::Q5_K => w = halves(row),
            BlockType::Q8_0 | BlockType::Q4_0 => {
                for group in row.chunks(4 * t.bytes()) {
                    let blocks: Vec<_> = group.chunks_exact(t.bytes()).collect();
                    let mut scales = Vec::new();
                    let mut codes = Vec::new();
                    for i in 0..4 {
                        let empty = vec![0; t.bytes()];
                        let block = blocks.get(i).copied().unwrap_or(&empty);
                        scales.extend_from_slice(&block[..2]);
                        codes.extend_from_slice(&block[2..]);
                    }
                    w.extend(halves(&scales));
                    w.extend(halves(&codes));
                }
            }
            BlockType::Q5_0 | BlockType::Q5_1 => {
                let heads = t.bytes() - 20;
                for group in row.chunks(4 * t.bytes()) {
                    let (mut scales, mut high, mut nibbles) = (vec![0; 4 * heads], [0; 4], vec![0; 64]);
                    for (i, block) in group.chunks_exact(t.bytes()).enumerate() {
                        scales[heads * i..][..heads].copy_from_slice(&block[..heads]);
                        for e in 0..32 {
                            let bit = block[heads + e / 8] >> (e % 8) & 1;
                            high[i] |= u32::from(bit) << (8 * (e % 4) + e / 4);
                        }
                        nibbles[16 * i..][..16].copy_from_slice(&block[heads + 4..]);
                    }
                    w.extend(halves(&scales));
                    w.extend(high);
                    w.extend(halves(&nibbles));
                }
            }
            BlockType::Q6_K => {
                for b in row.chunks_exact(210) {
                    w.extend(halves(&b[208..]));
                    w.extend(halves(&b[192..208]));
                    w.extend(halves(&b[..128]));
                    w.extend(halves(&b[128..192]));
                }
            }
            BlockType::Q8K128 => row.chunks_exact(148).for_each(|b| w.extend(halves(&b[..132]))),
            BlockType::Q8_K => {
                for b in row.chunks_exact(292) {
                    for half in 0..2 {
                        w.extend(halves(&b[..4]));
                        w.extend(halves(&b[4 + 128 * half..132 + 128 * half]));
                    }
                }
            }
        }
        assert_eq!(w.len(), words_per_row(t, k));
        w
    }

    #[test]
    fn every_word_lands_where_the_page_says() {
        for t in BlockType::ALL {
            for k in [1, 2, 7, 31, 32, 33, 64, 96, 128, 160, 172, 256, 512, 768, 1024] {
                if k % t.elems() != 0 {
                    continue;
                }
                for rows in [1, 31, 32, 33, 70] {
                    let bytes = file_rows(t, k, rows);
                    let mut out = vec![0xdead_beef; packed_words(t, rows, k)];
                    pack_rows(t, k, rows, &bytes, &mut out).unwrap();
                    let per_row = words_per_row(t, k);
                    assert_eq!(per_row, words_per_row(packed_type(t), k));
                    for row in 0..rows.next_multiple_of(32) {
                        let got: Vec<u32> = (0..per_row).map(|i| out[word_index(per_row, row, i)]).collect();
                        let want = match bytes.chunks_exact(bytes.len() / rows).nth(row) {
                            Some(b) => expected_row(t, k, b),
                            None => vec![0; per_row],
                        };
                        assert_eq!(got, want, "{} k {k} row {row} of {rows}", t.name());
                    }
                }
            }
        }
    }

    #[test]
    fn a_scale_or_value_that_is_not_finite_is_refused_with_its_place() {
        let inf16 = [0x00, 0x7c];
        let nan16 = [0x01, 0xfc];
        let inf32 = [0, 0, 0x80, 0xff];
        let nan32 = [1, 0, 0x80, 0x7f];
        let inf_bf16 = [0x80, 0x7f];
        // format, offset within the block, bytes, what
        let cases: [(BlockType, usize, &[u8], &str); 16] = [
            (BlockType::F32, 0, &inf32, "value"),
            (BlockType::F32, 0, &nan32, "value"),
            (BlockType::F16, 0, &inf16, "value"),
            (BlockType::BF16, 0, &inf_bf16, "value"),
            (BlockType::Q8_0, 0, &nan16, "scale d"),
            (BlockType::Q4_0, 0, &inf16, "scale d"),
            (BlockType::Q5_0, 0, &nan16, "scale d"),
            (BlockType::Q5_1, 0, &inf16, "scale d"),
            (BlockType::Q5_1, 2, &nan16, "minimum m"),
            (BlockType::Q4_K, 0, &inf16, "scale d"),
            (BlockType::Q4_K, 2, &nan16, "scale dmin"),
            (BlockType::Q5_K, 0, &nan16, "scale d"),
            (BlockType::Q5_K, 2, &inf16, "scale dmin"),
            (BlockType::Q6_K, 208, &nan16, "scale d"),
            (BlockType::Q8_K, 0, &nan32, "scale d"),
            (BlockType::Q8K128, 0, &inf32, "scale d"),
        ];
        for (t, offset, bad, what) in cases {
            let k = 512 + t.elems();
            let blocks = k / t.elems();
            let mut bytes = file_rows(t, k, 40);
            let at = (37 * blocks + blocks - 1) * t.bytes() + offset;
            bytes[at..at + bad.len()].copy_from_slice(bad);
            let mut out = vec![0; packed_words(t, 40, k)];
            let error = pack_rows(t, k, 40, &bytes, &mut out).unwrap_err();
            assert_eq!(error, PackError { t, row: 37, block: blocks - 1, what });
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn tiny_values_and_negative_zeros_become_zero() {
        let below = (CANON_MIN_BITS - 1).to_le_bytes();
        let at = (CANON_MIN_BITS | 0x8000_0000).to_le_bytes();
        let mut out = vec![0; packed_words(BlockType::F32, 1, 3)];
        let bytes = [below, at, 0x8000_0000u32.to_le_bytes()].concat();
        pack_rows(BlockType::F32, 3, 1, &bytes, &mut out).unwrap();
        assert_eq!([out[0], out[32], out[64]], [0, CANON_MIN_BITS | 0x8000_0000, 0]);

        let mut out = vec![0; packed_words(BlockType::BF16, 1, 4)];
        let bytes = [0x7f, 0x26, 0x80, 0x26, 0x7f, 0xa6, 0x80, 0xa6];
        pack_rows(BlockType::BF16, 4, 1, &bytes, &mut out).unwrap();
        assert_eq!([out[0], out[32]], [0x2680_0000, 0xa680_0000]);

        let mut out = vec![0; packed_words(BlockType::F16, 1, 2)];
        pack_rows(BlockType::F16, 2, 1, &[0x00, 0x80, 0x01, 0x80], &mut out).unwrap();
        assert_eq!(out[0], 0x8001_0000);

        for t in [BlockType::Q8_K, BlockType::Q8K128] {
            let mut bytes = file_rows(t, 256, 1);
            bytes[..4].copy_from_slice(&below);
            let mut out = vec![0; packed_words(t, 1, 256)];
            pack_rows(t, 256, 1, &bytes, &mut out).unwrap();
            assert_eq!(out[0], 0);
        }
    }
}

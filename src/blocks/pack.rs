//! Packing: file rows to the layout the kernels read (`docs/exactness.md` section 3).
//!
//! 32 rows lie side by side, so that a lane owns a row: word i of row r is
//! `w[((r/32) * words_per_row + i) * 32 + r%32]`. Words are the file's, apart from what cannot be computed with exactly:
//! f32 and bf16 values and f32 scales below 2^-50 (of W8A16 and W4A16: 2^-40) become 0, and values or scales that are NaN or
//! infinite are refused.
//!
//! Nothing here reads files or starts threads: a caller with many rows may pack runs of 32 in parallel.

use super::BlockType;
use std::fmt;

/// Rows of a file that are packed side by side.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// their type
    pub t: BlockType,
    /// bytes of each
    pub row_bytes: usize,
    /// words that a piece of a row is packed to
    pub words: usize,
    /// the rows, at most [`ROW_BLOCK`]
    pub bytes: &'a [u8],
}

/// Rows lying side by side.
pub const ROW_BLOCK: usize = 32;

/// The bit pattern of 2^-50; smaller magnitudes are packed as 0.
pub(super) const CANON_MIN_BITS: u32 = (127 - 50) << 23;

/// The bit pattern of 2^-40; see [`scale_bits`].
const SCALE_MIN_BITS: u32 = (127 - 40) << 23;

/// A value or scale that cannot be computed with, the first of its rows in packing order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackError {
    /// the format of the rows
    pub t: BlockType,
    /// row, counted from the first row given
    pub row: usize,
    /// block within the row; for F32, F16 and BF16 the element
    pub block: usize,
    /// what is not finite, as the type's [`super::Number`] calls it: `value`, `scale d`, `minimum m`
    pub what: &'static str,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let unit = if self.t.is_float() { "element" } else { "block" };
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

/// The format a matrix of format `t` is packed as: Q8_K becomes Q8K128 and TQ1_0 becomes TQ2_0, all others stay.
pub const fn packed_type(t: BlockType) -> BlockType {
    t.format().packed
}

/// The format a matrix of format `t` is packed as for a CPU that has memory for codes in the place of rows of a codebook
/// ([`super::wide`]).
pub const fn wide_type(t: BlockType) -> BlockType {
    match t {
        BlockType::IQ1_S | BlockType::IQ1_M => BlockType::Wide1,
        BlockType::IQ2_XXS | BlockType::IQ2_XS | BlockType::IQ2_S => BlockType::Wide2,
        BlockType::IQ3_XXS => BlockType::Wide3,
        BlockType::IQ3_S => BlockType::Wide3S,
        _ => packed_type(t),
    }
}

/// Words of one packed row of `k` elements of format `t` (before or after [`packed_type`]).
///
/// `k` must be a multiple of the format's block.
pub const fn words_per_row(t: BlockType, k: usize) -> usize {
    let f = t.format();
    match t.is_float() {
        true => (k * f.bytes).div_ceil(4),
        false => k.div_ceil(f.piece * f.elems) * f.words,
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
    pack_rows_as(t, packed_type(t), k, rows, bytes, out)
}

/// As [`pack_rows`], as `packed`: what [`packed_type`] or [`wide_type`] says.
pub fn pack_rows_as(
    t: BlockType,
    packed: BlockType,
    k: usize,
    rows: usize,
    bytes: &[u8],
    out: &mut [u32],
) -> Result<(), PackError> {
    debug_assert!(packed == packed_type(t) || packed == wide_type(t));
    let how = if packed == packed_type(t) { t } else { packed };
    assert!(k.is_multiple_of(t.elems()), "pack_rows: k {k} is no multiple of {} for {}", t.elems(), t.name());
    let row_bytes = k / t.elems() * t.bytes();
    assert_eq!(bytes.len(), rows * row_bytes, "pack_rows: bytes of {rows} {} rows of {k}", t.name());
    assert_eq!(out.len(), packed_words(how, rows, k), "pack_rows: words of {rows} {} rows of {k}", t.name());
    if rows == 0 || k == 0 {
        return Ok(());
    }
    let per_row = words_per_row(how, k);
    let words = how.format().words;
    for (b, out) in out.chunks_exact_mut(per_row * ROW_BLOCK).enumerate() {
        let first = b * ROW_BLOCK;
        let count = ROW_BLOCK.min(rows - first);
        let bytes = &bytes[first * row_bytes..(first + count) * row_bytes];
        (how.format().pack)(Rows { t, row_bytes, words, bytes }, out)
            .map_err(|e| PackError { row: first + e.row, ..e })?;
    }
    Ok(())
}

/// Packs rows of blocks: the blocks of a piece give the `N` words that `words` makes of their bytes (the last piece of a
/// row may have fewer).
pub(super) fn blocks<const N: usize>(
    rows: Rows,
    out: &mut [u32],
    words: impl Fn(&[u8], &mut [u32; N]),
) -> Result<(), PackError> {
    let format = rows.t.format();
    pieces(rows, out, |piece, w| {
        let finite = |b: &[u8]| format.numbers.iter().all(|n| n.is_finite(b));
        let all = piece.chunks_exact(format.bytes).all(finite);
        words(piece, w);
        all
    })
}

/// Transposes up to 32 rows in pieces; `words` says whether all numbers of the piece are finite. What the rows give between
/// two steps along k stays in the cache.
pub(super) fn pieces<const N: usize>(
    rows: Rows,
    out: &mut [u32],
    words: impl Fn(&[u8], &mut [u32; N]) -> bool,
) -> Result<(), PackError> {
    /// Bytes of a row read in one run, at least: shorter runs wait for memory.
    const RUN: usize = 256;

    let Rows { t, row_bytes, words: of_piece, bytes } = rows;
    let format = t.format();
    assert_eq!(N, of_piece, "{} is packed in pieces of {of_piece} words", format.name);
    let lanes = bytes.len() / row_bytes;
    let piece = format.piece * format.bytes;
    let run = RUN.div_ceil(piece);
    for (i, out) in out.chunks_mut(run * N * ROW_BLOCK).enumerate() {
        if lanes < ROW_BLOCK {
            out.fill(0);
        }
        for row in 0..lanes {
            for (j, out) in out.chunks_mut(N * ROW_BLOCK).enumerate() {
                let from = (i * run + j) * piece;
                let to = row_bytes.min(from + piece);
                let piece = &bytes[row * row_bytes + from..row * row_bytes + to];
                let mut w = [0u32; N];
                if !words(piece, &mut w) {
                    return Err(refused(t, row, (i * run + j) * format.piece, piece));
                }
                for (out, w) in out.chunks_exact_mut(ROW_BLOCK).zip(w) {
                    out[row] = w;
                }
            }
        }
    }
    Ok(())
}

/// The first number of a piece that is not finite, there being one; the piece begins with block `first` of its row.
fn refused(t: BlockType, row: usize, first: usize, piece: &[u8]) -> PackError {
    let format = t.format();
    let bad = |b: &[u8]| format.numbers.iter().find(|n| !n.is_finite(b)).map(|n| n.what);
    let found = piece.chunks_exact(format.bytes).enumerate().find_map(|(i, b)| Some((i, bad(b)?)));
    let (block, what) = found.unwrap_or((0, "value"));
    PackError { t, row, block: first + block, what }
}

pub(super) fn u16_at(b: &[u8], at: usize) -> u32 {
    u16::from_le_bytes([b[at], b[at + 1]]) as u32
}

pub(super) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Bytes to words, four to a word, low byte first; `out` may be longer.
pub(super) fn copy_words(b: &[u8], out: &mut [u32]) {
    for (out, b) in out.iter_mut().zip(b.chunks_exact(4)) {
        *out = u32_at(b, 0);
    }
}

/// The bits of an f32, 0 when its magnitude is below 2^-50.
pub(super) const fn canon_bits(bits: u32) -> u32 {
    if bits & 0x7fff_ffff < CANON_MIN_BITS { 0 } else { bits }
}

/// The bits of the f32 scale of one of four blocks whose products are added up, 0 when its magnitude is below 2^-40: what is
/// left where they cancel must not be subnormal.
pub(super) const fn scale_bits(bits: u32) -> u32 {
    if bits & 0x7fff_ffff < SCALE_MIN_BITS { 0 } else { bits }
}

/// Blocks of an f16 scale and 4 `n` bytes of codes, up to four: the scales in two words, then `n` words of codes for each.
pub(super) fn scales_apart(b: &[u8], w: &mut [u32], n: usize) {
    for (i, b) in b.chunks_exact(2 + 4 * n).enumerate() {
        w[i / 2] |= u16_at(b, 0) << (16 * (i % 2));
        copy_words(&b[2..], &mut w[2 + i * n..2 + (i + 1) * n]);
    }
}

/// Two halves to a word; the last may be alone.
pub(super) fn copy_halves(b: &[u8], w: &mut [u32]) {
    copy_words(b, w);
    if let [low, high] = b.as_chunks::<4>().1 {
        w[b.len() / 4] = u32::from_le_bytes([*low, *high, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::NumberKind;
    use super::*;

    /// Bytes of a repeating pattern of prime period whose 16-bit and 32-bit fields are finite and not tiny: every
    /// fourth byte of an aligned word and every second byte of a half has a middling exponent.
    fn file_rows(t: BlockType, k: usize, rows: usize) -> Vec<u8> {
        let n = rows * k / t.elems() * t.bytes();
        let mut bytes: Vec<u8> = (0..n).map(|i| ((i % 251) * 7 + i / 251) as u8).collect();
        let f = t.format();
        for block in bytes.chunks_exact_mut(t.bytes()) {
            for n in f.numbers {
                let high = match n.kind {
                    NumberKind::F16 | NumberKind::BF16 => 1,
                    NumberKind::F32 => 3,
                    NumberKind::E8M0 => 0,
                    // the nibble that has the sign and three bits of the exponent
                    NumberKind::TopNibbles => 7,
                };
                block[n.at + high] = 0x30 | (block[n.at + high] & 0x81);
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
            BlockType::Q8_0 | BlockType::Q4_0 | BlockType::IQ4_NL => {
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
            BlockType::Q4_1 => {
                for group in row.chunks(4 * 20) {
                    let (mut heads, mut nibbles) = ([0; 16], [0; 64]);
                    for (i, block) in group.chunks_exact(20).enumerate() {
                        heads[4 * i..][..4].copy_from_slice(&block[..4]);
                        nibbles[16 * i..][..16].copy_from_slice(&block[4..]);
                    }
                    w.extend(halves(&heads));
                    w.extend(halves(&nibbles));
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
            BlockType::W8A16 | BlockType::W4A16 => {
                for group in row.chunks(4 * t.bytes()) {
                    let (mut scales, mut offsets, mut codes) = ([0; 16], [0; 4], vec![0; 4 * (t.bytes() - 5)]);
                    for (i, block) in group.chunks_exact(t.bytes()).enumerate() {
                        scales[4 * i..][..4].copy_from_slice(&block[..4]);
                        offsets[i] = block[4];
                        codes[i * (t.bytes() - 5)..][..t.bytes() - 5].copy_from_slice(&block[5..]);
                    }
                    w.extend(halves(&scales));
                    w.extend(halves(&offsets));
                    w.extend(halves(&codes));
                }
            }
            BlockType::W8A8 => {
                for group in row.chunks(4 * 44) {
                    let mut codes = [0; 128];
                    for (i, block) in group.chunks_exact(44).enumerate() {
                        codes[32 * i..][..32].copy_from_slice(&block[12..]);
                    }
                    w.extend(halves(&group[..8]));
                    w.extend(halves(&codes));
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
            BlockType::MXFP4 | BlockType::NVFP4 | BlockType::Q2_0 => {
                row.chunks(t.format().piece * t.bytes()).for_each(|piece| w.extend(expected_piece(t, piece)));
            }
            BlockType::Q2_K
            | BlockType::Q3_K
            | BlockType::IQ4_XS
            | BlockType::IQ3_S
            | BlockType::IQ3_XXS
            | BlockType::IQ2_S
            | BlockType::IQ2_XS
            | BlockType::IQ2_XXS
            | BlockType::IQ1_S
            | BlockType::IQ1_M
            | BlockType::TQ1_0
            | BlockType::TQ2_0
            | BlockType::Q1_0 => row.chunks_exact(t.bytes()).for_each(|b| w.extend(expected_block(t, b))),
            // they have a test of their own
            BlockType::Wide1 | BlockType::Wide2 | BlockType::Wide3 | BlockType::Wide3S => unreachable!("of no file"),
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

    /// [`expected_row`] for types of which a block gives words of its own.
    fn expected_block(t: BlockType, b: &[u8]) -> Vec<u32> {
        // a half alone in its word, and parts of the file in the order in which they are packed
        let parts = |d: &[u8], parts: &[std::ops::Range<usize>]| {
            let mut bytes = [d, &[0, 0]].concat();
            bytes.truncate(d.len().next_multiple_of(4));
            parts.iter().for_each(|p| bytes.extend(&b[p.clone()]));
            bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect::<Vec<_>>()
        };
        let two_bits = |code: &dyn Fn(usize) -> u32| {
            let mut w = vec![0; 16];
            for e in 0..256 {
                // quarter of the half, byte of the quarter
                w[8 * (e / 128) + e % 32 / 4] |= code(e) << (8 * (e % 4) + 2 * (e % 128 / 32));
            }
            w
        };
        match t {
            BlockType::Q2_K => parts(&b[80..84], &[0..16, 16..80]),
            BlockType::Q3_K => parts(&b[108..110], &[96..108, 0..32, 32..96]),
            BlockType::IQ4_XS => parts(&b[..4], &[4..8, 8..136]),
            BlockType::IQ3_S => parts(&b[..2], &[106..110, 66..74, 74..106, 2..66]),
            BlockType::IQ3_XXS => parts(&b[..2], &[66..98, 2..66]),
            BlockType::IQ2_S => parts(&b[..2], &[74..82, 66..74, 2..34, 34..66]),
            BlockType::IQ2_XS => parts(&b[..2], &[66..74, 2..66]),
            BlockType::IQ2_XXS => parts(&b[..2], &[2..34, 34..66]),
            BlockType::IQ1_S => parts(&b[..2], &[34..50, 2..34]),
            BlockType::IQ1_M => parts(&[], &[48..56, 32..48, 0..32]),
            BlockType::TQ2_0 => parts(&b[64..66], &[0..32, 32..64]),
            BlockType::TQ1_0 => {
                let digit = |e: usize| {
                    let (byte, before) = match e {
                        0..160 => (b[e % 32], e / 32),
                        160..240 => (b[32 + e % 16], (e - 160) / 16),
                        _ => (b[48 + e % 4], (e - 240) / 4),
                    };
                    u32::from(byte) * 3u32.pow(before as u32) % 256 * 3 / 256
                };
                [parts(&b[52..54], &[]), two_bits(&digit)].concat()
            }
            BlockType::Q1_0 => {
                let mut w = parts(&b[..2], &[]);
                w.resize(5, 0);
                for e in 0..128 {
                    let bit = u32::from(b[2 + e / 8]) >> (e % 8) & 1;
                    w[1 + e % 16 / 4] |= bit << (8 * (e % 4) + e / 16);
                }
                w
            }
            _ => panic!("{} is packed in pieces of several blocks", t.name()),
        }
    }

    /// [`expected_row`] for 4-bit types with a scale of a byte, and Q2_0: blocks of one piece.
    fn expected_piece(t: BlockType, piece: &[u8]) -> Vec<u32> {
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
        let mut w = vec![0; t.format().words];
        for (i, b) in piece.chunks_exact(t.bytes()).enumerate() {
            match t {
                BlockType::MXFP4 => {
                    w[0] |= u32::from(b[0]) << (8 * i);
                    (0..4).for_each(|n| w[1 + 4 * i + n] = word(&b[1 + 4 * n..][..4]));
                }
                BlockType::NVFP4 => {
                    w[i] = word(&b[..4]);
                    (0..8).for_each(|n| w[2 + 8 * i + n] = word(&b[4 + 4 * n..][..4]));
                }
                _ => {
                    w[0] |= (u32::from(b[0]) | u32::from(b[1]) << 8) << (16 * i);
                    for e in 0..64 {
                        let code = u32::from(b[2 + e / 4]) >> (2 * (e % 4)) & 3;
                        w[1 + 4 * i + e % 16 / 4] |= code << (8 * (e % 4) + 2 * (e / 16));
                    }
                }
            }
        }
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
        let largest = [[254; 1].as_slice(), &[0x33; 15], &[0x34]].concat();
        let large = [[253; 1].as_slice(), &[0xd5; 15], &[0x6d]].concat();
        let cases: &[(BlockType, usize, &[u8], &str)] = &[
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
            (BlockType::W8A16, 0, &nan32, "scale d"),
            (BlockType::W4A16, 0, &inf32, "scale d"),
            (BlockType::W8A8, 0, &inf32, "scale d"),
            (BlockType::W8A8, 8, &nan32, "scale s"),
            (BlockType::Q2_K, 80, &inf16, "scale d"),
            (BlockType::Q2_K, 82, &nan16, "scale dmin"),
            (BlockType::Q3_K, 108, &inf16, "scale d"),
            (BlockType::IQ4_NL, 0, &nan16, "scale d"),
            (BlockType::IQ4_XS, 0, &inf16, "scale d"),
            (BlockType::TQ1_0, 52, &inf16, "scale d"),
            (BlockType::TQ2_0, 64, &nan16, "scale d"),
            (BlockType::Q1_0, 0, &inf16, "scale d"),
            (BlockType::Q2_0, 0, &nan16, "scale d"),
            // a NaN; finite scales of a code that is 4 or 8 too large
            (BlockType::MXFP4, 0, &[255], "scale e or a weight of that scale"),
            (BlockType::MXFP4, 0, &largest, "scale e or a weight of that scale"),
            (BlockType::MXFP4, 0, &large, "scale e or a weight of that scale"),
        ];
        for &(t, offset, bad, what) in cases {
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
    fn weights_of_mxfp4_are_refused_where_they_are_infinite_and_nowhere_else() {
        for e in 0..=255u8 {
            for code in 0..16 {
                for place in 0..32 {
                    let mut block = [0; 17];
                    block[0] = e;
                    block[1 + place % 16] = code << (4 * (place / 16));
                    let mut y = [0.0; 32];
                    BlockType::MXFP4.decode_row(&block, &mut y);
                    let bad = e == 255 || y.iter().any(|v| !v.is_finite());
                    assert_eq!(BlockType::MXFP4.find_bad_scale(&block), bad.then_some(0), "{e} {code} {place}");
                }
            }
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

        for t in [BlockType::W8A16, BlockType::W4A16] {
            let mut bytes = file_rows(t, 64, 1);
            bytes[..4].copy_from_slice(&(SCALE_MIN_BITS | 0x8000_0000).to_le_bytes());
            bytes[t.bytes()..][..4].copy_from_slice(&(SCALE_MIN_BITS - 1).to_le_bytes());
            let mut out = vec![0; packed_words(t, 1, 64)];
            pack_rows(t, 64, 1, &bytes, &mut out).unwrap();
            assert_eq!([out[0], out[32]], [SCALE_MIN_BITS | 0x8000_0000, 0]);
        }
    }
}

//! The codebooks of the IQ2, IQ3 and IQ1 types: tables of rows of eight (IQ3: four) values, of which a block stores numbers.
//!
//! `assets/iq-grids.bin` holds the six of them one after the other, 16 bits a row, as ggml's tools write them down (PyPI
//! `gguf`, `grid_hex` of `quants.py`, MIT; every table's sum is in the tests):
//!
//! ```text
//! rows of eight: bits 2i+1 .. 2i are the code of element i, into three values
//! rows of four:  bits 4i+2 .. 4i are the code of element i, into eight values
//! ```

/// A codebook of `ROWS` rows of `4 * WORDS` values.
pub struct Grid<const ROWS: usize, const WORDS: usize> {
    /// the value of each code: three for rows of eight, eight for rows of four
    pub values: &'static [i8],
    /// the codes of each row; see the module's drawing
    pub codes: [u16; ROWS],
    /// the values of each row as signed bytes, four to a word, element 0 in the lowest byte of the first
    pub words: [[u32; WORDS]; ROWS],
}

/// Of IQ2_XXS: magnitudes in eighths.
pub static GRID_2XXS: Grid<256, 2> = grid(0, &EIGHTHS);
/// Of IQ2_XS: magnitudes in eighths.
pub static GRID_2XS: Grid<512, 2> = grid(512, &EIGHTHS);
/// Of IQ2_S: magnitudes in eighths.
pub static GRID_2S: Grid<1024, 2> = grid(1536, &EIGHTHS);
/// Of IQ3_XXS: magnitudes in quarters.
pub static GRID_3XXS: Grid<256, 1> = grid(3584, &QUARTERS);
/// Of IQ3_S: magnitudes.
pub static GRID_3S: Grid<512, 1> = grid(4096, &[1, 3, 5, 7, 9, 11, 13, 15]);
/// Of IQ1_S and IQ1_M: what an eighth is then added to or taken from.
pub static GRID_1: Grid<2048, 2> = grid(5120, &[-1, 0, 1]);

/// Magnitudes of the IQ2 types.
pub const EIGHTHS: [i8; 3] = [8, 25, 43];

/// Those of IQ3_XXS.
pub const QUARTERS: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];

/// The codebook that begins at byte `at` of the file.
const fn grid<const ROWS: usize, const WORDS: usize>(at: usize, values: &'static [i8]) -> Grid<ROWS, WORDS> {
    let packed: &[u8; 9216] = include_bytes!("../../assets/iq-grids.bin");
    let bits = 16 / (4 * WORDS);
    let mut grid = Grid { values, codes: [0; ROWS], words: [[0; WORDS]; ROWS] };
    let mut row = 0;
    while row < ROWS {
        let codes = u16::from_le_bytes([packed[at + 2 * row], packed[at + 2 * row + 1]]);
        grid.codes[row] = codes;
        let mut i = 0;
        while i < 4 * WORDS {
            let code = (codes >> (bits * i)) as usize & (values.len().next_power_of_two() - 1);
            grid.words[row][i / 4] |= (values[code] as u8 as u32) << (8 * (i % 4));
            i += 1;
        }
        row += 1;
    }
    grid
}

/// The eight sign bits that seven stored ones (0..128) stand for: the eighth makes the number of minus signs even.
pub const fn even_signs(seven: u32) -> u32 {
    seven | (seven.count_ones() & 1) << 7
}

/// Four signed bytes, none of them 0, with those negated whose bit is set (bit 0: the lowest byte; bits above 3 do not count).
pub const fn signed(word: u32, minus: u32) -> u32 {
    let ones = (minus & 1) | (minus & 2) << 7 | (minus & 4) << 14 | (minus & 8) << 21;
    // inverted and 1 added, byte by byte; that never carries, for no byte is 0
    (word ^ (ones * 255)) + ones
}

/// The codes of IQ1 of four values of [`GRID_1`]: eight times the value and 1 more, or with `minus` 1 less: -9..=9.
pub const fn shifted(word: u32, minus: bool) -> u32 {
    let eights = (word << 3) & 0xf8f8_f8f8;
    match minus {
        false => eights | 0x0101_0101,
        // byte by byte: the bit lent by the sign's place is given back
        true => ((eights | 0x8080_8080) - 0x0101_0101) ^ (!eights & 0x8080_8080),
    }
}

/// The 256 codes of a block out of its 64 words.
pub(super) fn codes(word: impl Fn(usize) -> u32) -> [i8; 256] {
    let words: [[u8; 4]; 64] = std::array::from_fn(|n| word(n).to_le_bytes());
    bytemuck::cast(words)
}

/// The values of a block: `(d * scale) * code`, with a scale for each `256 / S` elements. Every product is exact.
pub(super) fn decode<const S: usize>(d: f32, scales: [u8; S], codes: &[i8; 256], out: &mut [f32; 256]) {
    let runs = out.chunks_exact_mut(256 / S).zip(codes.chunks_exact(256 / S));
    for ((y, codes), s) in runs.zip(scales) {
        let step = d * s as f32;
        for (y, &c) in y.iter_mut().zip(codes) {
            *y = step * c as f32;
        }
    }
}

/// The integer scales 2s + 1 out of sixteen nibbles, the low one of each byte first.
pub(super) fn odd_scales(nibbles: &[u8; 8]) -> [u8; 16] {
    std::array::from_fn(|j| 2 * (nibbles[j / 2] >> (4 * (j % 2)) & 15) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn sum(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The sums of a table's rows as they are stored and of its values, a byte each, row by row.
    fn sums<const R: usize, const W: usize>(grid: &Grid<R, W>) -> [String; 2] {
        let codes: Vec<u8> = grid.codes.iter().flat_map(|c| c.to_le_bytes()).collect();
        let words: Vec<u8> = grid.words.iter().flatten().flat_map(|w| w.to_le_bytes()).collect();
        [sum(&codes), sum(&words)]
    }

    #[test]
    fn every_codebook_is_the_references() {
        let got = [sums(&GRID_2XXS), sums(&GRID_2XS), sums(&GRID_2S), sums(&GRID_3XXS), sums(&GRID_3S), sums(&GRID_1)];
        let want = [
            [
                "915952ebc4af8ddba8113583ca1316fc818843f7b825bbf1a25ae1c39bf0e16d",
                "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54",
            ],
            [
                "f66435966ca8d64e9e4a6e3c91e64afcf9015e700ec85962f527283ebae207b9",
                "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de",
            ],
            [
                "e6e75e121b65e8afa5c1f92b71463cfbe217b83893f438acde22fd5db06a43f7",
                "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88",
            ],
            [
                "15d5c59616fa93701383d1d45da633a378dab68ea2a7dce31b772c604e14dd7c",
                "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d",
            ],
            [
                "881df6ab9508749ca9827814e44a01a4ab8fe8a4ae8d038d5b9d55d864ae135b",
                "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f",
            ],
            [
                "e9ffebfc997ad6023063a667c0bf4eedd8ebf7f56b3da399cbc7d1b1f7ea52c6",
                "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a",
            ],
        ];
        assert_eq!(got, want.map(|w| w.map(String::from)));
        let signs: Vec<u8> = (0..128).map(|v| even_signs(v) as u8).collect();
        assert_eq!(sum(&signs), "a76742a603f8beca5212ecce0f1f02f11a4887fd2f7c8b15aca0ea3eb3380c31");
    }

    #[test]
    fn four_bytes_at_once_are_four_bytes_one_by_one() {
        let signed_by_hand = |word: u32, minus: u32| {
            let bytes = word.to_le_bytes();
            let one = |i: usize| if minus >> i & 1 == 1 { (bytes[i] as i8).wrapping_neg() as u8 } else { bytes[i] };
            u32::from_le_bytes(std::array::from_fn(one))
        };
        for word in GRID_2S.words.iter().flatten().chain(GRID_3XXS.words.iter().flatten()) {
            for minus in 0..32 {
                assert_eq!(signed(*word, minus), signed_by_hand(*word, minus), "{word:08x} {minus}");
            }
        }
        for word in GRID_1.words.iter().flatten() {
            for (minus, shift) in [(false, 1), (true, -1)] {
                let want = u32::from_le_bytes(word.to_le_bytes().map(|g| (8 * g as i8 + shift) as u8));
                assert_eq!(shifted(*word, minus), want, "{word:08x} {minus}");
            }
        }
    }
}

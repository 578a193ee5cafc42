//! The header of a BUMP file, its two tables of dtype codes, and where its parts lie.

use super::super::dtype::Dtype;
use super::super::error::FormatError;
use super::super::source::Source;
use std::fmt;

/// Bytes of the header.
pub(super) const HEADER: u64 = 128;
/// Where the data of version 5 begin, and those of some files of version 4.
pub(super) const LATE_START: u64 = 152;
/// Bytes of the footer of version 5.
pub(super) const FOOTER: u64 = 48;
/// First bytes of the footer.
pub(super) const FOOTER_MAGIC: [u8; 8] = *b"BUMPV5MD";
/// First bytes of every BUMP file; a digit follows.
pub const MAGIC: [u8; 7] = *b"BUMPWGT";
/// Most layers of a file: more than any model has.
pub(super) const MAX_LAYERS: u64 = 1024;

/// Version of a BUMP file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// no intermediate size and no number of key-value heads in the header
    V3,
    /// both in the header
    V4,
    /// with the output matrix, the vocabulary and a JSON text at the end
    V5,
}

impl Version {
    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Version::V3 => 3,
            Version::V4 => 4,
            Version::V5 => 5,
        }
    }
}

/// Which codes stand for which types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codes {
    /// of the first writers of version 3: Q4_K is 6, Q6_K is 7
    First,
    /// of every other writer: Q4_K is 7, Q6_K is 8
    Later,
}

/// Types in the order of the later codes; INT8 and INT4 have no blocks of ggml's.
const LATER: [&str; 14] =
    ["F32", "BF16", "F16", "", "", "Q4_0", "Q4_1", "Q4_K", "Q6_K", "Q8_0", "Q8_K", "Q5_0", "Q5_1", "Q5_K"];
/// The same for the first codes.
const FIRST: [&str; 10] = ["F32", "BF16", "F16", "", "", "Q4_0", "Q4_K", "Q6_K", "Q8_0", "Q8_K"];

impl Codes {
    fn table(self) -> &'static [&'static str] {
        match self {
            Codes::First => &FIRST,
            Codes::Later => &LATER,
        }
    }

    /// The type of a code; `None` for one that is not known, or has no blocks of ggml's.
    pub fn dtype(self, code: u8) -> Option<Dtype> {
        Dtype::from_name(self.table().get(usize::from(code))?)
    }

    /// The code of a type.
    pub fn code(self, dtype: Dtype) -> Option<u8> {
        self.table().iter().position(|name| *name == dtype.name()).map(|i| i as u8)
    }
}

/// A type as C-Kernel-Engine's tools print it: `FP32`, `Q4_K`.
pub fn printed(dtype: Dtype) -> &'static str {
    match dtype.name() {
        "F32" => "FP32",
        "F16" => "FP16",
        other => other,
    }
}

/// A type as manifests name it: `fp32`, `q4_k`.
pub(super) fn listed(dtype: Dtype) -> String {
    printed(dtype).to_lowercase()
}

/// The shape of a model, as header and config give it. Everything is a number of elements or of things.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dims {
    /// decoder layers
    pub layers: u64,
    /// tokens
    pub vocab: u64,
    /// width of the residual stream
    pub embed: u64,
    /// width of the feed-forward layer
    pub ffn: u64,
    /// positions
    pub context: u64,
    /// query heads
    pub heads: u64,
    /// key-value heads
    pub kv_heads: u64,
    /// elements in a head
    pub head_dim: u64,
    /// rows of a head in the file
    pub aligned_head: u64,
}

/// What the first bytes of a file say.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub version: Version,
    /// `ffn` and `kv_heads` are 0 in version 3
    pub dims: Dims,
    pub aligned_embed: u64,
    /// 0 in version 3
    pub aligned_ffn: u64,
    pub checksum: [u8; 32],
    /// merges and bytes of the vocabulary, where the header has them
    pub vocab: Option<(u64, u64)>,
    /// where the dtype table may begin: the first place where a table of the right length is
    pub starts: &'static [u64],
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Reads and checks the header.
pub(super) fn read(source: &Source) -> Result<Header, FormatError> {
    let file = source.name();
    let place = |at: u64| format!("header at byte {at}");
    let wrong = |at: u64, what: &str, expected: &dyn fmt::Display, found: &dyn fmt::Display| {
        FormatError::invalid(file, place(at), what, expected, found)
    };
    if source.len() < HEADER + 4 {
        let least = format!("at least {} bytes", HEADER + 4);
        return Err(wrong(0, "the file ends inside the header", &least, &source.len()));
    }
    let mut b = [0u8; HEADER as usize];
    source.read_at(0, &mut b, &|| place(0))?;
    let version = match (&b[..7] == MAGIC.as_slice(), b[7]) {
        (true, b'3') => Version::V3,
        (true, b'4') => Version::V4,
        (true, b'5') => Version::V5,
        (true, digit) => {
            let what = format!("BUMP version \"{}\"", char::from(digit).escape_default());
            return Err(FormatError::unsupported(file, what, "write it again as version 3, 4 or 5"));
        }
        _ => return Err(wrong(0, "not a BUMP file", &"\"BUMPWGT\"", &format!("\"{}\"", b[..8].escape_ascii()))),
    };
    let number = u32_at(&b, 8);
    if number != u64::from(version.number()) {
        return Err(wrong(8, "magic and version disagree", &version.number(), &number));
    }
    if u32_at(&b, 12) != 1 {
        return Err(wrong(12, "a model type that is not known", &"1, a decoder", &u32_at(&b, 12)));
    }
    let mut dims = Dims { layers: u32_at(&b, 16), vocab: u32_at(&b, 20), embed: u32_at(&b, 24), ..Dims::default() };
    let mut checksum = [0u8; 32];
    let (aligned_embed, aligned_ffn, at_checksum, vocab, starts): (_, _, _, _, &'static [u64]);
    if version == Version::V3 {
        [dims.context, dims.heads, dims.head_dim] = [28, 32, 36].map(|at| u32_at(&b, at));
        dims.aligned_head = u64_at(&b, 48);
        (aligned_embed, aligned_ffn, at_checksum) = (u64_at(&b, 40), 0, 64);
        (vocab, starts) = (None, &[HEADER]);
    } else {
        [dims.ffn, dims.context, dims.heads, dims.kv_heads, dims.head_dim] =
            [28, 32, 36, 40, 44].map(|at| u32_at(&b, at));
        dims.aligned_head = u64_at(&b, 56);
        (aligned_embed, aligned_ffn) = (u64_at(&b, 48), u64_at(&b, 64));
        // the first writers of version 4 have no counts of the vocabulary: their checksum ends eight bytes earlier
        let early = version == Version::V4 && u64_at(&b, 112) == 0;
        let counts = (u32_at(&b, 80), u32_at(&b, 84));
        (at_checksum, vocab) = if early { (80, None) } else { (88, Some(counts)) };
        starts = match (early, version) {
            (true, _) => &[HEADER],
            (false, Version::V4) => &[LATE_START, HEADER],
            (false, _) => &[LATE_START],
        };
    }
    checksum.copy_from_slice(&b[at_checksum..at_checksum + 32]);
    if let Some(i) = b[at_checksum + 32..].iter().position(|v| *v != 0) {
        let at = at_checksum + 32 + i;
        return Err(wrong(at as u64, "a reserved byte is in use", &0, &b[at]));
    }
    for (what, v, most) in [
        ("number of layers", dims.layers, MAX_LAYERS),
        ("vocabulary", dims.vocab, 1 << 24),
        ("embedding width", dims.embed, 1 << 20),
        ("context length", dims.context, 1 << 30),
        ("number of heads", dims.heads, 1 << 12),
        ("head dimension", dims.head_dim, 1 << 16),
    ] {
        if v == 0 || v > most {
            let expected = format_args!("1 to {most}");
            return Err(FormatError::invalid(file, "header", format!("the {what} cannot be"), expected, v));
        }
    }
    let header = Header { version, dims, aligned_embed, aligned_ffn, checksum, vocab, starts };
    header.check_alignment(file)?;
    Ok(header)
}

impl Header {
    /// Refuses padding that this reader has no use for.
    fn check_alignment(&self, file: &str) -> Result<(), FormatError> {
        let d = &self.dims;
        for (what, plain, aligned) in
            [("embedding", d.embed, self.aligned_embed), ("feed-forward", d.ffn, self.aligned_ffn)]
        {
            if aligned < plain {
                return Err(FormatError::invalid(
                    file,
                    "header",
                    format!("the aligned {what} width is smaller than the width"),
                    format_args!("at least {plain}"),
                    aligned,
                ));
            }
            if aligned > plain {
                let what = format!("a {what} width of {plain} padded to {aligned}");
                return Err(FormatError::unsupported(file, what, "convert the model it was made from"));
            }
        }
        if d.aligned_head < d.head_dim || d.aligned_head > d.head_dim + 64 {
            return Err(FormatError::invalid(
                file,
                "header",
                "the aligned head dimension cannot be",
                format_args!("{} to {}", d.head_dim, d.head_dim + 64),
                d.aligned_head,
            ));
        }
        Ok(())
    }

    /// The header's bytes, as they are written; those of version 5 with the reserved bytes behind them.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let d = &self.dims;
        let context = d.context.next_multiple_of(16);
        let v3 = self.version == Version::V3;
        let mut words = vec![self.version.number().into(), 1, d.layers, d.vocab, d.embed];
        let mut longs = vec![self.aligned_embed, d.aligned_head];
        if v3 {
            words.extend([d.context, d.heads, d.head_dim]);
        } else {
            words.extend([d.ffn, d.context, d.heads, d.kv_heads, d.head_dim]);
            longs.push(self.aligned_ffn);
        }
        longs.push(context);
        let mut out = MAGIC.to_vec();
        out.push(b'0' + self.version.number() as u8);
        out.extend(words.iter().flat_map(|v| (*v as u32).to_le_bytes()));
        out.extend(longs.iter().flat_map(|v| v.to_le_bytes()));
        if let Some((merges, bytes)) = self.vocab {
            out.extend((merges as u32).to_le_bytes());
            out.extend((bytes as u32).to_le_bytes());
        }
        out.extend(self.checksum);
        out.resize(self.starts[0] as usize, 0);
        out
    }
}

//! Bytes in a file: lower-case hexadecimal digits, of a length that is known.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// So many bytes, written as twice as many digits of `0123456789abcdef`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> Hex<N> {
    /// `None`: another number of digits, or a character that is none.
    pub fn parse(text: &str) -> Option<Hex<N>> {
        let digits = text.as_bytes();
        if digits.len() != 2 * N {
            return None;
        }
        let digit = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Hex(bytes))
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let wrong = || D::Error::custom(format!("{} digits of 0123456789abcdef expected", 2 * N));
        Hex::parse(&text).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_spelling() {
        let hex = Hex([0, 10, 255]);
        assert_eq!((hex.to_string().as_str(), Hex::parse("000aff")), ("000aff", Some(hex)));
        for bad in ["000aFF", "000af", "000aff0", "000ag0", "+00aff", "000a\u{e9}"] {
            assert_eq!(Hex::<3>::parse(bad), None, "{bad}");
        }
    }
}

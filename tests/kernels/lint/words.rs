//! A look at the text itself, for what naga folds away before it makes IR: `sqrt(2.0)` and `1.0 / 3.0` become
//! literals, computed by whichever compiler reads them. It must not report what only comments or names say.

use std::collections::BTreeSet;

use naga::TypeInner;

use super::program::{Program, scalar_kind};
use super::{FLOAT_DIVISION, FORBIDDEN_BUILTIN, Finding};

/// Builtins that have no integer form, so that the name alone is enough.
const FLOAT_ONLY: &[&str] = &[
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "cross",
    "degrees",
    "determinant",
    "distance",
    "dpdx",
    "dpdy",
    "exp",
    "exp2",
    "faceForward",
    "fma",
    "fract",
    "frexp",
    "fwidth",
    "inverseSqrt",
    "ldexp",
    "length",
    "log",
    "log2",
    "mix",
    "modf",
    "normalize",
    "pack2x16float",
    "pack2x16snorm",
    "pack2x16unorm",
    "pack4x8snorm",
    "pack4x8unorm",
    "pow",
    "quantizeToF16",
    "radians",
    "reflect",
    "refract",
    "sin",
    "sinh",
    "smoothstep",
    "sqrt",
    "tan",
    "tanh",
    "unpack2x16float",
    "unpack2x16snorm",
    "unpack2x16unorm",
    "unpack4x8snorm",
    "unpack4x8unorm",
];

#[derive(Debug, PartialEq, Eq)]
struct Word<'a> {
    text: &'a str,
    line: u32,
}

/// Adds the findings of this module to `out`.
pub fn check(p: &Program, source: &str, out: &mut Vec<Finding>) {
    let words = split(source);
    let declared: BTreeSet<&str> = words.windows(2).filter(|w| w[0].text == "fn").map(|w| w[1].text).collect();
    let float_constants: BTreeSet<&str> = p
        .module
        .constants
        .iter()
        .filter(|(_, c)| {
            let inner: &TypeInner = &p.module.types[c.ty].inner;
            matches!(scalar_kind(inner), Some(naga::ScalarKind::Float | naga::ScalarKind::AbstractFloat))
        })
        .filter_map(|(_, c)| c.name.as_deref())
        // naga drops constants of abstract type once it has folded them.
        .chain(words.windows(4).filter_map(|w| {
            let float = w[2].text == ":" && w[3].text == "f32" || w[2].text == "=" && is_float_literal(w[3].text);
            (w[0].text == "const" && float).then_some(w[1].text)
        }))
        .collect();
    let is_float = |w: &Word| is_float_literal(w.text) || float_constants.contains(w.text);
    let mut add = |line, rule, message: String| {
        out.push(Finding { line, rule, function: String::new(), message });
    };
    for (i, w) in words.iter().enumerate() {
        let next = words.get(i + 1);
        if FLOAT_ONLY.contains(&w.text) && next.is_some_and(|n| n.text == "(") && !declared.contains(w.text) {
            add(
                w.line,
                FORBIDDEN_BUILTIN,
                format!("{}: even on constants, the compiler that folds it decides", w.text),
            );
        }
        if (w.text == "/" || w.text == "%") && (next.is_some_and(&is_float) || i > 0 && is_float(&words[i - 1])) {
            add(w.line, FLOAT_DIVISION, "float division, folded or not: write the literal or use fdiv".into());
        }
    }
}

fn is_float_literal(text: &str) -> bool {
    let hex = text.starts_with("0x") || text.starts_with("0X");
    text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text.contains(|c: char| c.is_ascii_digit())
        && (text.contains('.')
            || hex && text.contains(['p', 'P'])
            || !hex && (text.contains(['e', 'E']) || text.ends_with(['f', 'h'])))
}

/// The text as words: names, numbers, and every other character by itself. Comments fall away (block ones nest).
fn split(source: &str) -> Vec<Word<'_>> {
    let bytes = source.as_bytes();
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let mut words = Vec::new();
    let (mut i, mut line, mut depth) = (0, 1, 0);
    while i < bytes.len() {
        let (b, next) = (bytes[i], bytes.get(i + 1).copied());
        if b == b'\n' {
            line += 1;
            i += 1;
        } else if b == b'/' && next == Some(b'*') {
            depth += 1;
            i += 2;
        } else if depth > 0 {
            if b == b'*' && next == Some(b'/') {
                depth -= 1;
                i += 1;
            }
            i += 1;
        } else if b == b'/' && next == Some(b'/') {
            while i < bytes.len() && bytes[i] != b'\n' {
                i += 1;
            }
        } else if b.is_ascii_whitespace() {
            i += 1;
        } else {
            let start = i;
            i += 1;
            if b.is_ascii_digit() || b == b'.' && next.is_some_and(|n| n.is_ascii_digit()) {
                let hex = b == b'0' && matches!(next, Some(b'x' | b'X'));
                while i < bytes.len() {
                    let exponent =
                        if hex { matches!(bytes[i - 1], b'p' | b'P') } else { matches!(bytes[i - 1], b'e' | b'E') };
                    let sign = exponent && matches!(bytes[i], b'+' | b'-');
                    if !(is_name(bytes[i]) || bytes[i] == b'.' || sign) {
                        break;
                    }
                    i += 1;
                }
            } else if is_name(b) {
                while i < bytes.len() && is_name(bytes[i]) {
                    i += 1;
                }
            }
            // Only ASCII bytes end a word, so both ends lie between characters.
            words.push(Word { text: &source[start..i], line });
        }
    }
    words
}

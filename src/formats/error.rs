//! The one error type of this room: which file, where in it, what is wrong, what was expected and what was found.
//!
//! Text that comes from a file is untrusted: it is shortened and its control characters are escaped before it enters
//! a message, so that a message is always one short line.

use super::packed_fault::PackedFault;
use std::fmt;
use std::io;
use std::path::Path;

/// Why a file was refused. `Display` gives one line.
#[derive(Debug)]
pub enum FormatError {
    /// The operating system could not do what was asked.
    Io {
        /// the file or directory
        file: String,
        /// what was being done
        place: String,
        /// the system's error
        source: io::Error,
    },
    /// The content breaks a rule of its format or a limit of this reader.
    Invalid {
        /// the file
        file: String,
        /// byte offset, key or tensor
        place: String,
        /// the rule
        what: String,
        /// what the rule asks for
        expected: String,
        /// what is there
        found: String,
    },
    /// The content is well known but not read by this program (big-endian files, old versions, single shards).
    Unsupported {
        /// the file
        file: String,
        /// what is not supported
        what: String,
        /// what to do instead
        remedy: String,
    },
    /// A packed matrix breaks a rule of its layout.
    Packed {
        /// the file
        file: String,
        /// the matrix, or the key it is stored under
        tensor: String,
        /// the rule
        fault: PackedFault,
    },
}

impl FormatError {
    /// The file the message is about.
    pub fn file(&self) -> &str {
        match self {
            FormatError::Io { file, .. }
            | FormatError::Invalid { file, .. }
            | FormatError::Unsupported { file, .. }
            | FormatError::Packed { file, .. } => file,
        }
    }

    pub(super) fn io(path: &Path, place: &str, source: io::Error) -> FormatError {
        FormatError::Io { file: show_path(path), place: place.to_string(), source }
    }

    pub(super) fn invalid(
        file: &str,
        place: impl Into<String>,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> FormatError {
        FormatError::Invalid {
            file: file.to_string(),
            place: place.into(),
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    pub(super) fn unsupported(file: &str, what: impl Into<String>, remedy: impl Into<String>) -> FormatError {
        FormatError::Unsupported { file: file.to_string(), what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Io { file, place, source } => write!(f, "{file}: {place}: {source}"),
            FormatError::Invalid { file, place, what, expected, found } => {
                write!(f, "{file}: {place}: {what}: expected {expected}, found {found}")
            }
            FormatError::Unsupported { file, what, remedy } => {
                write!(f, "{file}: {what} is not supported: {remedy}")
            }
            FormatError::Packed { file, tensor, fault } => write!(f, "{file}: tensor {}: {fault}", quote(tensor)),
        }
    }
}

impl std::error::Error for FormatError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FormatError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The most characters of a file's own text that a message repeats.
const SHOWN: usize = 80;

/// Text from a file, quoted, escaped and shortened.
pub(super) fn quote(text: &str) -> String {
    let mut cut = text.chars();
    let head: String = cut.by_ref().take(SHOWN).collect();
    let more = if cut.next().is_some() { "..." } else { "" };
    format!("\"{}\"{more}", head.escape_debug())
}

/// A path as text without control characters.
pub(super) fn show_path(path: &Path) -> String {
    plain(&path.to_string_lossy(), usize::MAX)
}

/// Text (of a library's message) without control characters, cut at `limit` characters.
pub(super) fn plain(text: &str, limit: usize) -> String {
    let mut out = String::with_capacity(text.len().min(limit));
    for c in text.chars().take(limit) {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

//! Where the bytes of a container come from: positioned reads of a file, a memory map, or memory.
//!
//! This is the only module of the room that touches files' contents. A `Source` knows its length from the moment it
//! was opened; a file that became shorter since is an error that says so. Nothing here interprets bytes.
//!
//! Memory maps are opt-in because of one hazard no program can remove: when another process truncates a mapped file,
//! touching the lost pages kills this process (SIGBUS on Unix, an in-page error on Windows). The file's length is
//! compared before every copy, which closes all but the moment between the check and the copy. Positioned reads, the
//! default, have no such hazard.

use super::error::{FormatError, show_path};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

/// How the bytes of a file are fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LoadMode {
    /// Positioned reads into the caller's buffer. A file truncated meanwhile is an error.
    #[default]
    Read,
    /// Memory map. Faster to start when the page cache is warm; see the module's text for the hazard.
    Mmap,
}

/// Bytes that are computed when they are read.
pub(super) trait Generated: Send + Sync {
    /// Fills `out` with the bytes from `offset` on.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), FormatError>;
}

enum Backing {
    File(ReadAt),
    Map { map: memmap2::Mmap, file: File },
    Bytes(Cow<'static, [u8]>),
    Generated(Box<dyn Generated>),
}

/// Bytes with a name and a fixed length, readable from several threads.
pub(super) struct Source {
    name: String,
    len: u64,
    backing: Backing,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.backing {
            Backing::File(_) => "file",
            Backing::Map { .. } => "map",
            Backing::Bytes(_) => "bytes",
            Backing::Generated(_) => "generated",
        };
        write!(f, "Source({:?}, {kind}, {} bytes)", self.name, self.len)
    }
}

impl Source {
    /// Opens a regular file. Devices and pipes are refused: they have no length to check against.
    pub(super) fn open(path: &Path, mode: LoadMode) -> Result<Source, FormatError> {
        let file = open_regular(path)?;
        let len = file.metadata().map_err(|e| FormatError::io(path, "reading its length", e))?.len();
        let backing = match mode {
            LoadMode::Read => Backing::File(ReadAt::new(file)),
            // An empty file cannot be mapped.
            LoadMode::Mmap if len == 0 => Backing::Bytes(Cow::Borrowed(&[])),
            LoadMode::Mmap => {
                // SAFETY: the map is private to this value, read-only, and only ever copied out of after its range
                // has been checked; that another process may change or truncate the file is the documented hazard
                // of this mode, which the caller asked for by name.
                let map = unsafe { memmap2::Mmap::map(&file) }
                    .map_err(|e| FormatError::io(path, "mapping it into memory", e))?;
                Backing::Map { map, file }
            }
        };
        Ok(Source { name: show_path(path), len, backing })
    }

    /// Bytes already in memory, under a name for messages.
    pub(super) fn bytes(name: &str, bytes: Cow<'static, [u8]>) -> Source {
        Source { name: super::error::plain(name, 200), len: bytes.len() as u64, backing: Backing::Bytes(bytes) }
    }

    /// Bytes computed when they are read, under a name for messages.
    pub(super) fn generated(name: &str, len: u64, made: impl Generated + 'static) -> Source {
        Source { name: name.to_string(), len, backing: Backing::Generated(Box::new(made)) }
    }

    /// The name for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Length in bytes, as of opening.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `out` from byte `offset` on. `place` names the tensor or field for the message.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8], place: &dyn Fn() -> String) -> Result<(), FormatError> {
        let end = offset.checked_add(out.len() as u64);
        let Some(end) = end.filter(|&end| end <= self.len) else {
            return Err(FormatError::invalid(
                &self.name,
                place(),
                "a read past the end of the file",
                format_args!("at most {} bytes", self.len),
                format_args!("bytes {offset} to {}", offset as u128 + out.len() as u128),
            ));
        };
        match &self.backing {
            Backing::File(file) => file.read_exact_at(out, offset).map_err(|e| self.fault(e, file.len(), end, place)),
            Backing::Map { map, file } => {
                let now = file.metadata().map(|m| m.len());
                match now {
                    Ok(now) if now >= end => {
                        // `end <= len`, and the map has `len` bytes unless the file shrank while it was made.
                        match map.get(offset as usize..end as usize) {
                            Some(bytes) => {
                                out.copy_from_slice(bytes);
                                Ok(())
                            }
                            None => Err(self.shorter(map.len() as u64, end, place)),
                        }
                    }
                    Ok(now) => Err(self.shorter(now, end, place)),
                    Err(e) => Err(self.io(e, place)),
                }
            }
            Backing::Bytes(bytes) => {
                // `end <= len` and `len` is the slice's own length.
                out.copy_from_slice(&bytes[offset as usize..end as usize]);
                Ok(())
            }
            Backing::Generated(made) => made.read(offset, out),
        }
    }

    fn fault(&self, error: io::Error, now: io::Result<u64>, end: u64, place: &dyn Fn() -> String) -> FormatError {
        match now {
            Ok(now) if now < end => self.shorter(now, end, place),
            _ => self.io(error, place),
        }
    }

    fn shorter(&self, now: u64, end: u64, place: &dyn Fn() -> String) -> FormatError {
        FormatError::invalid(
            &self.name,
            place(),
            "the file became shorter while it was in use",
            format_args!("at least {end} bytes"),
            format_args!("{now} bytes"),
        )
    }

    fn io(&self, source: io::Error, place: &dyn Fn() -> String) -> FormatError {
        FormatError::Io { file: self.name.clone(), place: place(), source }
    }
}

/// Opens `path` for reading, refusing everything but a regular file (opening a pipe would wait for ever).
fn open_regular(path: &Path) -> Result<File, FormatError> {
    let meta = std::fs::metadata(path).map_err(|e| FormatError::io(path, "opening it", e))?;
    if !meta.is_file() {
        let found = if meta.is_dir() { "a directory" } else { "a device, socket or pipe" };
        return Err(FormatError::invalid(
            &show_path(path),
            "opening it",
            "not a file that can be read at any position",
            "a regular file",
            found,
        ));
    }
    File::open(path).map_err(|e| FormatError::io(path, "opening it", e))
}

/// The whole of a small file; more than `limit` bytes is an error, not a truncation.
pub fn read_whole(path: &Path, limit: u64) -> Result<Vec<u8>, FormatError> {
    use std::io::Read;
    let file = open_regular(path)?;
    let too_long = |found: &dyn fmt::Display| {
        FormatError::invalid(
            &show_path(path),
            "reading it whole",
            "the file is longer than this reader allows",
            format_args!("at most {limit} bytes"),
            found,
        )
    };
    let len = file.metadata().map_err(|e| FormatError::io(path, "reading its length", e))?.len();
    if len > limit {
        return Err(too_long(&len));
    }
    let mut out = Vec::with_capacity(len as usize + 1);
    // The file may grow while it is read; the length seen above bounds nothing.
    file.take(limit + 1).read_to_end(&mut out).map_err(|e| FormatError::io(path, "reading it", e))?;
    if out.len() as u64 > limit {
        return Err(too_long(&format_args!("more")));
    }
    Ok(out)
}

#[cfg(unix)]
struct ReadAt(File);

#[cfg(unix)]
impl ReadAt {
    fn new(file: File) -> ReadAt {
        ReadAt(file)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, out, offset)
    }
}

#[cfg(windows)]
struct ReadAt(File);

#[cfg(windows)]
impl ReadAt {
    fn new(file: File) -> ReadAt {
        ReadAt(file)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !out.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.0, out, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    out = &mut out[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Elsewhere a file has one shared position, so reads take turns.
#[cfg(not(any(unix, windows)))]
struct ReadAt(std::sync::Mutex<File>);

#[cfg(not(any(unix, windows)))]
impl ReadAt {
    fn new(file: File) -> ReadAt {
        ReadAt(std::sync::Mutex::new(file))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, File> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().metadata()?.len())
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = self.lock();
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(out)
    }
}

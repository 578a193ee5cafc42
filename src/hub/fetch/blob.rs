//! One file: what is there of it, what is missing, and whether it is what was announced.

use super::api::Head;
use super::cache::Cache;
use super::error::FetchError;
use super::http::{Client, Method, header};
use super::{File, Watch};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;
use ureq::Body;
use ureq::http::Response;

/// Bytes read at once.
const PIECE: usize = 256 << 10;

/// The digest that an ETag is, of the bytes so far.
enum Check {
    /// 64 digits: SHA-256 of a large file
    Sha256(Sha256),
    /// 40 digits: git's name of a small one
    Git(Sha1),
    /// something else
    None,
}

impl Check {
    fn new(etag: &str, bytes: u64) -> Check {
        let hex = etag.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match etag.len() {
            64 if hex => Check::Sha256(Sha256::new()),
            40 if hex => Check::Git(Sha1::new_with_prefix(format!("blob {bytes}\0"))),
            _ => Check::None,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Check::Sha256(h) => h.update(bytes),
            Check::Git(h) => h.update(bytes),
            Check::None => {}
        }
    }

    /// The digits, where there are any.
    fn digits(self) -> Option<String> {
        let digits = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect();
        match self {
            Check::Sha256(h) => Some(digits(&h.finalize())),
            Check::Git(h) => Some(digits(&h.finalize())),
            Check::None => None,
        }
    }
}

/// A file that is being fetched.
struct Part<'a> {
    head: &'a Head,
    path: &'a Path,
    file: fs::File,
    check: Check,
    have: u64,
    /// bytes that came now
    fetched: u64,
}

/// Brings a file into the cache, where it is not there already.
pub(super) fn fetch(client: &Client, cache: &Cache, head: Head, watch: &mut dyn Watch) -> Result<File, FetchError> {
    let done =
        |head: Head, fetched, checked| File { name: head.file, bytes: head.bytes, etag: head.etag, fetched, checked };
    if cache.has(&head) {
        return Ok(done(head, 0, None));
    }
    let _lock = lock(client, &cache.lock(&head.etag), &head, watch)?;
    // whoever held the lock may have fetched it
    if cache.has(&head) {
        return Ok(done(head, 0, None));
    }
    if cache.has_blob(&head) {
        cache.point(&head)?;
        return Ok(done(head, 0, None));
    }
    let path = cache.incomplete(&head.etag);
    let mut part = Part::open(&head, &path)?;
    watch.begin(&head.file, head.bytes, part.have);
    while part.have < head.bytes {
        let before = part.have;
        // what brings bytes is no failure, however often it ends
        client.patiently(watch, |watch| match part.more(client, watch) {
            Err(e) if e.may_pass() && part.have > before => {
                watch.waiting(&e.to_string());
                client.sleep(Duration::from_millis(200))
            }
            other => other,
        })?;
    }
    let (fetched, check, file) = (part.fetched, part.check, part.file);
    let digits = check.digits();
    let checked = digits.is_some().then_some(true);
    if let Some(digits) = digits.filter(|d| *d != head.etag) {
        drop(file);
        fs::remove_file(&path).map_err(|e| FetchError::disk(&path, e))?;
        let why = format!("its digest is {digits}, not {}", head.etag);
        return Err(FetchError::Damaged { file: head.file, why });
    }
    let blob = cache.blob(&head.etag);
    file.sync_all().and_then(|()| fs::rename(&path, &blob)).map_err(|e| FetchError::disk(&blob, e))?;
    cache.point(&head)?;
    Ok(done(head, fetched, checked))
}

/// Waits for the lock of a file.
fn lock(client: &Client, path: &Path, head: &Head, watch: &mut dyn Watch) -> Result<fs::File, FetchError> {
    let disk = |e| FetchError::disk(path, e);
    let file = fs::OpenOptions::new().create(true).append(true).open(path).map_err(disk)?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => {}
            // a file system without locks: the digest is checked in any case
            Err(fs::TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => return Ok(file),
            Err(fs::TryLockError::Error(e)) => return Err(disk(e)),
        }
        if !told {
            watch.waiting(&format!("{} is being fetched by another program: waiting for it", head.file));
            told = true;
        }
        client.sleep(Duration::from_millis(100))?;
    }
}

impl<'a> Part<'a> {
    /// Opens what is there of a file, and reads it for its digest.
    fn open(head: &'a Head, path: &'a Path) -> Result<Part<'a>, FetchError> {
        let disk = |e| FetchError::disk(path, e);
        // nothing is written through a link that somebody else put there
        if fs::symlink_metadata(path).is_ok_and(|m| !m.is_file()) {
            fs::remove_file(path).map_err(disk)?;
        }
        let open = fs::OpenOptions::new().create(true).read(true).write(true).truncate(false).open(path);
        let mut part = Part {
            head,
            path,
            file: open.map_err(disk)?,
            check: Check::new(&head.etag, head.bytes),
            have: 0,
            fetched: 0,
        };
        if part.file.metadata().map_err(disk)?.len() > head.bytes {
            part.restart()?;
        }
        let mut piece = vec![0; PIECE];
        loop {
            let n = part.file.read(&mut piece).map_err(disk)?;
            if n == 0 {
                return Ok(part);
            }
            part.check.update(&piece[..n]);
            part.have += n as u64;
        }
    }

    fn restart(&mut self) -> Result<(), FetchError> {
        let done = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        done.map_err(|e| FetchError::disk(self.path, e))?;
        (self.have, self.check) = (0, Check::new(&self.head.etag, self.head.bytes));
        Ok(())
    }

    /// One request for what is missing. Errors: among others, that it ended before its end.
    fn more(&mut self, client: &Client, watch: &mut dyn Watch) -> Result<(), FetchError> {
        let what = &self.head.file;
        let reply = match client.ask(Method::Get, &self.head.address, self.have, what, |_| false) {
            // of a file that is shorter than what is there
            Err(FetchError::Status { status: 416, .. }) if self.have > 0 => {
                self.restart()?;
                client.ask(Method::Get, &self.head.address, 0, what, |_| false)?
            }
            other => other?,
        };
        self.place(&reply)?;
        let mut body = reply.into_body().into_reader();
        let mut piece = vec![0; PIECE];
        loop {
            client.stop.check()?;
            let n = match body.read(&mut piece) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(self.cut()),
            };
            if n == 0 {
                return if self.have < self.head.bytes { Err(self.cut()) } else { Ok(()) };
            }
            if n as u64 > self.head.bytes - self.have {
                return Err(self.differs(None));
            }
            self.file.write_all(&piece[..n]).map_err(|e| FetchError::disk(self.path, e))?;
            self.check.update(&piece[..n]);
            self.have += n as u64;
            self.fetched += n as u64;
            watch.at(self.have);
        }
    }

    /// Sees to it that what comes is what is missing: a server may send the whole again, or another part.
    fn place(&mut self, reply: &Response<Body>) -> Result<(), FetchError> {
        let (headers, what) = (reply.headers(), &self.head.file);
        let length: Option<u64> = header(headers, "content-length").and_then(|n| n.parse().ok());
        match reply.status().as_u16() {
            200 => self.restart()?,
            206 => {
                let range = header(headers, "content-range").unwrap_or_default();
                let (from, all) = (format!("bytes {}-", self.have), format!("/{}", self.head.bytes));
                if !range.starts_with(&from) || !(range.ends_with(&all) || range.ends_with("/*")) {
                    return Err(FetchError::answer(what, format!("it sends {range:?} where {from} was asked for")));
                }
            }
            other => return Err(FetchError::answer(what, format!("status {other} for a file"))),
        }
        // of a range a server may send less
        let whole = reply.status().as_u16() == 200;
        match length.map(|n| n.saturating_add(self.have)) {
            Some(n) if n > self.head.bytes || whole && n < self.head.bytes => Err(self.differs(Some(n))),
            _ => Ok(()),
        }
    }

    fn cut(&self) -> FetchError {
        FetchError::Cut { what: self.head.file.clone(), have: self.have, bytes: self.head.bytes }
    }

    /// Another length than was announced: nothing of it is to be believed.
    fn differs(&mut self, length: Option<u64>) -> FetchError {
        if let Err(e) = fs::remove_file(self.path) {
            return FetchError::disk(self.path, e);
        }
        let length = length.map_or("more".to_owned(), |n| n.to_string());
        FetchError::Damaged { file: self.head.file.clone(), why: format!("{length} bytes, not {}", self.head.bytes) }
    }
}

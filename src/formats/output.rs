//! Writing a model so that its name never stands for half of it.
//!
//! A file `OUT` is written as `OUT.part`, a directory `OUT` as the directory `OUT.part`; finished pieces are noted with
//! their hashes in `OUT.part.journal`. [`Staged::commit`] flushes everything to the disk and renames, so that at any
//! moment `OUT` is what it was before or the whole new model, whatever is killed when. The journal carries a fingerprint
//! of what is being made; [`Staged::begin`] goes on from it only when it is the same, and the caller checks the hashes.
//! A second process that wants the same name is refused by a lock on the journal. Nothing is removed that an earlier run
//! did not leave: `OUT.part` without a journal of ours beside it, and any file the model is read from, is refused.
//!
//! The only module that creates, renames or removes files.

use super::error::{FormatError, show_path};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// First word of a journal.
const JOURNAL: &str = "isobit-journal-1";

/// A model on its way.
#[derive(Debug)]
pub struct Staged {
    out: PathBuf,
    stage: PathBuf,
    journal_path: PathBuf,
    journal: File,
    directory: bool,
}

/// What to write.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `OUT` is a directory
    pub directory: bool,
    /// files and their lengths; of a file `OUT` the one, whose name does not matter
    pub files: Vec<(String, u64)>,
    /// says what is being made, on one line: a journal with another one is not continued
    pub fingerprint: String,
    /// files the model is made from: none of them may be written over
    pub sources: Vec<PathBuf>,
}

/// An open file of a staged model.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    name: String,
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Waits until the names in a directory are on the disk, where the system can.
fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        return File::open(dir)?.sync_all();
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match gone {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Gives a small file new bytes: its name holds what it held before or all of them, at any moment.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FormatError> {
    let written = replace_file_by(path, |file| file.write_all(bytes));
    written.map_err(|e| FormatError::io(path, "writing it", e))
}

/// As [`replace_file`], of any size: `write` writes the new bytes. Its error, or the system's.
pub fn replace_file_by<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    // of this process and call alone, so that two of them never write one neighbour
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let part = beside(path, &format!(".{}-{next}.part", std::process::id()));
    let replace = || {
        let mut file = io::BufWriter::new(File::create(&part)?);
        write(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&part, path)?;
        Ok(sync_dir(path.parent().unwrap_or(Path::new(".")))?)
    };
    replace().inspect_err(|_| {
        // the first error is the one to report; the neighbour may not even be there
        let _ = remove(&part);
    })
}

impl Staged {
    /// Whether an unfinished model waits for this name.
    pub fn waiting(out: &Path) -> bool {
        beside(out, ".part").exists()
    }

    /// Begins a model, or goes on with the unfinished one when `resume` is set and its fingerprint and files agree.
    /// Gives the finished pieces with their hashes, as [`Staged::note`] noted them; none for a new model.
    ///
    /// Errors: `out` is a directory that is not empty, or a directory where a file is to be (and the reverse); a file
    /// that would be written over is a source of the model, or not one that an earlier run left; another process writes
    /// the same model; the system's.
    pub fn begin(out: &Path, layout: &Layout, resume: bool) -> Result<(Staged, Vec<(usize, u128)>), FormatError> {
        refuse_target(out, layout.directory)?;
        let (stage, journal_path) = (beside(out, ".part"), beside(out, ".part.journal"));
        refuse_sources(out, &layout.sources)?;
        let fail = |place: &'static str| {
            let path = stage.clone();
            move |e| FormatError::io(&path, place, e)
        };
        refuse_foreign(&stage, &journal_path)?;
        let mut journal = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&journal_path)
            .map_err(fail("creating its journal"))?;
        let second = || {
            let remedy = "wait for the first, or give another name";
            FormatError::unsupported(&show_path(out), "a second process writing the same model", remedy)
        };
        match journal.try_lock() {
            // the first may have ended meanwhile, and its journal with it: a lock on that would keep nobody out
            Ok(()) if fs::symlink_metadata(&journal_path).is_err() => return Err(second()),
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(second()),
            // a WebAssembly module has no locks, and no second process either
            Err(fs::TryLockError::Error(e))
                if cfg!(target_family = "wasm") && e.kind() == io::ErrorKind::Unsupported => {}
            Err(fs::TryLockError::Error(e)) => return Err(fail("locking its journal")(e)),
        }
        let path = |name: &str| if layout.directory { stage.join(name) } else { stage.clone() };
        let whole =
            |(name, len): &(String, u64)| fs::metadata(path(name)).is_ok_and(|m| m.is_file() && m.len() == *len);
        let mut done = None;
        if resume && layout.files.iter().all(whole) {
            let mut bytes = Vec::new();
            journal.read_to_end(&mut bytes).map_err(fail("reading its journal"))?;
            done = read_journal(&bytes, &layout.fingerprint);
        }
        match &done {
            // what a kill left of a last line must not become the head of the next one
            Some((_, len)) => {
                let cut = journal.set_len(*len).and_then(|()| journal.seek(SeekFrom::Start(*len)));
                cut.map_err(fail("mending its journal"))?;
            }
            None => {
                remove(&stage).map_err(fail("removing what an earlier run left"))?;
                // the journal comes first: a stage without one would not be known as ours
                let begin = journal
                    .set_len(0)
                    .and_then(|()| journal.seek(SeekFrom::Start(0)))
                    .and_then(|_| writeln!(journal, "{JOURNAL} {}", layout.fingerprint))
                    .and_then(|()| journal.sync_all());
                begin.map_err(fail("writing its journal"))?;
                if layout.directory {
                    fs::create_dir(&stage).map_err(fail("creating the directory"))?;
                }
                for (name, len) in &layout.files {
                    let made = File::create(path(name)).and_then(|f| f.set_len(*len));
                    made.map_err(fail("creating it"))?;
                }
            }
        }
        let staged = Staged { out: out.to_path_buf(), stage, journal_path, journal, directory: layout.directory };
        Ok((staged, done.map_or(vec![], |(pieces, _)| pieces)))
    }

    /// Where the model is until it has its name.
    pub fn path(&self) -> &Path {
        &self.stage
    }

    /// Opens one of the layout's files for reading and writing at any position.
    pub fn open(&self, name: &str) -> Result<StagedFile, FormatError> {
        let path = if self.directory { self.stage.join(name) } else { self.stage.clone() };
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(StagedFile { file: file.map_err(|e| FormatError::io(&path, "opening it", e))?, name: show_path(&path) })
    }

    /// Notes that a piece is finished.
    pub fn note(&mut self, piece: usize, hash: u128) -> Result<(), FormatError> {
        // one write call: a line is there or is not (and a torn one is not read)
        let line = format!("{piece} {hash:032x}\n");
        self.journal.write_all(line.as_bytes()).map_err(|e| FormatError::io(&self.journal_path, "writing a line", e))
    }

    /// Writes a whole small file into a staged directory.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), FormatError> {
        let path = self.stage.join(name);
        fs::write(&path, bytes).map_err(|e| FormatError::io(&path, "writing it", e))
    }

    /// Flushes everything and gives it its name.
    pub fn commit(self) -> Result<(), FormatError> {
        let stage = self.stage.as_path();
        let fail = |place| move |e| FormatError::io(stage, place, e);
        let sync = |path: &Path| File::open(path).and_then(|f| f.sync_all());
        if self.directory {
            for entry in fs::read_dir(&self.stage).map_err(fail("listing it"))? {
                let entry = entry.map_err(fail("listing it"))?;
                sync(&entry.path()).map_err(fail("flushing its files to the disk"))?;
            }
            sync_dir(&self.stage).map_err(fail("flushing it to the disk"))?;
        } else {
            sync(&self.stage).map_err(fail("flushing it to the disk"))?;
        }
        fs::rename(&self.stage, &self.out).map_err(fail("giving it its name"))?;
        sync_dir(self.out.parent().unwrap_or(Path::new("."))).map_err(fail("flushing its name to the disk"))?;
        remove(&self.journal_path).map_err(fail("removing its journal"))
    }

    /// Removes everything that was written.
    pub fn discard(self) -> Result<(), FormatError> {
        let fail = |e| FormatError::io(&self.stage, "removing it", e);
        remove(&self.stage).map_err(fail)?;
        remove(&self.journal_path).map_err(fail)
    }
}

/// Refuses a name that a new model cannot have: one with a directory or a file in the way, or in a place that is none.
pub fn refuse_target(out: &Path, directory: bool) -> Result<(), FormatError> {
    let bad = |what: &str, expected: &str, found: &str| {
        Err(FormatError::invalid(&show_path(out), "writing it", what, expected, found))
    };
    if out.file_name().is_none() {
        return bad("not a name a model can have", "a file or directory name", "none");
    }
    let dir = out.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.is_dir() {
        let what = format!("no directory {}; create it first", show_path(dir));
        return bad(&what, "the directory of a new model", if dir.exists() { "something else" } else { "nothing" });
    }
    match fs::metadata(out) {
        Err(_) => Ok(()),
        Ok(m) if m.is_file() && directory => bad("a file is in the way", "a name that is free", "a file"),
        Ok(m) if m.is_dir() && !directory => bad("a directory is in the way", "a file name", "a directory"),
        Ok(m) if m.is_dir() => {
            let mut entries = fs::read_dir(out).map_err(|e| FormatError::io(out, "listing it", e))?;
            match entries.next() {
                None => Ok(()),
                Some(_) => bad("the directory is not empty; remove it first", "a name that is free", "files in it"),
            }
        }
        Ok(m) if m.is_file() => Ok(()),
        Ok(_) => bad("not a file", "a file name", "a device, socket or pipe"),
    }
}

/// Refuses to write a model over what it is made from, whatever the paths are called: a source, or a config, tokeniser
/// or template in the folder of one.
pub fn refuse_sources(out: &Path, sources: &[PathBuf]) -> Result<(), FormatError> {
    for (path, what) in [
        (out.to_path_buf(), "the output is the input"),
        (beside(out, ".part"), "the output's unfinished form is the input"),
        (beside(out, ".part.journal"), "the output's journal is the input"),
    ] {
        let Ok(real) = fs::canonicalize(&path) else { continue };
        let within = |s: &PathBuf| fs::canonicalize(s).is_ok_and(|s| s.starts_with(&real));
        let beside = |s: &PathBuf| s.parent().is_some_and(|p| fs::canonicalize(p).ok().as_deref() == real.parent());
        let side = real.extension().is_some_and(|e| ["json", "model", "jinja"].iter().any(|x| e == *x));
        if sources.iter().any(within) || side && real.is_file() && sources.iter().any(beside) {
            return Err(FormatError::invalid(
                &show_path(out),
                "writing it",
                what,
                "another name for the output",
                show_path(&path),
            ));
        }
    }
    Ok(())
}

/// Refuses a stage or a journal that no earlier run of ours left: it would be removed.
fn refuse_foreign(stage: &Path, journal: &Path) -> Result<(), FormatError> {
    let foreign = |path: &Path, found: &str| {
        let what = "it was not left by an unfinished run and would be removed; rename it, or give another name";
        Err(FormatError::invalid(&show_path(path), "writing it", what, "a name that is free", found))
    };
    let head = match File::open(journal) {
        Ok(file) => {
            let mut head = Vec::new();
            let read = file.take(JOURNAL.len() as u64).read_to_end(&mut head);
            read.map_err(|e| FormatError::io(journal, "reading it", e))?;
            Some(head)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(FormatError::io(journal, "opening it", e)),
    };
    let staged = fs::symlink_metadata(stage).is_ok();
    match head {
        Some(head) if head == JOURNAL.as_bytes() => Ok(()),
        // killed before its first line was whole, when there was no stage yet
        Some(head) if !staged && JOURNAL.as_bytes().starts_with(&head) => Ok(()),
        Some(_) => foreign(journal, "something else than a journal"),
        None if staged => foreign(stage, "no journal beside it"),
        None => Ok(()),
    }
}

/// The finished pieces of a journal with this fingerprint, and the bytes that they and its head take. Reading ends where
/// a line is torn or not one of ours.
fn read_journal(bytes: &[u8], fingerprint: &str) -> Option<(Vec<(usize, u128)>, u64)> {
    let mut lines = bytes.split_inclusive(|b| *b == b'\n').map_while(|l| str::from_utf8(l.strip_suffix(b"\n")?).ok());
    let head = lines.next()?;
    if head.strip_prefix(JOURNAL)?.trim_start() != fingerprint {
        return None;
    }
    let (mut pieces, mut len) = (Vec::new(), head.len() as u64 + 1);
    let piece = |line: &str| {
        let (piece, hash) = line.split_once(' ').filter(|(_, hash)| hash.len() == 32)?;
        Some((piece.parse().ok()?, u128::from_str_radix(hash, 16).ok()?))
    };
    for line in lines {
        let Some(found) = piece(line) else { break };
        pieces.push(found);
        len += line.len() as u64 + 1;
    }
    Some((pieces, len))
}

impl StagedFile {
    /// Writes all bytes from `offset` on. May be called from several threads.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), FormatError> {
        write_all_at(&self.file, bytes, offset).map_err(|e| self.io(&format!("writing at byte {offset}"), e))
    }

    /// Reads exactly these bytes.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), FormatError> {
        read_exact_at(&self.file, out, offset).map_err(|e| self.io(&format!("reading at byte {offset}"), e))
    }

    fn io(&self, place: &str, source: io::Error) -> FormatError {
        FormatError::Io { file: self.name.clone(), place: place.to_string(), source }
    }
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => (bytes, offset) = (&bytes[n..], offset + n as u64),
        }
    }
    Ok(())
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => (out, offset) = (&mut std::mem::take(&mut out)[n..], offset + n as u64),
        }
    }
    Ok(())
}

/// Elsewhere a file has one shared position, so writers and readers take turns.
#[cfg(not(any(unix, windows)))]
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(not(any(unix, windows)))]
fn write_all_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

#[cfg(not(any(unix, windows)))]
fn read_exact_at(mut file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(fingerprint: &str, len: u64) -> Layout {
        let files = vec![(String::new(), len)];
        Layout { directory: false, files, fingerprint: fingerprint.into(), sources: vec![] }
    }

    #[test]
    fn a_torn_line_does_not_count_and_another_fingerprint_is_not_continued() {
        let whole = format!("{JOURNAL} abc\n0 {:032x}\n1 {:032x}\n", 5, 6);
        let found = Some((vec![(0, 5), (1, 6)], whole.len() as u64));
        for torn in ["", "2 00", "2 00\0\0", "2 00\n3 11\n", "\u{fffd}\n"] {
            assert_eq!(read_journal(format!("{whole}{torn}").as_bytes(), "abc"), found, "{torn:?}");
        }
        assert_eq!(read_journal(whole.as_bytes(), "abd"), None);
        assert_eq!(read_journal(b"", "abc"), None);
        assert_eq!(read_journal(b"junk\n", ""), None);
        assert_eq!(read_journal(JOURNAL.as_bytes(), ""), None);
    }

    #[test]
    fn a_line_torn_by_a_kill_does_not_spoil_those_that_a_resumed_run_writes() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("m.gguf");
        let (mut staged, _) = Staged::begin(&out, &layout("x", 3), false).unwrap();
        staged.note(0, 7).unwrap();
        staged.journal.write_all(b"1 0000").unwrap();
        for notes in [1, 2] {
            drop(staged);
            let done;
            (staged, done) = Staged::begin(&out, &layout("x", 3), true).unwrap();
            assert_eq!(done, [(0, 7), (1, 8)][..notes]);
            staged.note(1, 8).unwrap();
        }
    }

    #[test]
    fn what_no_run_of_ours_left_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("m.gguf");
        let (part, journal) = (dir.path().join("m.gguf.part"), dir.path().join("m.gguf.part.journal"));
        let refused = |path: &Path, why: &str| {
            let bytes = fs::read(path).unwrap();
            for resume in [false, true] {
                let error = Staged::begin(&out, &layout("x", 3), resume).unwrap_err().to_string();
                assert!(error.contains(why) && error.lines().count() == 1, "{error}");
            }
            assert_eq!(fs::read(path).unwrap(), bytes);
        };
        fs::write(&part, b"mine").unwrap();
        refused(&part, "no journal beside it");
        fs::write(&journal, b"").unwrap();
        refused(&part, "something else than a journal");
        fs::remove_file(&part).unwrap();
        fs::write(&journal, b"dear diary").unwrap();
        refused(&journal, "something else than a journal");
        // killed before the first line was written
        fs::write(&journal, &JOURNAL[..5]).unwrap();
        Staged::begin(&out, &layout("x", 3), true).unwrap().0.discard().unwrap();
    }

    #[test]
    fn a_model_is_not_written_over_what_it_is_made_from() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("m");
        for name in ["m", "m.part", "m.part.journal"] {
            let source = dir.path().join(name);
            fs::write(&source, b"a model").unwrap();
            let sources = vec![dir.path().join(".").join(name)];
            let error = Staged::begin(&out, &Layout { sources, ..layout("x", 3) }, true).unwrap_err().to_string();
            assert!(error.contains("is the input") && error.contains(name), "{error}");
            assert_eq!(fs::read(&source).unwrap(), b"a model");
            fs::remove_file(&source).unwrap();
        }
        // a directory that holds the source
        let source = dir.path().join("m.part").join("model.safetensors");
        fs::create_dir(dir.path().join("m.part")).unwrap();
        fs::write(&source, b"a model").unwrap();
        let sources = vec![source.clone()];
        assert!(Staged::begin(&out, &Layout { directory: true, sources, ..layout("x", 3) }, true).is_err());
        assert_eq!(fs::read(&source).unwrap(), b"a model");
    }

    #[test]
    fn the_old_file_stays_until_the_commit_and_nothing_is_left_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("m.gguf");
        fs::write(&out, b"old").unwrap();
        let (mut staged, done) = Staged::begin(&out, &layout("x", 3), true).unwrap();
        assert!(done.is_empty());
        staged.open("").unwrap().write_at(0, b"new").unwrap();
        staged.note(0, 7).unwrap();
        assert_eq!(fs::read(&out).unwrap(), b"old");
        assert!(Staged::begin(&out, &layout("x", 3), true).is_err(), "the first still holds the lock");
        drop(staged);
        let (staged, done) = Staged::begin(&out, &layout("x", 3), true).unwrap();
        assert_eq!(done, [(0, 7)]);
        staged.commit().unwrap();
        assert_eq!(fs::read(&out).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_failure_leaves_the_old_one_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        for text in ["first", "second"] {
            replace_file(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), text.as_bytes());
        }
        fs::create_dir(dir.path().join("taken")).unwrap();
        let error = replace_file(&dir.path().join("taken"), b"x").unwrap_err().to_string();
        assert!(error.contains("taken") && error.contains("writing it"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_config_or_tokeniser_beside_the_weights_is_no_output() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["model.safetensors", "config.json", "tokenizer.model"] {
            fs::write(at(name), b"x").unwrap();
        }
        let sources = [at("model.safetensors")];
        for name in ["model.safetensors", "config.json", "tokenizer.model"] {
            assert!(refuse_sources(&at(name), &sources).is_err(), "{name}");
        }
        fs::write(at("old.gguf"), b"x").unwrap();
        assert!(refuse_sources(&at("old.gguf"), &sources).is_ok() && refuse_sources(&at("new.json"), &sources).is_ok());
    }

    #[test]
    fn without_resume_or_with_another_length_it_starts_anew() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("m.gguf");
        for (resume, len) in [(false, 3), (true, 4)] {
            let (mut staged, _) = Staged::begin(&out, &layout("x", 3), false).unwrap();
            staged.note(0, 7).unwrap();
            drop(staged);
            let (staged, done) = Staged::begin(&out, &layout("x", len), resume).unwrap();
            assert!(done.is_empty());
            staged.discard().unwrap();
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

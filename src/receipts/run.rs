//! Runs that are kept: a folder of files, each a receipt with what else was asked for.
//!
//! `{"isobit_run":1,"extras":{...},"sha256":"...","receipt":{...}}`, one line; the hash is that of the extras' bytes as they
//! stand, and the receipt is the file that [`Receipt::to_bytes`] gives.

use super::error::Error;
use super::hex::Hex;
use super::receipt::{Body, LARGEST, Receipt};
use crate::engine::{Model, Request};
use crate::formats::output::replace_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How a file begins.
const HEAD: &str = "{\"isobit_run\":1,\"extras\":";

/// Where a run comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// the run's name
    pub run: String,
    /// its tokens that were taken over
    pub from: usize,
}

/// What a run has beside its receipt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extras {
    /// the prompt's text, where it was one
    pub prompt: Option<String>,
    /// the run it branches from
    pub parent: Option<Parent>,
    /// for each token the likeliest in its place and the natural logarithms of their probabilities, where that was asked for
    pub top: Vec<Vec<(u32, f64)>>,
}

/// A run that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// what it was
    pub receipt: Receipt,
    /// what else is known
    pub extras: Extras,
}

/// A file of a folder, and the run in it or what is wrong with it.
pub type Listed = (PathBuf, Result<Run, Error>);

impl Run {
    /// What names it ([`Body::id`]).
    pub fn id(&self) -> String {
        self.receipt.body.id()
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let extras = serde_json::to_vec(&self.extras).unwrap_or_else(|e| unreachable!("numbers and texts: {e}"));
        let mut bytes = HEAD.as_bytes().to_vec();
        bytes.extend(&extras);
        bytes.extend(format!(",\"sha256\":\"{}\",\"receipt\":", Hex(Sha256::digest(&extras).into())).bytes());
        bytes.extend(self.receipt.to_bytes().trim_ascii_end());
        bytes.extend(b"}\n");
        bytes
    }

    /// Reads a file that was not changed; a receipt alone serves as well.
    ///
    /// Errors: [`Error::Run`], and those of [`Receipt::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Run, Error> {
        let Some(rest) = bytes.strip_prefix(HEAD.as_bytes()) else {
            return Ok(Run { receipt: Receipt::parse(bytes)?, extras: Extras::default() });
        };
        let no = |why: &str| Error::Run(why.into());
        // the extras end where their hash begins: the text of neither has a bare quote in it
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Extras>();
        let extras = values.next().ok_or_else(|| no("it ends too early"))?;
        let extras = extras.map_err(|e| Error::Run(e.to_string()))?;
        let (extras_bytes, rest) = rest.split_at(values.byte_offset());
        let carried = rest.strip_prefix(b",\"sha256\":\"").and_then(|rest| rest.split_at_checked(64));
        let (carried, rest) = carried.ok_or_else(|| no("no hash after its extras"))?;
        let found = Hex(Sha256::digest(extras_bytes).into());
        if found.to_string().as_bytes() != carried {
            return Err(no("it was changed: its extras have another SHA-256 than the one beside them"));
        }
        let receipt = rest.strip_prefix(b"\",\"receipt\":").and_then(|rest| rest.strip_suffix(b"}\n"));
        let receipt = receipt.ok_or_else(|| no("no receipt after its hash, or something after it"))?;
        Ok(Run { receipt: Receipt::parse(&[receipt, b"\n"].concat())?, extras })
    }

    /// Writes it as `ID.json` to a folder, which is made where it is not there; where it is. Of two runs with one name the
    /// later stays.
    ///
    /// Errors: [`Error::File`].
    pub fn save(&self, folder: &Path) -> Result<PathBuf, Error> {
        std::fs::create_dir_all(folder).map_err(|e| of_file(folder, &e))?;
        let path = folder.join(format!("{}.json", self.id()));
        replace_file(&path, &self.to_bytes())?;
        Ok(path)
    }

    /// Reads a run, or a receipt.
    ///
    /// Errors: [`Error::File`], and those of [`Run::parse`].
    pub fn load(path: &Path) -> Result<Run, Error> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|f| f.take(LARGEST + 1).read_to_end(&mut bytes));
        read.map_err(|e| of_file(path, &e))?;
        if bytes.len() as u64 > LARGEST {
            return Err(Error::File(format!("{}: more than {} MiB", path.display(), LARGEST >> 20)));
        }
        Run::parse(&bytes)
    }

    /// The run of a name in a folder; `None`: there is none.
    ///
    /// Errors: a name that is not 16 hexadecimal digits; those of [`Run::load`].
    pub fn find(folder: &Path, id: &str) -> Result<Option<Run>, Error> {
        if Hex::<8>::parse(id).is_none() {
            return Err(Error::Run("a name is 16 digits of 0123456789abcdef".into()));
        }
        let path = folder.join(format!("{id}.json"));
        if path.exists() { Run::load(&path).map(Some) } else { Ok(None) }
    }

    /// The files `*.json` of a folder with the runs in them, the oldest run first, and files that are none after all runs.
    ///
    /// Errors: [`Error::File`] where the folder cannot be read.
    pub fn list(folder: &Path) -> Result<Vec<Listed>, Error> {
        Run::newest(folder, usize::MAX)
    }

    /// As [`Run::list`], of the files that were written last, `most` of them.
    ///
    /// Errors: as there.
    pub fn newest(folder: &Path, most: usize) -> Result<Vec<Listed>, Error> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|e| of_file(folder, &e))? {
            let entry = entry.map_err(|e| of_file(folder, &e))?;
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "json") {
                files.push((entry.metadata().and_then(|m| m.modified()).ok(), path));
            }
        }
        files.sort_by(|a, b| b.cmp(a));
        files.truncate(most);
        let read = |(_, path): (_, PathBuf)| {
            let run = Run::load(&path);
            (path, run)
        };
        let mut list: Vec<Listed> = files.into_iter().map(read).collect();
        let when = |run: &Result<Run, Error>| run.as_ref().map_or(u64::MAX, |r| r.receipt.body.time);
        list.sort_by_cached_key(|(path, run)| (when(run), path.clone()));
        Ok(list)
    }
}

impl Body {
    /// A request that goes on from the first `from` tokens of this run with other tokens after them, and with what is changed
    /// in the request that is given back. It asks for as many tokens as were still to come.
    ///
    /// Errors: more tokens than there are; a run whose tokens kept to a grammar, which cannot be taken up in its midst.
    pub fn branch(&self, model: &Model, from: usize, then: &[u32]) -> Result<Request, Error> {
        if from > self.ids.len() {
            let n = self.ids.len();
            return Err(Error::Unsound(format!("it has {n} tokens: it cannot be gone on with from token {from}")));
        }
        if self.grammar.is_some() {
            return Err(Error::Unsupported("its tokens kept to a grammar: it has no branches".into()));
        }
        let request = self.request(model)?;
        let given = from + then.len();
        let max_tokens = match request.max_tokens {
            usize::MAX => usize::MAX,
            most => most.saturating_sub(given).max(1),
        };
        let prompt = [&self.prompt[..], &self.ids[..from], then].concat();
        Ok(Request { prompt: prompt.into(), max_tokens, ..request })
    }
}

fn of_file(path: &Path, e: &std::io::Error) -> Error {
    Error::File(format!("{}: {e}", path.display()))
}

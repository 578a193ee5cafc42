//! Names of models, as users write them.

use super::entry::{Passed, Place};
use thiserror::Error;

/// The longest name.
const LONGEST: usize = 300;

/// A model's name: `[hf:]user/model[:tag]`, `name[:tag]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// it is the hub's: `hf:` stood in front
    pub hub: bool,
    /// `user/model`, or a bare name, or Ollama's with a host in front
    pub repo: String,
    /// what is behind the colon: part of a file's name, or Ollama's tag
    pub tag: Option<String>,
    /// a file of the repository, as it is named there
    pub file: Option<String>,
}

/// Not a name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no name of a model: {1}")]
pub struct NameError(String, &'static str);

/// Whether a text may be one part of a name: letters, digits, `-`, `_` and `.`, no dot in front.
fn is_part(text: &str) -> bool {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty()
        && text.len() <= 96
        && text.bytes().all(ok)
        && !text.starts_with(['.', '-'])
        && !text.contains("..")
}

/// Whether a text may be a repository of the hub: one or two parts, without what stands for `/` in names of folders.
pub(super) fn is_repo(text: &str) -> bool {
    text.split('/').count() <= 2 && text.split('/').all(is_part) && !text.contains("--")
}

/// Whether a text may be a file of a repository: a relative path of plain names.
pub(super) fn is_file(text: &str) -> bool {
    let bad = |c: char| c.is_control() || matches!(c, '\\' | ':');
    let part = |p: &str| !p.is_empty() && p.len() <= 255 && p != "." && p != "..";
    text.len() <= 1024 && !text.chars().any(bad) && text.split('/').all(part)
}

/// Whether a text may be a revision: a branch, a tag or a commit.
#[cfg_attr(not(feature = "hub"), allow(dead_code, reason = "only what fetches has revisions"))]
pub(super) fn is_revision(text: &str) -> bool {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    text.bytes().all(ok) && is_file(text) && !text.split('/').any(|p| p.starts_with('.') || p.ends_with(".lock"))
}

/// Whether a text is a commit: 40 hexadecimal digits in small letters.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl Name {
    /// Reads a name. Errors: what cannot be one, such as a path.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        let wrong = |why| NameError(text.chars().take(LONGEST).collect(), why);
        if text.len() > LONGEST {
            return Err(wrong("it is too long"));
        }
        let (hub, rest) = text.strip_prefix("hf:").map_or((false, text), |rest| (true, rest));
        let (repo, tag) = rest.split_once(':').map_or((rest, None), |(repo, tag)| (repo, Some(tag)));
        let parts: Vec<&str> = repo.split('/').collect();
        if !parts.iter().all(|p| is_part(p)) {
            return Err(wrong("letters, digits, '-', '_' and '.' make one, as in user/model:Q4_K_M"));
        }
        if parts.len() > if hub { 2 } else { 3 } || hub && !is_repo(repo) {
            return Err(wrong("expected user/model"));
        }
        if tag.is_some_and(|t| !is_part(t)) {
            return Err(wrong("what is behind the colon may have letters, digits, '-', '_' and '.'"));
        }
        Ok(Name { hub, repo: repo.to_owned(), tag: tag.map(str::to_owned), file: None })
    }

    /// The same repository with a file of it, by its name there. Errors: a name that leads elsewhere.
    pub fn with_file(self, file: &str) -> Result<Name, NameError> {
        if !is_file(file) {
            return Err(NameError(file.chars().take(LONGEST).collect(), "expected a file of the repository"));
        }
        Ok(Name { file: Some(file.to_owned()), ..self })
    }

    /// Whether it may be a repository of the hub, with user and model.
    pub fn is_of_hub(&self) -> bool {
        is_repo(&self.repo) && (self.hub || self.repo.contains('/'))
    }

    /// Whether something that was passed over may be what is meant.
    pub(super) fn may_mean(&self, passed: &Passed) -> bool {
        let (repo, rest) = passed.what.split_once(':').unwrap_or((&passed.what, ""));
        let tag = self.tag.as_deref().or(self.file.as_deref()).unwrap_or_default().to_lowercase();
        (!self.hub || passed.place != Place::Ollama)
            && repo.eq_ignore_ascii_case(&self.repo)
            && (rest.is_empty() || rest.to_lowercase().contains(&tag))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tag = self.tag.as_ref().map_or(String::new(), |t| format!(":{t}"));
        write!(f, "{}{}{tag}", if self.hub { "hf:" } else { "" }, self.repo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_paths_are_none() {
        let of = |s: &str| Name::parse(s).map(|n| (n.hub, n.repo.clone(), n.tag.clone()));
        let tag = |t: &str| Some(t.to_owned());
        assert_eq!(of("hf:user/model:Q4_K_M"), Ok((true, "user/model".into(), tag("Q4_K_M"))));
        assert_eq!(of("user/model"), Ok((false, "user/model".into(), None)));
        assert_eq!(of("llama3.2:1b"), Ok((false, "llama3.2".into(), tag("1b"))));
        assert_eq!(of("hf:gpt2"), Ok((true, "gpt2".into(), None)));
        assert_eq!(of("hf.co/user/model:Q8_0"), Ok((false, "hf.co/user/model".into(), tag("Q8_0"))));
        for bad in [
            "",
            "/abs/x",
            "./x",
            "../x",
            "a/../b",
            "a//b",
            "a\\b",
            "a b",
            "~/x",
            "a/b/c/d",
            "hf:a/b/c",
            "a:",
            "a:b:c",
            "a/b:../x",
            "hf:a--b/c",
            "a\u{7}b",
            "hf:",
            "a/b:x/y",
            "..",
            "a/.b",
            "é/b",
        ] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Name::parse(&"x".repeat(1000)).unwrap_err().to_string().len() < 500);
        assert!(Name::parse("a/b").unwrap().is_of_hub() && !Name::parse("llama3.2:1b").unwrap().is_of_hub());
    }

    #[test]
    fn files_of_a_repository_do_not_lead_out_of_it() {
        for good in ["model.gguf", "Q4_K_M/model-00001-of-00002.gguf", "a b.gguf", "a..b"] {
            assert!(is_file(good), "{good}");
        }
        for bad in ["", "/x", "x/", "a//b", "..", "../x", "a/../x", "a/./x", "a\\x", "c:x", "a\nb", "a\0b"] {
            assert!(!is_file(bad) && Name::parse("a/b").unwrap().with_file(bad).is_err(), "{bad:?}");
        }
        assert!(is_revision("refs/pr/1") && is_revision("v1.0") && !is_revision("a b") && !is_revision("../x"));
        assert!(is_commit(&"0a".repeat(20)) && !is_commit(&"0A".repeat(20)) && !is_commit("main"));
    }
}
